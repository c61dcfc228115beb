"""Which collectives of which classes meet, and whether all members agree on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfmodel.errors import DeadlockError, InputError
from perfmodel.program.records import Program, Task
from perfmodel.program.work import Collective
from perfmodel.simulator.groups import Circle, circles_of, owners_of_ranks, rank_name


def matched(
    program: Program, groups: Sequence[Sequence[str | None]], *, unfold: bool
) -> list[tuple[Circle, list[list[int]]]]:
    """Circles and, by class of each, the tasks that are its collectives, in order.

    `groups[c][t]` is the communicator kind of task t of class c. Folded, circles of one class are
    left out: equal ranks arrive together, so their collectives are ordinary tasks.

    Raises
    ------
    InputError
        If a class uses a group of which it is no member, or, folded, ranks of a class belong to
        communicators of different make-up.
    DeadlockError
        If members issue different numbers or kinds of collectives.
    """
    issued: dict[str, dict[int, list[int]]] = {}  # kind -> class -> tasks
    for c, kinds in enumerate(groups):
        for t, kind in enumerate(kinds):
            if kind is not None:
                issued.setdefault(kind, {}).setdefault(c, []).append(t)
    owners = owners_of_ranks(program.classes)
    found = []
    for kind, by_class in issued.items():
        circles = circles_of(program, kind, owners)
        _check_members(program, kind, by_class, circles)
        for circle in circles:
            lists = [by_class.get(c, []) for c in circle.classes]
            _check_order(program, circle, lists)
            if not unfold:
                _check_uniform(program, circle)
            if unfold or len(lists) > 1:
                found.append((circle, lists))
    return found


def _check_members(
    program: Program, kind: str, issuing: Mapping[int, list[int]], circles: tuple[Circle, ...]
) -> None:
    known = {c for circle in circles for c in circle.classes}
    for c, tasks in issuing.items():
        if c not in known:
            cls = program.classes[c]
            raise InputError(
                f"task {cls.tasks[tasks[0]].name!r} of {rank_name(cls)} uses group {kind!r}, "
                "of which it is no member"
            )


def _check_uniform(program: Program, circle: Circle) -> None:
    if not circle.is_uniform:
        names = ", ".join(repr(program.classes[c].name) for c in circle.classes)
        raise InputError(
            f"group {circle.kind!r} joins the classes {names} in communicators of different "
            "make-up: one rank cannot stand for its class (simulate with unfold=True)"
        )


def _check_order(program: Program, circle: Circle, lists: list[list[int]]) -> None:
    """Members must issue the same number and kinds of collectives."""
    classes = [program.classes[c] for c in circle.classes]
    counts = [len(tasks) for tasks in lists]
    if min(counts) != max(counts):
        most, least = counts.index(max(counts)), counts.index(min(counts))
        unmatched = classes[most].tasks[lists[most][counts[least]]].name
        raise DeadlockError(
            f"{rank_name(classes[most])} issues {counts[most]} collectives on group "
            f"{circle.kind!r} but {rank_name(classes[least])} issues {counts[least]}: "
            f"{unmatched!r} waits forever"
        )
    if len(classes) == 1:
        return
    for number, tasks in enumerate(zip(*lists, strict=True)):
        kinds = [_collective_kind(cls.tasks[t]) for cls, t in zip(classes, tasks, strict=True)]
        for other in range(1, len(kinds)):
            if None not in (kinds[0], kinds[other]) and kinds[0] != kinds[other]:
                first, second = (classes[i].tasks[tasks[i]] for i in (0, other))
                raise DeadlockError(
                    f"collective {number + 1} on group {circle.kind!r} is {kinds[0]} "
                    f"{first.name!r} on {rank_name(classes[0])} but {kinds[other]} "
                    f"{second.name!r} on {rank_name(classes[other])}"
                )


def _collective_kind(task: Task) -> str | None:
    for item in task.work:
        if isinstance(item.work, Collective):
            return str(item.work.kind)
    return None
