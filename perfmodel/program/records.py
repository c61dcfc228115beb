"""The Program: who does what, in which order. It says nothing about durations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InputError
from perfmodel.program.work import Amount, HostDispatch, Pass, Work


class TaskKind(StrEnum):
    """Where a task runs and what starts it."""

    HOST = "host"  # runs on a host thread, in order
    DEVICE = "device"  # kernels or copies on a stream, issued by a host thread
    COLLECTIVE = "collective"  # a device task that starts when the last member arrives


@dataclass(frozen=True, slots=True)
class WorkItem:
    """`count` times the same work, one after the other."""

    work: Work
    count: Amount = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A stretch of work in one place; its parts run back to back.

    Tasks of one class are listed in the order in which the host issues them. Tasks of one lane run
    in list order (FIFO). `waits` are indices of earlier tasks of the same class that must have
    ended before this one starts; `waits_previous` are indices of tasks (any position) of the
    previous iteration. A host task that waits for device tasks is a host synchronisation.
    """

    name: str
    kind: TaskKind
    lane: str  # host thread ("forward", "loader") or stream ("compute", "comm", "copy")
    work: tuple[WorkItem, ...] = ()
    waits: tuple[int, ...] = ()
    waits_previous: tuple[int, ...] = ()
    issued_by: str | None = (
        "forward"  # host thread that launches a device task; None: no launch cost
    )
    dispatch: HostDispatch | None = None  # what issuing it costs that thread
    launches: float = 1.0  # kernels behind it: slots taken in the launch queue
    group: str | None = None  # communicator kind of a collective: a key of Program.groups
    phase: Pass = Pass.FORWARD

    def __post_init__(self) -> None:
        if (self.kind is TaskKind.COLLECTIVE) != (self.group is not None):
            raise InputError(f"task {self.name!r}: a collective, and only one, names a group")
        if self.kind is TaskKind.HOST and self.dispatch is not None:
            raise InputError(f"task {self.name!r}: a host task has work, not a dispatch cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankClass:
    """Ranks that do the same work; simulated once. `ranks` are their global rank numbers."""

    name: str
    ranks: NDArray[np.int64]
    tasks: tuple[Task, ...]

    @property
    def multiplicity(self) -> int:
        """How many ranks the class stands for."""
        return len(self.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """How kernels and collectives of one rank slow each other while both run.

    A compute kernel beside a collective takes 1 + `compute_slowdown` times as long, a collective
    beside compute 1 + `comm_slowdown` times; collectives on different lanes of one rank that name
    the same link in `shared_links` share it.
    """

    compute_slowdown: float = 0.0
    comm_slowdown: float = 0.0
    shared_links: Mapping[str, str] = field(default_factory=dict)  # lane -> link name
    compute_lanes: tuple[str, ...] = ("compute",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Rank classes and communicators.

    `groups[kind]` is an int array of shape (num_groups, group_size): the rank numbers of every
    communicator of that kind. The n-th collective that a rank issues on a kind meets the n-th of
    the other members of its communicator. Every rank of a class must belong to communicators of
    the same make-up (same classes, same counts), so that one rank stands for all.
    """

    classes: tuple[RankClass, ...]
    groups: Mapping[str, NDArray[np.int64]]
    scenarios: int = 1
    overlap: Overlap = field(default_factory=Overlap)
    launch_latency_s: float = 0.0  # from the launch call to the start of a kernel on an idle stream
    launch_queue: int = 1024  # kernels in flight before the host blocks
    barrier: bool = False  # every iteration starts together on all ranks
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
