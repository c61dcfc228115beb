"""Random valid programs for the properties, and short constructors for hand-computed ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from perfmodel.program.priced import PricedProgram
from perfmodel.program.records import Overlap, Program, RankClass, Task, TaskKind
from perfmodel.program.work import Cause


@dataclass(frozen=True)
class Timed:
    """A task and its durations."""

    task: Task
    device_s: float
    dispatch_s: float = 0.0


def device(
    name: str,
    seconds: float,
    *,
    lane: str = "compute",
    waits: Sequence[int] = (),
    before: Sequence[int] = (),
    issue: float | None = None,
    thread: str = "forward",
    launches: float = 1.0,
) -> Timed:
    """A kernel; `issue` None: nobody launches it."""
    task = Task(
        name=name,
        kind=TaskKind.DEVICE,
        lane=lane,
        waits=tuple(waits),
        waits_previous=tuple(before),
        issued_by=None if issue is None else thread,
        launches=launches,
    )
    return Timed(task, seconds, issue or 0.0)


def collective(
    name: str,
    seconds: float,
    group: str,
    *,
    lane: str = "comm",
    waits: Sequence[int] = (),
    before: Sequence[int] = (),
    issue: float | None = None,
    thread: str = "forward",
    launches: float = 1.0,
) -> Timed:
    """A collective; `issue` None: nobody launches it."""
    task = Task(
        name=name,
        kind=TaskKind.COLLECTIVE,
        lane=lane,
        group=group,
        waits=tuple(waits),
        waits_previous=tuple(before),
        issued_by=None if issue is None else thread,
        launches=launches,
    )
    return Timed(task, seconds, issue or 0.0)


def host(
    name: str,
    seconds: float,
    *,
    lane: str = "forward",
    waits: Sequence[int] = (),
    before: Sequence[int] = (),
) -> Timed:
    """Work of a host thread."""
    task = Task(
        name=name,
        kind=TaskKind.HOST,
        lane=lane,
        waits=tuple(waits),
        waits_previous=tuple(before),
        issued_by=None,
    )
    return Timed(task, seconds)


def priced(
    classes: Sequence[tuple[str, Sequence[int], Sequence[Timed]]],
    groups: dict[str, list[list[int]]] | None = None,
    *,
    latency: float = 0.0,
    queue: int = 1024,
    barrier: bool = False,
    overlap: Overlap | None = None,
) -> PricedProgram:
    """A priced program of (name, ranks, tasks) classes."""
    program = Program(
        classes=tuple(
            RankClass(name=n, ranks=np.array(r), tasks=tuple(t.task for t in tasks))
            for n, r, tasks in classes
        ),
        groups={k: np.array(v) for k, v in (groups or {}).items()},
        launch_latency_s=latency,
        launch_queue=queue,
        barrier=barrier,
        overlap=overlap or Overlap(),
    )
    return PricedProgram(
        program=program,
        device_s=tuple(np.array([[t.device_s] for t in ts]).reshape(-1, 1) for _, _, ts in classes),
        dispatch_s=tuple(
            np.array([[t.dispatch_s] for t in ts]).reshape(-1, 1) for _, _, ts in classes
        ),
        causes=tuple(tuple(_causes(t.task) for t in ts) for _, _, ts in classes),
    )


def _causes(task: Task) -> dict[Cause, float]:
    if task.kind is TaskKind.HOST:
        return {Cause.HOST_STEP: 1.0}
    return {Cause.DP_COMM: 1.0} if task.group else {Cause.GEMM: 0.75, Cause.ELEMENTWISE: 0.25}


def with_durations(
    program: PricedProgram, device_s: Sequence[np.ndarray], dispatch_s: Sequence[np.ndarray]
) -> PricedProgram:
    """The same program with other durations."""
    return PricedProgram(
        program=program.program,
        device_s=tuple(device_s),
        dispatch_s=tuple(dispatch_s),
        causes=program.causes,
    )


_STREAMS = ("compute", "comm", "copy")
_THREADS = ("forward", "autograd")
# Multiples of 1/8 are exact in binary: ties really occur, and sums carry no rounding.
_SECONDS = st.integers(0, 24).map(lambda n: n / 8)


@st.composite
def programs(draw: st.DrawFn, *, max_classes: int = 3, barrier: bool | None = None):
    """Programs of up to three classes whose collectives can be matched.

    All classes issue the collectives of a kind in one common order on streams of their own kind,
    so that there is no deadlock; everything else is free.
    """
    num_classes = draw(st.integers(1, max_classes))
    groups, ranks = _groups(draw, num_classes)
    meetings = draw(st.lists(st.sampled_from(sorted(groups)), max_size=4))
    classes = []
    for c in range(num_classes):
        tasks: list[Timed] = []
        for kind in [*meetings, None]:
            for _ in range(draw(st.integers(0, 3))):
                tasks.append(_task(draw, len(tasks)))
            if kind is not None:
                tasks.append(_collective(draw, kind, len(tasks)))
        if not tasks:
            tasks.append(_task(draw, 0))
        tasks = [_with_previous(draw, timed, len(tasks)) for timed in tasks]
        classes.append((f"class{c}", ranks[c], tasks))
    return priced(
        classes,
        groups,
        latency=draw(st.sampled_from([0.0, 0.125, 1.0])),
        queue=draw(st.sampled_from([1, 2, 3, 4, 1024])),
        barrier=draw(st.booleans()) if barrier is None else barrier,
    )


def _groups(
    draw: st.DrawFn, num_classes: int
) -> tuple[dict[str, list[list[int]]], list[list[int]]]:
    """`num_groups` replicas of every class; `world` joins all, `replica` one of each class."""
    copies = draw(st.integers(1, 3))
    ranks = [[copies * c + i for i in range(copies)] for c in range(num_classes)]
    everyone = [r for row in ranks for r in row]
    groups = {
        "world": [everyone],
        "replica": [[row[i] for row in ranks] for i in range(copies)],
        "own": [list(row) for row in ranks],
    }
    return groups, ranks


def _task(draw: st.DrawFn, index: int) -> Timed:
    waits = draw(st.lists(st.integers(0, index - 1), max_size=2)) if index else []
    if draw(st.integers(0, 3)) == 0:
        lane = draw(st.sampled_from(_THREADS))
        return host(f"host{index}", draw(_SECONDS), lane=lane, waits=waits)
    return device(
        f"kernel{index}",
        draw(_SECONDS),
        lane=draw(st.sampled_from(_STREAMS)),
        waits=waits,
        issue=draw(st.one_of(st.none(), _SECONDS)),
        thread=draw(st.sampled_from(_THREADS)),
        launches=draw(st.sampled_from([1.0, 1.0, 2.0, 4.0])),
    )


def _collective(draw: st.DrawFn, kind: str, index: int) -> Timed:
    waits = draw(st.lists(st.integers(0, index - 1), max_size=2)) if index else []
    return collective(
        f"{kind}{index}",
        draw(_SECONDS),
        kind,
        lane=draw(st.sampled_from(["comm", "compute"])),
        waits=waits,
        issue=draw(st.one_of(st.none(), _SECONDS)),
        thread=draw(st.sampled_from(_THREADS)),
        launches=draw(st.sampled_from([1.0, 2.0])),
    )


def _with_previous(draw: st.DrawFn, timed: Timed, num_tasks: int) -> Timed:
    if draw(st.integers(0, 5)):
        return timed
    before = draw(st.lists(st.integers(0, num_tasks - 1), min_size=1, max_size=2))
    task = timed.task
    changed = Task(
        name=task.name,
        kind=task.kind,
        lane=task.lane,
        waits=task.waits,
        waits_previous=tuple(before),
        issued_by=task.issued_by,
        launches=task.launches,
        group=task.group,
    )
    return Timed(changed, timed.device_s, timed.dispatch_s)
