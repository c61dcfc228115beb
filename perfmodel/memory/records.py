"""The memory estimate of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """What memory is spent on."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    ACTIVATIONS = "activations"
    LOGITS = "logits"
    TABLES = "tables"  # embedding tables of recommenders, with their optimiser state
    CACHE = "cache"  # device cache of tables that stay in host memory
    BUFFERS = "buffers"  # communication buckets, gathered units
    FRAMEWORK = "framework"  # CUDA context, libraries, communicators
    ALLOCATOR = "allocator"  # rounding and fragmentation


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Peak device memory, all amounts in bytes.

    `by_rank` maps a class of ranks (a pipeline stage, a rank with its own tables) to its peak;
    `by_part` splits the peak of the fullest class. `interval` holds the true peak with 80 %
    probability; `probability_fits` is that of staying within `capacity_bytes`.
    """

    peak_bytes: float
    capacity_bytes: float
    by_rank: Mapping[str, float]
    by_part: Mapping[str, float]
    interval: tuple[float, float]
    log_sigma: float
    probability_fits: float
    assumptions: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the run more likely fits than not."""
        return self.probability_fits >= 0.5
