"""Kernels and collectives of one rank that slow each other, and collectives that share a link.

Both depend on what runs when, which depends on them: a fixed point. Each pass simulates, measures
for every task how much work it lost to what ran beside it, adds the time to make up for it, and
simulates again, until nothing changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InputError
from perfmodel.program.records import Overlap, RankClass, TaskKind
from perfmodel.simulator.activity import Activity, wrapped
from perfmodel.simulator.compile import Graph
from perfmodel.simulator.durations import Durations
from perfmodel.simulator.timeline import Timeline

Floats = NDArray[np.float64]

# A pass that changes no duration by more than this share of the iteration is the last one.
SETTLED = 1e-6
# Nearly all programs settle in under ten; after those, steps are halved in case they go back and
# forth. The few left over jump between steady states whose periods differ by parts in 10^5.
MAX_PASSES = 25
FULL_STEPS = 10


def is_contended(graph: Graph) -> bool:
    """Whether anything slows anything down.

    Raises
    ------
    InputError
        If a slowdown is negative.
    """
    overlap = graph.program.overlap
    if overlap.compute_slowdown < 0 or overlap.comm_slowdown < 0:
        raise InputError("slowdowns of overlapping work must be >= 0")
    shared = [n for n in Counter(overlap.shared_links.values()).values() if n > 1]
    return bool(overlap.compute_slowdown or overlap.comm_slowdown or shared)


def contended(graph: Graph, base: Durations, run: Callable[[Durations], Timeline]) -> Timeline:
    """Simulate with slowdowns; `is_settled` is False where the passes did not settle.

    While both run, a kernel on a compute lane works at 1 / (1 + `compute_slowdown`) of its rate
    and a collective, while it transfers, at 1 / (1 + `comm_slowdown`); collectives that transfer
    on n lanes of one link at the same time get 1 / n each. A collective that only waits for other
    ranks disturbs nobody. A launch-bound task is active for the share of time it works.
    """
    lanes = [_Lanes(cls, graph.program.overlap) for cls in graph.program.classes]
    scenarios = np.arange(base.scenarios)  # that still change
    found = [
        _full(d, cls, graph) for d, cls in zip(base.device, graph.program.classes, strict=True)
    ]
    for number in range(MAX_PASSES):
        own = base.take(scenarios)
        timeline = run(replace(own, device=tuple(f[:, scenarios] for f in found)))
        step = 1.0 if number < FULL_STEPS else 0.5
        moves = np.zeros(len(scenarios), dtype=bool)
        for c, seconds in enumerate(own.device):
            lost, pace = _lost(lanes[c], timeline, c)
            current = found[c][:, scenarios]
            missing = seconds + lost - current
            limit = SETTLED * timeline.iteration_s.reshape(-1, *(1,) * (missing.ndim - 2))
            others = tuple(n for n in range(missing.ndim) if n != 1)
            moves |= (np.abs(missing) > limit).any(axis=others)
            found[c][:, scenarios] = np.maximum(seconds, current + step * missing / pace)
        still = scenarios[moves]
        if not len(still):
            break
        scenarios = still
    if len(timeline.iteration_s) < base.scenarios or len(still):
        timeline = run(replace(base, device=tuple(found)))
    is_settled = timeline.is_settled.copy()
    is_settled[still] = False
    return replace(timeline, is_settled=is_settled)


def _full(device: Floats, cls: RankClass, graph: Graph) -> Floats:
    """A copy with the axis of ranks, if there is one, at full length."""
    ranks = (cls.multiplicity,) if graph.unfold else ()
    return np.broadcast_to(device, (*device.shape[:2], *ranks)).copy()


@dataclass(frozen=True, slots=True)
class _Share:
    """Collectives that share one link (or none): columns of the selected tasks, and their lanes."""

    columns: NDArray[np.int64]
    is_shared: bool


class _Lanes:
    """Which tasks of a class compute, communicate, and share a link."""

    def __init__(self, cls: RankClass, overlap: Overlap) -> None:
        self.overlap = overlap
        compute = [
            t
            for t, task in enumerate(cls.tasks)
            if task.kind is TaskKind.DEVICE and task.lane in overlap.compute_lanes
        ]
        comm = [t for t, task in enumerate(cls.tasks) if task.kind is TaskKind.COLLECTIVE]
        self.tasks = np.array(compute + comm, dtype=np.int64)
        self.is_comm = np.arange(len(self.tasks)) >= len(compute)
        by_link: dict[str | None, list[int]] = {}
        for column, t in enumerate(comm, start=len(compute)):
            by_link.setdefault(overlap.shared_links.get(cls.tasks[t].lane), []).append(column)
        self.shares = [
            _Share(np.array(columns, dtype=np.int64), link is not None)
            for link, columns in by_link.items()
        ]

    def loss(
        self, start: Floats, end: Floats, active: Floats, copies: int
    ) -> tuple[Floats, Floats]:
        """Time lost by each task and its pace at its end, shape (rows, tasks of the first copy)."""
        num = len(self.tasks)
        activity = Activity(start, end)
        is_comm = np.tile(self.is_comm, copies)
        lost, pace = np.zeros((len(start), num)), np.ones((len(start), num))

        def fill(columns: NDArray[np.int64], rate: Floats) -> None:
            share = active[:, columns]
            lost[:, columns] = activity.over_intervals(rate, columns) * share
            pace[:, columns] = 1.0 - activity.before_ends(rate, columns) * share

        ratio = self.overlap.compute_slowdown / (1.0 + self.overlap.compute_slowdown)
        if ratio:
            beside_comm = activity.level(is_comm.astype(float)) > 0.5
            fill(np.flatnonzero(~self.is_comm), ratio * beside_comm.astype(np.float64))
        beside_compute = np.clip(activity.level(active * ~is_comm), 0.0, 1.0)
        slow = 1.0 + self.overlap.comm_slowdown * beside_compute
        for share in self.shares:
            sharing: Floats = np.ones(1)
            if share.is_shared:
                members = np.isin(np.arange(num), share.columns).astype(float)
                level = activity.level(np.tile(members, copies))
                sharing = np.maximum(np.rint(level), 1.0)
            fill(share.columns, 1.0 - 1.0 / (slow * sharing))
        return lost, pace


def _lost(lanes: _Lanes, timeline: Timeline, c: int) -> tuple[Floats, Floats]:
    """By task of class c: time lost to what ran beside it, and its pace when it ended.

    The pace says how much longer a task gets for a second of missing work: where what is beside it
    goes on, one step finds its end. It is 1 where the task does not fill its interval.
    """
    shape = timeline.start_s[c].shape
    lost, pace = np.zeros(shape), np.ones(shape)
    if not lanes.tasks.size:
        return lost, pace
    rows = (len(lanes.tasks), -1)
    end = timeline.end_s[c][lanes.tasks].reshape(rows).T
    start = (timeline.start_s[c] + timeline.wait_s[c])[lanes.tasks].reshape(rows).T
    work = np.broadcast_to(timeline.device_s[c], shape)[lanes.tasks].reshape(rows).T
    length = np.where(end > start, end - start, 1.0)
    share = np.minimum(work / length, 1.0)
    active = np.where(lanes.is_comm, 1.0, share)
    period = np.repeat(timeline.iteration_s, start.shape[0] // shape[1])
    copies: tuple[int, ...] = (0,)
    spans = end.max(axis=1) - start.min(axis=1)
    if not timeline.graph.program.barrier and (spans > period * (1 + SETTLED)).any():
        copies = (0, -1, 1)
        start, end = wrapped(start, end, period, copies)
    found = lanes.loss(start, end, np.tile(active, (1, len(copies))), len(copies))
    fills = share > 1.0 - SETTLED
    lost[lanes.tasks] = found[0].T.reshape(-1, *shape[1:])
    pace[lanes.tasks] = np.where(fills, found[1], 1.0).T.reshape(-1, *shape[1:])
    return lost, pace
