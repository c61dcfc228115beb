"""How many tasks of a rank run at every moment, and integrals of that over tasks.

All rows (scenarios, ranks) at once: the ends of all intervals are sorted once, and what is active
between two of them is a cumulative sum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Activity:
    """Intervals of one rank class.

    Parameters
    ----------
    start, end : ndarray of float64, shape (rows, intervals)
        Times in any order.
    """

    def __init__(self, start: Floats, end: Floats) -> None:
        # Ends before starts at the same time: on one lane the next task follows the last.
        times = np.concatenate([end, start], axis=1)
        self._order = np.argsort(times, axis=1, kind="stable")
        # Flat indices: gathering with them is much faster than with one index an axis.
        first = np.arange(len(times))[:, None] * times.shape[1]
        self._flat = self._order + first
        self._lengths = np.diff(times.ravel()[self._flat], axis=1)
        place = np.empty(times.size, dtype=np.int64)
        place[self._flat] = np.arange(times.size).reshape(times.shape)
        self._place = place.reshape(times.shape)  # where each end, then each start, was sorted
        self._num = start.shape[1]

    def level(self, weight: Floats) -> Floats:
        """Total weight of what runs after each sorted end, shape (rows, 2 intervals - 1).

        `weight` has shape (intervals,) or (rows, intervals).
        """
        steps = np.concatenate([-weight, weight], axis=-1)
        given = steps[self._order] if steps.ndim == 1 else steps.ravel()[self._flat]
        return np.cumsum(given, axis=1)[:, :-1]

    def total(self, rate: Floats) -> Floats:
        """Integral of `rate`, shaped as a level, over all time: (rows,)."""
        whole: Floats = (rate * self._lengths).sum(axis=1)
        return whole

    def over_intervals(self, rate: Floats, chosen: NDArray[np.int64]) -> Floats:
        """Integral of `rate` over each of the chosen intervals, shape (rows, chosen)."""
        sums = np.zeros(self._order.shape)
        np.cumsum(rate * self._lengths, axis=1, out=sums[:, 1:])
        flat = sums.ravel()
        return flat[self._place[:, chosen]] - flat[self._place[:, chosen + self._num]]

    def before_ends(self, rate: Floats, chosen: NDArray[np.int64]) -> Floats:
        """`rate` just before the end of each of the chosen intervals, shape (rows, chosen)."""
        before = np.zeros(self._order.shape)
        before[:, 1:] = rate
        found: Floats = before.ravel()[self._place[:, chosen]]
        return found


def wrapped(
    start: Floats, end: Floats, period: Floats, copies: tuple[int, ...]
) -> tuple[Floats, Floats]:
    """Intervals moved by whole periods to start in [0, period), and copies of them.

    `period` has shape (rows,). The intervals of copy i are columns i n to (i + 1) n.
    """
    span = np.where(period > 0, period, 1.0)[:, None]
    turn = np.floor(start / span) * span
    start, end = start - turn, end - turn
    return (
        np.concatenate([start + k * span for k in copies], axis=1),
        np.concatenate([end + k * span for k in copies], axis=1),
    )
