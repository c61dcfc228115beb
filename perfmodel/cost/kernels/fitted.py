"""`FittedKernelModel`: prices device work by models fitted on measured kernels.

What the measurements cover is priced by them: dense GEMMs, batched ones in fp32, fused
self-attention of the kernel generations that were measured, fp32 convolutions, and the share of
bandwidth that memory-bound kernels reach. Everything else stays with the analytic model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.kernels import constants as c
from perfmodel.cost.kernels.bundle import KernelBundle
from perfmodel.cost.kernels.columns import Column, column
from perfmodel.cost.kernels.families import FAMILIES, Family
from perfmodel.cost.kernels.learned import LearnedModel, sigma_of
from perfmodel.cost.kernels.model import KernelModel
from perfmodel.cost.kernels.rows import Labels, Rows, Vector, make_rows
from perfmodel.cost.kernels.select import choose_model
from perfmodel.cost.protocol import Estimate
from perfmodel.hardware.records import Cluster, Dtype, Gpu
from perfmodel.program.work import (
    Attention,
    Convolution,
    Gemm,
    Memory,
    OptimizerStep,
    Pass,
    Work,
)

_FAMILY: dict[str, Family] = {family.name: family for family in FAMILIES}
_GEMM_DTYPES = (Dtype.BF16, Dtype.FP16, Dtype.FP8, Dtype.FP32)
_ATTENTION_DTYPES = (Dtype.BF16, Dtype.FP16)
# Generation of a stack's attention -> how the measured kernels are labelled, by architecture.
_ATTENTION_LABELS: dict[tuple[str, str], tuple[str, str]] = {
    ("flash2", "ampere"): ("vllm", "vllm_flash_attn"),
    ("flash3", "hopper"): ("sglang", "fa3"),
    ("flash3", "blackwell"): ("trtllm", "torch_flow"),
    ("flash3", "blackwell ultra"): ("trtllm", "torch_flow"),
}
# Time inside a training run over time in a short burst, for matrix work. Tables time seconds of one
# kernel; hours of training settle at lower clocks. Share of peak that whole runs fit over what the
# tables reach: H100 0.70 / 0.76, GB200 0.58 / 0.63, A100 0.74 / 0.78 (at a layer's sizes).
_IN_RUN: dict[str, float] = {
    "ampere": 1.05, "hopper": 1.09, "blackwell": 1.09, "blackwell ultra": 1.09,
}  # fmt: skip
# Operators whose share of bandwidth stands for all memory-bound kernels, best first.
_BANDWIDTH_OPS = ("add", "mul", "silu_mul", "gelu")
_LARGEST_SHARE = 0.95  # of nominal bandwidth: above it, the cache helped, and will not in a step


class FittedKernelModel:
    """Kernel models of a bundle over the analytic model.

    Parameters
    ----------
    bundle : path or KernelBundle
        Fitted models.
    """

    def __init__(self, bundle: str | Path | KernelBundle) -> None:
        opened = bundle if isinstance(bundle, KernelBundle) else KernelBundle.load(bundle)
        self._bundle = opened
        self._analytic = KernelModel()

    def handles(self, work: Work) -> bool:
        """Whether this model prices `work`: what the analytic one does."""
        return self._analytic.handles(work)

    def estimate(self, works: Sequence[Work], cluster: Cluster) -> Estimate:
        """Seconds of each work on the GPU of `cluster`; see `KernelModel.estimate`."""
        first = self._analytic.estimate(works, cluster)
        seconds, log_sigma = first.seconds.copy(), first.log_sigma.copy()
        warnings = list(first.warnings)
        gpu = cluster.gpu
        for is_mine, price in _PRICERS:
            rows = np.array([i for i, w in enumerate(works) if is_mine(w, gpu)], dtype=np.int64)
            if len(rows):
                found = price([works[i] for i in rows], gpu, self._bundle, first.seconds[rows])
                if found is not None:
                    seconds[rows], log_sigma[rows] = found[0], found[1]
                    warnings.extend(found[2])
        return Estimate(
            seconds=seconds, log_sigma=log_sigma, warnings=tuple(dict.fromkeys(warnings))
        )


_Priced = tuple[Column, Vector, list[str]]


def _is_gemm(work: Work, gpu: Gpu) -> bool:
    return (
        isinstance(work, Gemm)
        and work.dtype in _GEMM_DTYPES
        and work.dtype in gpu.peak_flop_per_s
        and (work.dtype is Dtype.FP32 or bool(np.all(np.asarray(work.batch) == 1.0)))
    )


def _price_gemm(
    works: Sequence[Gemm], gpu: Gpu, bundle: KernelBundle, analytic: Column
) -> _Priced | None:
    shape = {name: column([getattr(w, name) for w in works]) for name in ("batch", "m", "n", "k")}
    is_batched = column([w.batch for w in works]) > 1.0
    op = np.where(is_batched, "bmm", "linear").astype(object)
    return _price(_FAMILY["gemm"], shape, works, gpu, bundle, analytic, {"op": op})


def _is_attention(work: Work, gpu: Gpu) -> bool:
    if not isinstance(work, Attention) or work.dtype not in _ATTENTION_DTYPES:
        return False
    generation = c.ATTENTION_GENERATION.get(work.kernel, c.DEFAULT_ATTENTION_GENERATION)
    is_square = np.array_equal(np.asarray(work.query_len), np.asarray(work.key_len))
    return (
        (generation, gpu.architecture) in _ATTENTION_LABELS
        and is_square
        and work.head_dim == work.value_dim
    )


def _price_attention(
    works: Sequence[Attention], gpu: Gpu, bundle: KernelBundle, analytic: Column
) -> _Priced | None:
    shape = {
        "batch": column([w.batch for w in works]), "seq_len": column([w.query_len for w in works]),
        "num_heads": column([w.heads for w in works]),
        "num_kv_heads": column([w.kv_heads for w in works]),
        "head_dim": column([w.head_dim for w in works]),
        "window": column([w.window or 0.0 for w in works]),
        "causal": column([float(w.causal) for w in works]),
    }  # fmt: skip
    kernels = [
        _ATTENTION_LABELS[c.ATTENTION_GENERATION.get(w.kernel, "flash2"), gpu.architecture]
        for w in works
    ]
    labels = {
        "op": _constant("attention", len(works)),
        "framework": _object_column([k[0] for k in kernels]),
        "kernel": _object_column([k[1] for k in kernels]),
        "dtype": _constant("bf16", len(works)),
    }
    found = _price(_FAMILY["attention"], shape, works, gpu, bundle, analytic, labels)
    if found is None:
        return None
    # Backward was not measured: forward times the ratio of the analytic model.
    times = column([c.ATTENTION_BACKWARD if w.direction is Pass.BACKWARD else 1.0 for w in works])
    sigma = np.where(times[:, 0] > 1.0, np.hypot(found[1], _BACKWARD_SIGMA), found[1])
    return found[0] * times, sigma, found[2]


# Backward over forward time of fused attention lies between 2.2 and 3.5 (2.5 times the FLOPs at
# 70-115 % of the forward rate, FlashAttention 2 and 3 papers).
_BACKWARD_SIGMA = 0.15


def _is_convolution(work: Work, gpu: Gpu) -> bool:
    return (
        isinstance(work, Convolution)
        and work.dtype is Dtype.FP32
        and work.groups == 1
        and work.height == work.width
        and not work.channels_last
    )


def _price_convolution(
    works: Sequence[Convolution], gpu: Gpu, bundle: KernelBundle, analytic: Column
) -> _Priced | None:
    shape = {
        "batch": column([w.batch for w in works]),
        "in_channels": column([float(w.in_channels) for w in works]),
        "out_channels": column([float(w.out_channels) for w in works]),
        "kernel_size": column([float(w.kernel) for w in works]),
        "image_size": column([float(w.height) for w in works]),
        "stride": column([float(w.stride) for w in works]),
        "padding": column([float(w.kernel // 2) for w in works]),
    }
    labels = {"op": _constant("conv2d", len(works))}
    return _price(_FAMILY["convolution"], shape, works, gpu, bundle, analytic, labels)


def _price(
    family: Family,
    shape: dict[str, Column],
    works: Sequence[Any],
    gpu: Gpu,
    bundle: KernelBundle,
    analytic: Column,
    labels: dict[str, Labels],
) -> _Priced | None:
    """Price works of one family, dtype by dtype; amounts of shape (n, scenarios) are flattened."""
    wide = analytic.shape
    flat = {k: np.maximum(np.broadcast_to(v, wide), 1.0).ravel() for k, v in shape.items()}
    for name in family.may_be_zero:
        flat[name] = np.broadcast_to(shape[name], wide).ravel()
    is_idle = np.any(
        [np.broadcast_to(v, wide) == 0 for k, v in shape.items() if k not in family.may_be_zero],
        axis=0,
    )
    own = {"dtype": _object_column([str(w.dtype) for w in works]), **labels}
    text = {k: np.broadcast_to(v, wide).ravel() for k, v in own.items()}
    names = np.full(analytic.size, gpu.name, dtype=object)
    rows = make_rows(flat, names, text, {gpu.name: gpu})
    seconds, sigma = analytic.ravel().copy(), np.zeros(analytic.size)
    warnings: list[str] = []
    for dtype in sorted(set(text["dtype"].tolist())):
        mine = np.flatnonzero(text["dtype"] == dtype)
        model, priced = choose_model(bundle, family, rows.take(mine))
        if model is None:
            return None
        predicted = model.predict(priced)
        slowdown = 1.0 if dtype == Dtype.FP32 else _IN_RUN.get(gpu.architecture, 1.0)
        seconds[mine] = np.exp(predicted.log_seconds) * slowdown
        sigma[mine] = sigma_of(predicted.half_width)
        warnings.extend(_beyond(model, priced))
        if predicted.is_transfer.any():
            warnings.append(
                f"{gpu.title} was not measured for {family.name} {dtype}: its data sheet is used"
            )
    out = np.where(is_idle, analytic, seconds.reshape(wide))
    return out, sigma.reshape(wide).max(axis=1), warnings  # fmt: skip


def _beyond(model: LearnedModel, rows: Rows) -> list[str]:
    """One sentence for each shape column that leaves the measured range."""
    out = []
    for name, (low, high) in model.ranges.items():
        least, greatest = float(rows.shape[name].min()), float(rows.shape[name].max())
        if least < low or greatest > high:
            value = greatest if greatest > high else least
            out.append(
                f"{model.name}: {name} {value:g} is outside the measured {low:g} to {high:g}"
            )
    return out


def _is_bandwidth_bound(work: Work, gpu: Gpu) -> bool:
    return isinstance(work, Memory | OptimizerStep)


def _price_bandwidth(
    works: Sequence[Memory | OptimizerStep], gpu: Gpu, bundle: KernelBundle, analytic: Column
) -> _Priced | None:
    share = bandwidth_share(bundle, gpu)
    if share is None:
        return None
    launches = column([w.launches for w in works]) * c.KERNEL_FLOOR_S
    moving = (analytic - launches) * c.BANDWIDTH_FRACTION / share
    sigma = np.full(len(works), c.LOG_SIGMA["memory"])
    return moving + launches, sigma, []


def bandwidth_share(bundle: KernelBundle, gpu: Gpu) -> float | None:
    """Measured share of nominal bandwidth of elementwise kernels, None where none was measured."""
    model = bundle.model("elementwise")
    if model is None:
        return None
    for op in _BANDWIDTH_OPS:
        for kind in model.kinds.kinds:
            if kind.gpu == gpu.name and kind.op == op:
                return min(float(np.exp(kind.values[1])), _LARGEST_SHARE)
    return None


def _constant(text: str, count: int) -> Labels:
    return np.full((count, 1), text, dtype=object)


def _object_column(texts: Sequence[str]) -> NDArray[np.object_]:
    out = np.empty((len(texts), 1), dtype=object)
    out[:, 0] = texts
    return out


_PRICERS: tuple[tuple[Callable[[Work, Gpu], bool], Callable[..., _Priced | None]], ...] = (
    (_is_gemm, _price_gemm),
    (_is_attention, _price_attention),
    (_is_convolution, _price_convolution),
    (_is_bandwidth_bound, _price_bandwidth),
)
