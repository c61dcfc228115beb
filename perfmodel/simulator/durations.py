"""Durations of a priced Program, arranged by class and by lane for the evaluators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InputError
from perfmodel.program.priced import PricedProgram
from perfmodel.simulator.compile import NOBODY, Graph

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Durations:
    """Seconds of every task by class, arrays of shape (num_tasks, scenarios[, ranks or 1]).

    `device` is the time on the task's lane, `issue` the time its launch occupies a thread. A task
    of several launches is issued evenly: its first kernel after `issue` / launches.
    """

    device: tuple[Floats, ...]
    issue: tuple[Floats, ...]
    scenarios: int

    def take(self, chosen: NDArray[np.int64]) -> Durations:
        """The same of some of the scenarios."""
        return Durations(
            device=tuple(d[:, chosen] for d in self.device),
            issue=tuple(d[:, chosen] for d in self.issue),
            scenarios=len(chosen),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaneDurations:
    """Seconds of the items of one lane, arrays of shape (num_items, scenarios[, ranks or 1]).

    `work` is the time an item occupies its lane. Streams only: an item starts no earlier than
    `release` after its launch call returned, and ends no earlier than `tail` after it;
    `is_lumped[p]` says that item p is several launches, the only case in which `tail` binds.
    """

    work: Floats
    release: Floats
    tail: Floats
    is_lumped: list[bool]

    def take(self, chosen: NDArray[np.bool_]) -> LaneDurations:
        """The same of some of the scenarios."""
        return LaneDurations(
            work=self.work[:, chosen],
            release=self.release[:, chosen],
            tail=self.tail[:, chosen],
            is_lumped=self.is_lumped,
        )


def has_rank_axis(priced: PricedProgram) -> bool:
    """Whether ranks of one class differ in any duration."""
    return any(np.ndim(a) == 3 for a in (*priced.device_s, *priced.dispatch_s))


def durations_of(priced: PricedProgram, graph: Graph) -> Durations:
    """Check shapes and values and give all arrays the same number of axes.

    Raises
    ------
    InputError
        If a shape does not fit the program or a duration is negative, NaN or infinite.
    """
    num = len(priced.program.classes)
    if len(priced.device_s) != num or len(priced.dispatch_s) != num:
        raise InputError(f"durations are given for {len(priced.device_s)} of {num} rank classes")
    widths = [np.shape(a)[1:2] for a in (*priced.device_s, *priced.dispatch_s)]
    scenarios = max((n for width in widths for n in width), default=1)
    device = tuple(_checked(priced.device_s, c, graph, scenarios) for c in range(num))
    dispatch = tuple(_checked(priced.dispatch_s, c, graph, scenarios) for c in range(num))
    return Durations(device=device, issue=dispatch, scenarios=scenarios)


def _checked(arrays: tuple[Floats, ...], c: int, graph: Graph, scenarios: int) -> Floats:
    cls = graph.program.classes[c]
    seconds = np.asarray(arrays[c], dtype=np.float64)
    shape, num = seconds.shape, len(cls.tasks)
    fits = len(shape) in (2, 3) and shape[0] == num and shape[1] in (1, scenarios)
    if not fits or (len(shape) == 3 and shape[2] not in (1, cls.multiplicity)):
        raise InputError(
            f"durations of class {cls.name!r} have shape {shape}; expected ({num}, {scenarios}) "
            f"or ({num}, {scenarios}, {cls.multiplicity})"
        )
    # One pass finds every bad value: NaN fails both comparisons.
    if num and not (seconds.min() >= 0.0 and seconds.max() < np.inf):
        bad = int(np.argwhere(~((seconds >= 0) & (seconds < np.inf)))[0][0])
        raise InputError(f"task {cls.tasks[bad].name!r} of class {cls.name!r} has no duration >= 0")
    if shape[1] != scenarios:
        seconds = np.broadcast_to(seconds, (num, scenarios, *shape[2:]))
    return seconds[:, :, None] if graph.unfold and len(shape) == 2 else seconds


def lane_durations(graph: Graph, durations: Durations) -> list[LaneDurations]:
    """Arrange durations by lane."""
    latency = graph.program.launch_latency_s
    pieces = []
    for lane in graph.lanes:
        places = graph.places[lane.owner]
        device, issue = durations.device[lane.owner], durations.issue[lane.owner]
        if lane.is_host:
            ran = places.is_host.reshape(-1, *(1,) * (device.ndim - 1))
            work = np.where(ran, device, issue)[lane.tasks]
            empty = np.zeros((0, *work.shape[1:]))
            pieces.append(LaneDurations(work=work, release=empty, tail=empty, is_lumped=[]))
            continue
        work = device[lane.tasks]
        launches = places.launches[lane.tasks].reshape(-1, *(1,) * (device.ndim - 1))
        pieces.append(
            LaneDurations(
                work=work,
                release=latency - issue[lane.tasks] * (1.0 - 1.0 / launches),
                tail=latency + work / launches,
                is_lumped=_lumped(lane.issuer, launches),
            )
        )
    return pieces


def _lumped(issuer: list[int], launches: Floats) -> list[bool]:
    several = (launches.ravel() > 1.0).tolist()
    if not any(several):
        return [False] * len(issuer)
    return [many and thread != NOBODY for many, thread in zip(several, issuer, strict=True)]
