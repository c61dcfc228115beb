"""Amounts of many works as columns: (n, 1), or (n, scenarios) where some amount is an array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.program.work import Amount

Column = NDArray[np.float64]


def column(values: Sequence[Amount]) -> Column:
    """Stack n amounts, scalars or (scenarios,) arrays, into shape (n, 1) or (n, scenarios)."""
    try:
        flat = np.array(values, dtype=float)
    except ValueError:  # scalars and arrays mixed
        rows = [np.atleast_1d(np.asarray(v, dtype=float)) for v in values]
        width = max(len(r) for r in rows)
        return np.stack([np.broadcast_to(r, (width,)) for r in rows])
    return flat[:, None] if flat.ndim == 1 else flat


def per_work(values: Sequence[float]) -> Column:
    """Stack one plain number a work into shape (n, 1)."""
    return np.array(values, dtype=float)[:, None]
