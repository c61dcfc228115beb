"""Efficiencies by kind (GPU, dtype, operator), and what stands in where a kind was not measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.kernels.correction import Correction
from perfmodel.cost.kernels.efficiency import DEFAULT
from perfmodel.cost.kernels.rows import Labels, Rows

# How alike generations are: steps on this line; a step halves the weight of a GPU as a stand-in.
_GENERATION = {
    "pascal": 0.0, "volta": 1.0, "turing": 2.0, "ampere": 3.0, "ada": 4.0, "hopper": 5.0,
    "blackwell": 6.0, "blackwell ultra": 6.0, "cdna1": 3.0, "cdna2": 3.5, "cdna3": 5.0,
    "cdna4": 6.0,
}  # fmt: skip
_DEFAULT_GENERATION = 4.0
_STEP_DECAY = 0.7  # per generation, in ln
_OTHER_VENDOR = 5.0  # generations that another vendor's part is away
_OTHER_DTYPE = 2.0  # generations that another dtype is away; only where the own one is missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One measured kind.

    `is_adapted` where a few rows only moved what was predicted before; `correction` and
    `half_width` (of the 80 % interval in ln) are what those rows say besides.
    """

    gpu: str
    silicon: str
    architecture: str
    dtype: str
    op: str
    values: tuple[float, float, float]
    rows: int
    is_adapted: bool = False
    correction: Correction | None = None
    half_width: float | None = None

    def rows_of(self, rows: Rows) -> NDArray[np.bool_]:
        """Which of `rows` are of this kind."""
        labels = rows.labels
        mine = (labels["gpu"] == self.gpu) & (labels["dtype"] == self.dtype)
        return np.asarray(mine & (labels["op"] == self.op), dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class KindTable:
    """All kinds of one model."""

    kinds: tuple[Kind, ...]

    def lookup(self, rows: Rows) -> tuple[NDArray[np.float64], Labels, NDArray[np.bool_]]:
        """Efficiencies of each row, the GPU that stands for it, and whether that one is known.

        Returns
        -------
        values : float64, shape (n, 3)
        nearest : object (str), shape (n,)
            The GPU itself, or a measured one of the same silicon; "" where there is none.
        is_known : bool, shape (n,)
            Whether the GPU or its silicon was measured in full.
        """
        keys: dict[tuple[str, ...], int] = {}
        names = ("gpu", "silicon", "architecture", "dtype", "op")
        columns = [rows.labels[n] for n in names]
        inverse = np.array(
            [keys.setdefault(k, len(keys)) for k in zip(*columns, strict=True)], dtype=np.int64
        )
        found = [self._find(*key) for key in keys]
        if not found:
            return np.zeros((0, 3)), np.array([], dtype=object), np.zeros(0, dtype=bool)
        values = np.array([f[0] for f in found])[inverse]
        nearest = np.array([f[1] for f in found], dtype=object)[inverse]
        return values, nearest, np.array([f[2] for f in found], dtype=bool)[inverse]

    def _find(
        self, gpu: str, silicon: str, architecture: str, dtype: str, op: str
    ) -> tuple[NDArray[np.float64], str, bool]:
        same = [k for k in self.kinds if k.dtype == dtype and k.op == op]
        for kind in same:
            if kind.gpu == gpu:
                return np.array(kind.values), gpu, not kind.is_adapted
        siblings = [k for k in same if k.silicon == silicon and not k.is_adapted]
        if siblings:
            best = max(siblings, key=lambda k: k.rows)
            return np.array(best.values), best.gpu, True
        return self.prior(architecture, dtype, op), "", False

    def prior(self, architecture: str, dtype: str, op: str) -> NDArray[np.float64]:
        """What to expect of a GPU nobody measured: the mean of the others, nearer ones first."""
        pool = [k for k in self.kinds if k.op == op and k.dtype == dtype]
        pool = pool or [k for k in self.kinds if k.dtype == dtype]
        pool = pool or list(self.kinds)
        if not pool:
            return DEFAULT.copy()
        crowd: dict[str, int] = {}
        for kind in pool:
            crowd[kind.silicon] = crowd.get(kind.silicon, 0) + 1
        weight = np.array(
            [
                np.exp(-_STEP_DECAY * _distance(kind, architecture, dtype)) / crowd[kind.silicon]
                for kind in pool
            ]
        )
        table = np.array([kind.values for kind in pool])
        return np.asarray((table * weight[:, None]).sum(axis=0) / weight.sum())


def _distance(kind: Kind, architecture: str, dtype: str) -> float:
    own = _GENERATION.get(architecture, _DEFAULT_GENERATION)
    other = _GENERATION.get(kind.architecture, _DEFAULT_GENERATION)
    is_other = vendor_of(architecture) != vendor_of(kind.architecture)
    return abs(own - other) + _OTHER_VENDOR * is_other + _OTHER_DTYPE * (kind.dtype != dtype)


def vendor_of(architecture: str) -> str:
    """Whose instruction set an architecture has."""
    if architecture.startswith(("cdna", "rdna")):
        return "amd"
    return "intel" if architecture.startswith("xe") else "nvidia"


def default_labels(rows: Rows, defaults: Mapping[str, tuple[str, str]]) -> Rows:
    """Rows with framework and kernel filled in where the caller named none.

    `defaults` maps "gpu|dtype|op", and "|dtype|op" for GPUs not in it, to the framework and kernel
    that were measured most.
    """
    blank = rows.labels["framework"] == ""
    if not blank.any() or not defaults:
        return rows
    framework, kernel = rows.labels["framework"].copy(), rows.labels["kernel"].copy()
    names = (rows.labels[n] for n in ("gpu", "dtype", "op"))
    for i, (gpu, dtype, op) in enumerate(zip(*names, strict=True)):
        if blank[i]:
            choice = defaults.get(f"{gpu}|{dtype}|{op}") or defaults.get(f"|{dtype}|{op}")
            framework[i], own = choice or ("", "")
            kernel[i] = kernel[i] or own
    return Rows(
        shape=rows.shape, device=rows.device, element_bytes=rows.element_bytes,
        labels={**rows.labels, "framework": framework, "kernel": kernel},
    )  # fmt: skip
