"""What a GPU achieves in one kind of kernel: three numbers, fitted with priors.

time = ((compute / c)^p + (traffic / (bandwidth b))^p)^(1/p) + floor, with c the share of the
nominal peak, b the share of the nominal bandwidth, floor in seconds, p = `OVERLAP_POWER`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.kernels.physics import OVERLAP_POWER, Work
from perfmodel.cost.kernels.rows import Vector

# Where nothing is known: two thirds of peak, 0.75 of bandwidth (the GEMM fit of `constants`), 3 us.
DEFAULT = np.log([0.65, 0.75, 3e-6])
# How far a GPU may lie from the mean of its kind, in ln: spread between architectures in the
# kernel tables (peak 0.4-1.0, bandwidth 0.6-1.1 with warm caches, floors 2-10 us).
PRIOR_SIGMA = np.array([0.4, 0.4, 0.7])
_RESIDUAL_SIGMA = 0.15  # spread of kernels around this form: what a row is worth against a prior
_HUBER = 1.5  # residuals beyond so many sigmas count linearly
_STEPS = 25
_LARGEST_STEP = 0.5
_BOUNDS = (np.log([0.02, 0.05, 2e-7]), np.log([2.0, 4.0, 2e-3]))


def log_seconds(work: Work, bytes_per_s: Vector, values: NDArray[np.float64]) -> Vector:
    """Ln of the time of each kernel; `values` has shape (n, 3) or (3,)."""
    return _parts(work.compute_s, work.num_bytes / bytes_per_s, values)[0]


def _parts(
    compute: Vector, traffic: Vector, values: NDArray[np.float64]
) -> tuple[Vector, Vector, Vector, Vector]:
    """Ln time and its derivatives by the three values."""
    c, b, f = np.moveaxis(np.asarray(values), -1, 0)
    log_c, log_b = np.log(compute) - c, np.log(traffic) - b
    top = np.maximum(log_c, log_b)
    power_c = np.exp(OVERLAP_POWER * (log_c - top))
    power_b = np.exp(OVERLAP_POWER * (log_b - top))
    busy = np.exp(top) * (power_c + power_b) ** (1.0 / OVERLAP_POWER)
    floor = np.exp(f)
    total = busy + floor
    share = power_c / (power_c + power_b) * busy / total
    return np.log(total), -share, -(busy / total - share), floor / total


def fit(
    work: Work,
    bytes_per_s: Vector,
    log_measured: Vector,
    prior: NDArray[np.float64],
    weight: float = 1.0,
) -> NDArray[np.float64]:
    """Most likely values for rows of one kind, robust to outliers.

    Parameters
    ----------
    work, bytes_per_s, log_measured
        Rows of one GPU and kind, and ln of their measured seconds, (n,).
    prior : ndarray of float64, shape (3,)
        Where the values lie if the rows say nothing.
    weight : float
        What one row counts; below 1 where rows are many and alike.
    """  # fmt: skip
    traffic = work.num_bytes / bytes_per_s
    values = prior.copy()
    precision = np.diag(PRIOR_SIGMA**-2.0)
    for _ in range(_STEPS):
        predicted, *slopes = _parts(work.compute_s, traffic, values)
        jacobian = np.column_stack(slopes)
        residual = log_measured - predicted
        size = np.abs(residual) / (_HUBER * _RESIDUAL_SIGMA)
        w = weight * _RESIDUAL_SIGMA**-2.0 / np.maximum(size, 1.0)
        left = (jacobian * w[:, None]).T @ jacobian + precision
        right = jacobian.T @ (w * residual) + precision @ (prior - values)
        step = np.clip(np.linalg.solve(left, right), -_LARGEST_STEP, _LARGEST_STEP)
        values = np.clip(values + step, *_BOUNDS)
        if np.max(np.abs(step)) < 1e-4:
            break
    return values
