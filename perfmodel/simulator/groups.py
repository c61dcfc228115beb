"""Which rank classes meet in which communicators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InputError
from perfmodel.program.records import Program, RankClass

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Circle:
    """Classes whose ranks meet each other on one communicator kind.

    `members` has shape (group_size, num_groups): positions in the concatenated ranks of `classes`;
    `group_of[i]` names the communicator of every rank of the i-th class. `is_uniform` says that
    every communicator has the same make-up, so that one rank stands for its class.
    """

    kind: str
    classes: tuple[int, ...]
    members: Ints
    group_of: tuple[Ints, ...]
    is_uniform: bool


def owners_of_ranks(classes: Sequence[RankClass]) -> Ints:
    """Class of every rank number, -1 where no class has the rank.

    Raises
    ------
    InputError
        If a class is empty or two classes share a rank.
    """
    for cls in classes:
        if cls.multiplicity == 0:
            raise InputError(f"rank class {cls.name!r} has no ranks")
    everyone = np.concatenate([np.asarray(c.ranks, dtype=np.int64) for c in classes])
    if everyone.min() < 0 or np.unique(everyone).size != everyone.size:
        raise InputError("rank numbers must be >= 0 and belong to one rank class each")
    owners = np.full(int(everyone.max()) + 1, -1, dtype=np.int64)
    for number, cls in enumerate(classes):
        owners[cls.ranks] = number
    return owners


def circles_of(program: Program, kind: str, owners: Ints) -> tuple[Circle, ...]:
    """Partition the classes that appear in communicators of `kind` into those that meet.

    Raises
    ------
    InputError
        If `kind` is unknown, or a communicator names a rank twice or one that no class has.
    """
    if kind not in program.groups:
        have = ", ".join(sorted(program.groups)) or "none"
        raise InputError(f"communicator kind {kind!r} is not among the groups ({have})")
    rows = np.atleast_2d(np.asarray(program.groups[kind], dtype=np.int64))
    if np.unique(rows).size != rows.size:
        raise InputError(f"group {kind!r}: a rank belongs to more than one communicator")
    if rows.size and (rows.min() < 0 or rows.max() >= len(owners) or (owners[rows] < 0).any()):
        raise InputError(f"group {kind!r} names a rank that belongs to no rank class")
    owner_rows = owners[rows]
    makeups = np.unique(np.sort(owner_rows, axis=1), axis=0)
    circles = []
    for classes, num_makeups in _merge(makeups):
        chosen = rows[np.isin(owner_rows[:, 0], classes)]
        circles.append(_circle(program, kind, classes, chosen, num_makeups == 1))
    return tuple(circles)


def _merge(makeups: Ints) -> list[tuple[list[int], int]]:
    """Join make-ups that share a class: (classes, number of make-ups joined)."""
    merged: list[tuple[set[int], int]] = []
    for row in makeups:
        classes, count = set(row.tolist()), 1
        apart = []
        for other, other_count in merged:
            if classes & other:
                classes |= other
                count += other_count
            else:
                apart.append((other, other_count))
        merged = [*apart, (classes, count)]
    return [(sorted(classes), count) for classes, count in merged]


def _circle(
    program: Program, kind: str, classes: list[int], rows: Ints, is_uniform: bool
) -> Circle:
    numbers = [np.asarray(program.classes[c].ranks, dtype=np.int64) for c in classes]
    position = np.full(int(max(rows.max(), *(n.max() for n in numbers))) + 1, -1, dtype=np.int64)
    group = position.copy()
    position[np.concatenate(numbers)] = np.arange(sum(len(n) for n in numbers))
    group[rows] = np.arange(len(rows))[:, None]
    for c, ranks in zip(classes, numbers, strict=True):
        outside = ranks[group[ranks] < 0]
        if outside.size:
            name = program.classes[c].name
            raise InputError(
                f"group {kind!r}: rank {outside[0]} of class {name!r} is in no communicator, "
                "other ranks of its class are"
            )
    return Circle(
        kind=kind,
        classes=tuple(classes),
        members=np.ascontiguousarray(position[rows].T),
        group_of=tuple(group[ranks] for ranks in numbers),
        is_uniform=is_uniform,
    )


def rank_name(cls: RankClass) -> str:
    """A class by its first rank and its name, for messages."""
    more = f" and {cls.multiplicity - 1} more" if cls.multiplicity > 1 else ""
    return f"rank {int(cls.ranks[0])}{more} ({cls.name})"
