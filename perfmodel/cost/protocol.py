"""The one extension point of pricing: a CostModel turns work records into seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from perfmodel.hardware.records import Cluster
from perfmodel.program.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Latencies of n works.

    seconds : float64, shape (n, scenarios) - scenarios is 1 where no amount is an array
    log_sigma : float64, shape (n,) - standard deviation of ln(true / predicted)
    warnings : one sentence for each extrapolation or missing model
    """

    seconds: NDArray[np.float64]
    log_sigma: NDArray[np.float64]
    warnings: tuple[str, ...] = field(default=())


class CostModel(Protocol):
    """Prices the kinds of work it handles; pure, vectorised, deterministic."""

    def handles(self, work: Work) -> bool:
        """Whether this model prices `work`."""
        ...

    def estimate(self, works: Sequence[Work], cluster: Cluster) -> Estimate:
        """Seconds and their uncertainty for `works`, all of which it handles, on `cluster`."""
        ...
