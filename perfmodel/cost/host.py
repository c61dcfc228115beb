"""Host work: operators dispatched by a framework thread, and durations known from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.protocol import Estimate
from perfmodel.errors import InputError
from perfmodel.hardware.records import Cluster
from perfmodel.program.work import Amount, Fixed, HostDispatch, Work

# Cost per operator differs by CPU and release by about this much (10-15 us against 5-8 us,
# notes on published runs); a given duration is taken as known.
_DISPATCH_LOG_SIGMA = 0.3


class HostModel:
    """Prices `HostDispatch` and `Fixed`: the numbers they carry."""

    def handles(self, work: Work) -> bool:
        """Whether `work` is host work."""
        return isinstance(work, HostDispatch | Fixed)

    def estimate(self, works: Sequence[Work], cluster: Cluster) -> Estimate:
        """Seconds of each work; the cluster plays no part.

        Raises
        ------
        InputError
            If a work is of another kind.
        """
        amounts = [np.atleast_1d(np.asarray(_seconds(work), dtype=float)) for work in works]
        width = max((len(a) for a in amounts), default=1)
        seconds: NDArray[np.float64] = np.zeros((len(works), width))
        for row, amount in enumerate(amounts):
            seconds[row] = amount
        is_dispatch = np.array([isinstance(w, HostDispatch) for w in works], dtype=bool)
        return Estimate(seconds=seconds, log_sigma=np.where(is_dispatch, _DISPATCH_LOG_SIGMA, 0.0))


def _seconds(work: Work) -> Amount:
    if isinstance(work, HostDispatch):
        return work.num_ops * work.op_s
    if isinstance(work, Fixed):
        return work.seconds
    raise InputError(f"{type(work).__name__} is not host work")
