"""Compile a Program once into lanes, dependencies between their items, and meetings.

A lane is a host thread or a stream of one rank class. Its items run in order, so the only other
constraints are joins (events, host synchronisation), the launch of each kernel by its thread, the
bounded launch queue, and meetings of collectives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InputError
from perfmodel.program.records import Program, RankClass, Task, TaskKind
from perfmodel.simulator.groups import Circle
from perfmodel.simulator.matching import matched

Place = tuple[int, int]  # lane, position in it
Ints = NDArray[np.int64]

NOBODY = -1  # no issuing thread, no queue limit
# A fraction of a launch slot: counts of lumped launches are sums of floats.
_SLOT_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Join:
    """What an item waits for besides its lane: items of this and of the previous iteration."""

    now: tuple[Place, ...]
    before: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lane:
    """Items of one host thread or stream, in order.

    `issuer[p]`, `issue[p]`: thread lane and position there of the launch of item p (streams).
    `queue_back[p]`, `queue_lane[p]`, `queue_item[p]`: the kernel that must have ended, so many
    iterations ago, before item p is issued (threads). `breaks`: positions where a run of items
    must stop, because the next one has dependencies of its own.
    """

    owner: int
    name: str
    is_host: bool
    tasks: Ints
    issuer: list[int]
    issue: list[int]
    queue_back: list[int]
    queue_lane: list[int]
    queue_item: list[int]
    joins: Mapping[int, Join]
    breaks: list[int]
    meetings: Mapping[int, int]  # position -> meeting


@dataclass(frozen=True, slots=True)
class Meeting:
    """The n-th collective of all members of a circle."""

    circle: Circle
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassPlaces:
    """Where the tasks of a class run and where they are issued: arrays of shape (num_tasks,)."""

    lane: Ints
    position: Ints
    thread: Ints
    issue: Ints
    is_host: NDArray[np.bool_]
    launches: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Graph:
    """Everything about a Program that does not depend on durations."""

    program: Program
    unfold: bool
    places: tuple[ClassPlaces, ...]
    lanes: tuple[Lane, ...]
    meetings: tuple[Meeting, ...]


def compile_graph(program: Program, *, unfold: bool) -> Graph:
    """Lanes, dependencies and meetings of `program`.

    Raises
    ------
    InputError
        If a wait does not point to an earlier task, or a rank cannot stand for its class.
    DeadlockError
        If members of a communicator issue different numbers or kinds of collectives.
    """
    if not any(cls.tasks for cls in program.classes):
        raise InputError("the program has no tasks")
    places: list[ClassPlaces] = []
    drafts: list[_Draft] = []
    columns = [_read(cls.tasks) for cls in program.classes]
    for owner, tasks in enumerate(columns):
        found, added = _class_lanes(owner, tasks, len(drafts))
        places.append(found)
        drafts.extend(added)
    groups = [tasks.groups for tasks in columns]
    meetings = _meetings(matched(program, groups, unfold=unfold), places)
    at_lane: dict[int, dict[int, int]] = {}
    for number, meeting in enumerate(meetings):
        for lane, position in meeting.places:
            at_lane.setdefault(lane, {})[position] = number
    joins = [_class_joins(cls, columns[c], places[c]) for c, cls in enumerate(program.classes)]
    queues = [_queue(places[c], program.launch_queue) for c in range(len(places))]
    lanes = [
        _lane(number, draft, places, joins, queues, at_lane.get(number, {}))
        for number, draft in enumerate(drafts)
    ]
    return Graph(
        program=program,
        unfold=unfold,
        places=tuple(places),
        lanes=tuple(lanes),
        meetings=tuple(meetings),
    )


@dataclass(frozen=True, slots=True)
class _Draft:
    owner: int
    name: str
    is_host: bool
    tasks: Ints


@dataclass(frozen=True, slots=True)
class _Tasks:
    """Fields of the tasks of a class by column: large programs compile faster that way."""

    kinds: list[TaskKind]
    lanes: list[str]
    issuers: list[str | None]
    groups: list[str | None]
    launches: list[float]
    waits: list[tuple[int, ...]]
    waits_previous: list[tuple[int, ...]]


def _read(tasks: tuple[Task, ...]) -> _Tasks:
    return _Tasks(
        kinds=[t.kind for t in tasks],
        lanes=[t.lane for t in tasks],
        issuers=[t.issued_by for t in tasks],
        groups=[t.group for t in tasks],
        launches=[t.launches for t in tasks],
        waits=[t.waits for t in tasks],
        waits_previous=[t.waits_previous for t in tasks],
    )


def _class_lanes(owner: int, tasks: _Tasks, first: int) -> tuple[ClassPlaces, list[_Draft]]:
    num = len(tasks.kinds)
    host = TaskKind.HOST
    is_host = np.array([kind is host for kind in tasks.kinds], dtype=bool)
    # A host task runs on the thread that its lane names, a kernel is issued by one.
    runners = [
        lane if kind is host else issuer
        for kind, lane, issuer in zip(tasks.kinds, tasks.lanes, tasks.issuers, strict=True)
    ]
    thread_names, thread = _coded(runners)
    stream_names, stream = _coded(
        [None if h else lane for h, lane in zip(is_host.tolist(), tasks.lanes, strict=True)]
    )
    position, issue = (np.full(num, NOBODY, dtype=np.int64) for _ in range(2))
    drafts = []
    for code, name in enumerate(thread_names):
        items = np.flatnonzero(thread == code)
        drafts.append(_Draft(owner, name, True, items))
        issue[items] = np.arange(len(items))
    position[is_host] = issue[is_host]
    for code, name in enumerate(stream_names):
        items = np.flatnonzero(stream == code)
        drafts.append(_Draft(owner, name, False, items))
        position[items] = np.arange(len(items))
    places = ClassPlaces(
        lane=np.where(is_host, thread, stream + len(thread_names)) + first,
        position=position,
        thread=np.where(thread == NOBODY, NOBODY, thread + first),
        issue=issue,
        is_host=is_host,
        launches=np.maximum(np.array(tasks.launches, dtype=np.float64), 1.0),
    )
    return places, drafts


def _coded(names: list[str | None]) -> tuple[list[str], Ints]:
    """Distinct names in order of appearance, and the number of each entry's; None is NOBODY."""
    distinct = [name for name in dict.fromkeys(names) if name is not None]
    codes: dict[str | None, int] = {name: code for code, name in enumerate(distinct)}
    codes[None] = NOBODY
    return distinct, np.array([codes[name] for name in names], dtype=np.int64)


def _class_joins(cls: RankClass, tasks: _Tasks, places: ClassPlaces) -> dict[int, Join]:
    """Joins by task, without waits that the order of lanes already implies."""
    joins: dict[int, Join] = {}
    newest: dict[tuple[int, int], int] = {}  # (waiting lane, awaited lane) -> position awaited
    lanes, positions = places.lane.tolist(), places.position.tolist()
    threads = places.thread.tolist()
    pairs = zip(tasks.waits, tasks.waits_previous, strict=True)
    for t in [t for t, (waits, previous) in enumerate(pairs) if waits or previous]:
        waits, previous = tasks.waits[t], tasks.waits_previous[t]
        _check_waits(t, cls.tasks[t], len(lanes))
        implied = (lanes[t], threads[t])
        now = []
        for w in sorted(waits, reverse=True):
            lane, position = lanes[w], positions[w]
            if lane in implied or newest.get((lanes[t], lane), -1) >= position:
                continue
            newest[lanes[t], lane] = position
            now.append((lane, position))
        before = {(lanes[w], positions[w]) for w in previous if lanes[w] not in implied}
        if now or before:
            joins[t] = Join(tuple(now), tuple(sorted(before)))
    return joins


def _check_waits(t: int, task: Task, num_tasks: int) -> None:
    if task.waits and (min(task.waits) < 0 or max(task.waits) >= t):
        raise InputError(f"task {task.name!r} (index {t}) waits for a task that is not before it")
    before = task.waits_previous
    if before and (min(before) < 0 or max(before) >= num_tasks):
        raise InputError(f"task {task.name!r} (index {t}) waits for a task that does not exist")


def _queue(places: ClassPlaces, slots: int) -> tuple[Ints, Ints]:
    """(iterations back, task) whose end frees the slot that each launch takes; back -1: none.

    A launch waits for the newest task all of whose kernels lie at least `slots` launches back.
    """
    num = len(places.lane)
    back, freed = (np.full(num, NOBODY, dtype=np.int64) for _ in range(2))
    issued = np.flatnonzero((places.thread != NOBODY) & ~places.is_host)
    if slots < 1:
        raise InputError(f"launch_queue {slots} is not positive")
    if not issued.size:
        return back, freed
    after = np.cumsum(places.launches[issued])
    target = after - places.launches[issued] + 1 - slots + _SLOT_ROUNDING
    turns = np.floor(target / after[-1])
    found = np.searchsorted(after, target - turns * after[-1], side="right") - 1
    turns[found < 0] -= 1  # -1 is the last task of the iteration before
    back[issued] = (-turns).astype(np.int64)
    freed[issued] = issued[found]
    return back, freed


def _lane(
    number: int,
    draft: _Draft,
    places: list[ClassPlaces],
    joins: list[dict[int, Join]],
    queues: list[tuple[Ints, Ints]],
    meetings: dict[int, int],
) -> Lane:
    mine, items = places[draft.owner], draft.tasks
    is_break = np.zeros(len(items) + 1, dtype=bool)
    is_break[-1] = True
    own_joins = joins[draft.owner]
    joined = {}
    if own_joins:
        on_lane = mine.lane[list(own_joins)] == number
        for t, here in zip(own_joins, on_lane.tolist(), strict=True):
            if here:
                joined[int(mine.position[t])] = own_joins[t]
        is_break[list(joined)] = True
    back = lane = item = np.zeros(0, dtype=np.int64)
    if draft.is_host:
        back, freed = (column[items] for column in queues[draft.owner])
        back, freed = _fill_host(back, freed, mine.is_host[items])
        lane, item = mine.lane[freed], mine.position[freed]
        is_break[1:-1] |= back[1:] != back[:-1]
    else:
        threads = mine.thread[items]
        is_break[1:-1] |= threads[1:] != threads[:-1]
        where = np.array(list(meetings), dtype=np.int64)
        is_break[where] = True
        is_break[where + 1] = True
    return Lane(
        owner=draft.owner,
        name=draft.name,
        is_host=draft.is_host,
        tasks=items,
        issuer=mine.thread[items].tolist(),
        issue=mine.issue[items].tolist(),
        queue_back=back.tolist(),
        queue_lane=lane.tolist(),
        queue_item=item.tolist(),
        joins=joined,
        breaks=np.flatnonzero(is_break).tolist(),
        meetings=meetings,
    )


def _fill_host(back: Ints, freed: Ints, is_host: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Host tasks repeat the limit of the launch before them, which holds already."""
    source = np.maximum.accumulate(np.where(is_host, 0, np.arange(len(back))))
    return back[source], freed[source]


def _meetings(
    circles: list[tuple[Circle, list[list[int]]]], places: list[ClassPlaces]
) -> list[Meeting]:
    meetings: list[Meeting] = []
    for circle, lists in circles:
        spots = [
            zip(places[c].lane[own].tolist(), places[c].position[own].tolist(), strict=True)
            for c, own in zip(circle.classes, lists, strict=True)
        ]
        meetings.extend(Meeting(circle, where) for where in zip(*spots, strict=True))
    return meetings
