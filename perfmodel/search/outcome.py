"""The figures of a prediction without its timeline: what a search keeps of thousands of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from perfmodel.memory.records import MemoryEstimate
from perfmodel.prediction import Prediction, Throughput
from perfmodel.program.work import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Fields of the same names as a `Prediction`; a timeline takes megabytes, this a kilobyte."""

    iteration_time_s: float
    interval_s: tuple[float, float]
    throughput: Throughput
    memory: MemoryEstimate
    breakdown_s: Mapping[Cause, float]
    exposed_communication_s: float
    bound_by: str
    mfu: float | None
    hfu: float | None
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, prediction: Prediction) -> Outcome:
        """What is kept of a prediction."""
        return cls(**{f.name: getattr(prediction, f.name) for f in fields(cls)})

    @property
    def fits(self) -> bool:
        """Whether the run fits into device memory, more likely than not."""
        return self.memory.fits
