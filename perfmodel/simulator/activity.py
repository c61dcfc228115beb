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
        self._lengths = np.diff(np.take_along_axis(times, self._order, axis=1), axis=1)
        self._num = start.shape[1]

    def level(self, weight: Floats) -> Floats:
        """Total weight of what runs after each sorted end, shape (rows, 2 intervals - 1).

        `weight` has shape (intervals,) or (rows, intervals).
        """
        weights = np.broadcast_to(weight, (len(self._order), self._num))
        steps = np.concatenate([-weights, weights], axis=1)
        return np.cumsum(np.take_along_axis(steps, self._order, axis=1), axis=1)[:, :-1]

    def total(self, rate: Floats) -> Floats:
        """Integral of `rate`, shaped as a level, over all time: (rows,)."""
        whole: Floats = (rate * self._lengths).sum(axis=1)
        return whole

    def over_intervals(self, rate: Floats) -> Floats:
        """Integral of `rate` over each interval, shape (rows, intervals)."""
        sums = np.zeros(self._order.shape)
        np.cumsum(rate * self._lengths, axis=1, out=sums[:, 1:])
        at_ends = self._unsorted(sums)
        return at_ends[:, : self._num] - at_ends[:, self._num :]

    def before_ends(self, rate: Floats) -> Floats:
        """`rate` just before the end of each interval, shape (rows, intervals)."""
        after_one_earlier = np.zeros(self._order.shape)
        after_one_earlier[:, 1:] = rate
        return self._unsorted(after_one_earlier)[:, : self._num]

    def _unsorted(self, values: Floats) -> Floats:
        given = np.empty_like(values)
        np.put_along_axis(given, self._order, values, axis=1)
        return given


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
