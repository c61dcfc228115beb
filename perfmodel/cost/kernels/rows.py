"""Kernels as columns: shapes, device figures and labels, one entry a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.kernels.power import sustained_fraction
from perfmodel.hardware.aliases import resolve_gpu
from perfmodel.hardware.records import Dtype, Gpu

Vector = NDArray[np.float64]
Labels = NDArray[np.object_]

SIBLINGS = {"gb110": "gb100", "cdna1": "cdna2"}
"""Silicon so close that one is no test of transfer to the other: B300 is a respin of B200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Data-sheet figures, each of shape (n,): SI units, peak of the dtype of that row."""

    peak_flop_per_s: Vector
    vector_flop_per_s: Vector
    bytes_per_s: Vector
    l2_bytes: Vector
    num_sms: Vector
    clock_hz: Vector
    sustained_fraction: Vector  # of the peak that the power limit allows


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """n kernels of one family.

    shape : the family's shape columns, float64, (n,)
    labels : "op", "direction", "gpu" (canonical), "silicon", "architecture", "dtype", "framework",
        "kernel", "distribution", each object (str), shape (n,); "" where unknown
    """

    shape: Mapping[str, Vector]
    device: Device
    element_bytes: Vector
    labels: Mapping[str, Labels]

    def __len__(self) -> int:
        return len(self.element_bytes)

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> Rows:
        """The rows at `index`."""
        names = Device.__slots__
        return Rows(
            shape={k: v[index] for k, v in self.shape.items()},
            device=Device(**{k: getattr(self.device, k)[index] for k in names}),
            element_bytes=self.element_bytes[index],
            labels={k: v[index] for k, v in self.labels.items()},
        )


def join_rows(pieces: Sequence[Rows]) -> Rows:
    """All pieces one after the other."""
    first = pieces[0]
    device = {
        name: np.concatenate([getattr(p.device, name) for p in pieces]) for name in Device.__slots__
    }
    return Rows(
        shape={k: np.concatenate([p.shape[k] for p in pieces]) for k in first.shape},
        device=Device(**device),
        element_bytes=np.concatenate([p.element_bytes for p in pieces]),
        labels={k: np.concatenate([p.labels[k] for p in pieces]) for k in first.labels},
    )


def silicon_of(gpu: Gpu) -> str:
    """Name shared by parts cut from one die, or from dies that are no test for each other."""
    return SIBLINGS.get(gpu.silicon_family, gpu.silicon_family)


def peak_for(gpu: Gpu, dtype: str) -> float:
    """Dense peak of `dtype`; formats a GPU lacks are widened to 16 or 32 bits."""
    wanted = Dtype(dtype)
    if wanted is Dtype.FP32:  # eager fp32 with TF32 off runs on the vector units (or AMD's matrix)
        return gpu.peak_flop_per_s.get(Dtype.FP32, gpu.vector_flop_per_s)
    for candidate in (wanted, Dtype.FP8, Dtype.BF16, Dtype.FP16):
        is_wide_enough = candidate.num_bytes >= wanted.num_bytes
        if is_wide_enough and candidate in gpu.peak_flop_per_s:
            return gpu.peak_flop_per_s[candidate]
    return gpu.peak_flop_per_s.get(Dtype.FP32, gpu.vector_flop_per_s)


def resolve_gpus(names: Iterable[str]) -> dict[str, Gpu]:
    """GPU of each distinct spelling."""
    return {name: resolve_gpu(name)[0] for name in sorted(set(names))}


def make_rows(
    shape: Mapping[str, Vector],
    gpu_names: Labels,
    labels: Mapping[str, Labels],
    known: Mapping[str, Gpu] | None = None,
) -> Rows:
    """Rows from shape columns, GPU spellings and labels ("op", "dtype" and, where known, others).

    `known` maps names to GPUs; without it they are looked up in the catalogue.

    Raises
    ------
    UnknownNameError
        If a GPU is not in the catalogue.
    ValueError
        If a dtype is unknown.
    """
    n = len(gpu_names)
    pairs, inverse = _distinct(gpu_names, labels["dtype"])
    gpus = known if known is not None else resolve_gpus(p[0] for p in pairs)
    figures = np.array([_figures(gpus[name], dtype) for name, dtype in pairs]).reshape(-1, 8)
    table = figures[inverse]
    filled = {
        key: labels.get(key, np.full(n, "", dtype=object))
        for key in ("op", "dtype", "framework", "kernel", "distribution")
    }
    filled["direction"] = labels.get("direction", np.full(n, "fwd", dtype=object))
    for key, value in (
        ("gpu", [gpus[p[0]].name for p in pairs]),
        ("silicon", [silicon_of(gpus[p[0]]) for p in pairs]),
        ("architecture", [gpus[p[0]].architecture for p in pairs]),
    ):
        filled[key] = np.array(value, dtype=object)[inverse]
    device = Device(
        peak_flop_per_s=table[:, 0], vector_flop_per_s=table[:, 1], bytes_per_s=table[:, 2],
        l2_bytes=table[:, 3], num_sms=table[:, 4], clock_hz=table[:, 5],
        sustained_fraction=table[:, 6],
    )  # fmt: skip
    return Rows(shape=shape, device=device, element_bytes=table[:, 7], labels=filled)


def _distinct(first: Labels, second: Labels) -> tuple[list[tuple[str, str]], NDArray[np.int64]]:
    """Distinct pairs and, for each row, which of them it is."""
    codes: dict[tuple[str, str], int] = {}
    inverse = np.array([codes.setdefault(p, len(codes)) for p in zip(first, second, strict=True)])
    return list(codes), inverse.astype(np.int64)


def _figures(gpu: Gpu, dtype: str) -> tuple[float, ...]:
    return (
        peak_for(gpu, dtype), gpu.vector_flop_per_s, gpu.memory_bytes_per_s, gpu.l2_bytes,
        float(gpu.num_sms), gpu.clock_hz, sustained_fraction(gpu, dtype), Dtype(dtype).num_bytes,
    )  # fmt: skip
