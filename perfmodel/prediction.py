"""The Prediction: what comes out of the flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike

from perfmodel.memory.records import MemoryEstimate
from perfmodel.program.work import Cause
from perfmodel.simulator.timeline import CriticalPath, Timeline

COMMUNICATION = (
    Cause.TP_COMM, Cause.CP_COMM, Cause.EP_COMM, Cause.PP_COMM, Cause.DP_COMM,
    Cause.SHARD_COMM, Cause.EMBEDDING_COMM, Cause.COPY,
)  # fmt: skip
"""Causes that are exposed communication where they lie on the critical path."""

_GROUPS: dict[str, tuple[Cause, ...]] = {
    "compute": (Cause.GEMM, Cause.ATTENTION, Cause.CONVOLUTION, Cause.EXPERTS),
    "memory bandwidth": (
        Cause.ELEMENTWISE, Cause.EMBEDDING, Cause.INTERACTION, Cause.LOGITS, Cause.OPTIMIZER,
    ),
    "communication": COMMUNICATION,
    "host": (Cause.HOST, Cause.HOST_STEP, Cause.IDLE),
    "input pipeline": (Cause.INPUT,),
    "waiting for other ranks": (Cause.WAIT,),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Rate of training in the unit users of the model speak."""

    value: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Iteration time in seconds with its 80 % interval, memory, and why.

    `breakdown_s` splits the critical path by cause and sums to the iteration. `mfu` is model
    FLOPs over dense peak (None where the peak of the compute format is unknown); `hfu` counts
    recomputation too.
    """

    iteration_time_s: float
    interval_s: tuple[float, float]
    throughput: Throughput
    memory: MemoryEstimate
    breakdown_s: Mapping[Cause, float]
    critical_path: CriticalPath
    exposed_communication_s: float
    bound_by: str
    mfu: float | None
    hfu: float | None
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    timeline: Timeline

    @property
    def fits(self) -> bool:
        """Whether the run fits into device memory, more likely than not."""
        return self.memory.fits

    def to_perfetto(self, path: str | PathLike[str]) -> None:
        """Write the timeline as a trace that opens in Perfetto."""
        from perfmodel.trace.perfetto import write_perfetto

        write_perfetto(self.timeline, path)


def bound_by(breakdown_s: Mapping[Cause, float]) -> str:
    """The group of causes with the largest share of the critical path."""
    totals = {
        name: sum(breakdown_s.get(cause, 0.0) for cause in causes)
        for name, causes in _GROUPS.items()
    }
    return max(totals, key=lambda name: totals[name])
