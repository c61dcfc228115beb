"""Records of the critical path: what sets the iteration time, stretch by stretch."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from perfmodel.program.work import Cause

_Key = TypeVar("_Key", bound=Hashable)


class SegmentKind(StrEnum):
    """What a stretch of the critical path is."""

    WORK = "work"  # a task on its lane; of a collective, the transfer
    HOST = "host"  # a launch by a host thread
    LAUNCH = "launch"  # from the launch to the start of the kernel
    IDLE = "idle"  # nothing explains it: only where iterations have not settled


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One stretch of the critical path, in seconds on the Timeline's clock.

    `duration_s` is its share of one iteration: (`end_s` - `start_s`) / iterations of the path.
    `causes` are fractions that sum to 1. `rank` is a global rank number; of a folded class, the
    first one.
    """

    rank_class: int
    class_name: str
    rank: int
    task: int
    name: str
    lane: str
    kind: SegmentKind
    causes: Mapping[Cause, float]
    start_s: float
    end_s: float
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath:
    """Segments in order of time; their durations sum to the iteration time.

    A collective's wait for other ranks is not on the path: the path follows the last arriver.
    `num_iterations` is how many iterations the repeating chain spans, nearly always 1.
    """

    segments: tuple[Segment, ...]
    iteration_s: float
    num_iterations: int

    def summary(self) -> dict[Cause, float]:
        """Seconds of one iteration by cause, largest first."""
        return _ranked((c, s.duration_s * f) for s in self.segments for c, f in s.causes.items())

    def by_class(self) -> dict[str, float]:
        """Seconds of one iteration by the rank class that spends them, largest first."""
        return _ranked((s.class_name, s.duration_s) for s in self.segments)

    def by_kind(self) -> dict[SegmentKind, float]:
        """Seconds of one iteration by kind of segment, largest first."""
        return _ranked((s.kind, s.duration_s) for s in self.segments)


def _ranked(pairs: Iterable[tuple[_Key, float]]) -> dict[_Key, float]:
    totals: dict[_Key, float] = {}
    for key, seconds in pairs:
        totals[key] = totals.get(key, 0.0) + seconds
    return dict(sorted(totals.items(), key=lambda pair: -pair[1]))
