"""What a few measured kernels say beyond three efficiencies: a smooth correction near them.

A Gaussian process over log2 of the sizes and of the time itself. Far from every measured kernel it
says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.kernels.rows import Rows, Vector

# By cross-validation on GPUs with twenty rows each: correlation over 3 doublings of a size, a
# spread of 15 % to explain, of which 8 % is not smooth.
_LENGTH = 3.0
_SPREAD = 0.15
_ROUGHNESS = 0.08


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Kernels it was fitted on, (k, d), and their weights, (k,); nested tuples, for storage."""

    points: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]

    def log_factor(self, points: NDArray[np.float64]) -> Vector:
        """Correction of ln seconds at `points`, shape (n, d)."""
        near = _covariance(points, np.array(self.points))
        return np.asarray(near @ np.array(self.weights))


def coordinates(rows: Rows, log_seconds: Vector) -> NDArray[np.float64]:
    """Where kernels lie: log2 of each shape column (zeros count as a half) and of the time."""
    sizes = [np.log2(np.maximum(values, 0.5)) for values in rows.shape.values()]
    return np.column_stack([*sizes, log_seconds / np.log(2.0)])


def fit(points: NDArray[np.float64], residual: Vector) -> tuple[Correction, Vector]:
    """Correction that follows `residual` (ln measured over predicted) at `points`.

    Returns
    -------
    correction : Correction
    left_out : ndarray of float64, shape (k,)
        Error at each point of the correction fitted on the others.
    """
    covariance = _covariance(points, points) + _ROUGHNESS**2 * np.eye(len(points))
    inverse = np.linalg.inv(covariance)
    weights = inverse @ residual
    stored = Correction(
        points=tuple(tuple(float(v) for v in np.round(p, 4)) for p in points),
        weights=tuple(float(v) for v in np.round(weights, 6)),
    )
    return stored, np.asarray(weights / np.diag(inverse))


def _covariance(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    distance = ((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2)
    return np.asarray(_SPREAD**2 * np.exp(-0.5 * distance / _LENGTH**2))
