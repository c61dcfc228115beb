"""Fixed, seeded splits: which rows are left out together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InputError
from perfmodel.measure.kernels.tables import Checked

NUM_FOLDS = 5
PROTOCOLS = ("shape", "group", "gpu", "source")
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: Fibonacci hashing
_FINISH = np.uint64(0xBF58476D1CE4E5B9)  # splitmix64


def folds(part: Checked, protocol: str) -> NDArray[np.object_]:
    """Fold of each row: a shape (or group) is in one fold on all GPUs, a GPU with its siblings.

    Raises
    ------
    InputError
        If `protocol` is not one of `PROTOCOLS`.
    """
    if protocol == "gpu":
        return part.rows.labels["silicon"]
    if protocol == "source":
        return part.source
    if protocol not in PROTOCOLS:
        raise InputError(f"leave-out {protocol!r} is not one of {', '.join(PROTOCOLS)}")
    names = part.family.shape if protocol == "shape" else part.family.group
    number = shape_hash(part, names) % np.uint64(NUM_FOLDS)
    return number.astype(str).astype(object)


def shape_hash(part: Checked, columns: tuple[str, ...], seed: int = 0) -> NDArray[np.uint64]:
    """Hash of the named shape columns, equal for equal shapes everywhere, uint64 (n,)."""
    value = np.full(len(part.index), seed, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for name in columns:
            bits = np.ascontiguousarray(part.rows.shape[name], dtype=np.float64).view(np.uint64)
            value = (value ^ bits) * _MIX
            value ^= value >> np.uint64(29)
        value *= _FINISH
    return value ^ (value >> np.uint64(32))
