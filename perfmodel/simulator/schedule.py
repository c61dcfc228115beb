"""Order in which items can be evaluated: every item after all it depends on.

Found once per Program by letting every lane run ahead as far as it can. Runs of items without
dependencies of their own become one operation, so that evaluation is a few tight loops.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from enum import IntEnum

from perfmodel.errors import DeadlockError
from perfmodel.simulator.compile import NOBODY, Graph, Lane
from perfmodel.simulator.groups import rank_name


class Op(IntEnum):
    """What to evaluate; an operation is (op, lane or meeting, first, last + 1)."""

    HOST = 0  # items of a thread, no limit by the launch queue
    QUEUED = 1  # items of a thread, limited by kernels of this or an earlier iteration
    DEVICE = 2  # kernels launched by a thread
    GRAPH = 3  # kernels that nobody launches
    JOIN = 4  # the lane waits for the items that `joins[first]` names
    ARRIVE = 5  # a collective starts to wait
    MEET = 6  # all members have arrived


Operation = tuple[int, int, int, int]
# How many stuck collectives a deadlock report names.
_MAX_REPORTED = 4


def schedule(graph: Graph) -> list[Operation]:
    """All operations of one iteration in an order that respects every dependency.

    Raises
    ------
    DeadlockError
        If lanes wait for each other forever; names the ranks and the collectives they are in.
    """
    return _Scheduler(graph).run()


class _Scheduler:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lanes = graph.lanes
        self.progress = [0] * len(graph.lanes)
        self.waiting: list[list[tuple[int, int]]] = [[] for _ in graph.lanes]
        self.absent = [len(m.places) for m in graph.meetings]
        self.parked: dict[int, int] = {}  # lane -> meeting
        self.ready: deque[int] = deque(
            sorted(range(len(graph.lanes)), key=lambda n: not graph.lanes[n].is_host)
        )
        self.operations: list[Operation] = []

    def run(self) -> list[Operation]:
        while self.ready:
            number = self.ready.popleft()
            lane = self.lanes[number]
            step = self._host_step if lane.is_host else self._stream_step
            while self.progress[number] < len(lane.tasks) and step(number, lane):
                pass
        if any(p < len(lane.tasks) for p, lane in zip(self.progress, self.lanes, strict=True)):
            raise DeadlockError(self._report())
        return self.operations

    def _host_step(self, number: int, lane: Lane) -> bool:
        first = self.progress[number]
        if not self._join(number, lane, first):
            return False
        last = lane.breaks[bisect_right(lane.breaks, first)]
        back = lane.queue_back[first]
        if back == 0:
            last = self._free_until(lane, first, last)
            if last == first:
                self._wait(number, lane.queue_lane[first], lane.queue_item[first])
                return False
        op = Op.HOST if back == NOBODY else Op.QUEUED
        self.operations.append((op, number, first, last))
        self._move(number, last)
        return True

    def _free_until(self, lane: Lane, first: int, last: int) -> int:
        """First item whose slot in the launch queue is still taken by an unknown end."""
        progress = self.progress
        for position in range(first, last):
            if lane.queue_item[position] >= progress[lane.queue_lane[position]]:
                return position
        return last

    def _stream_step(self, number: int, lane: Lane) -> bool:
        first = self.progress[number]
        thread = lane.issuer[first]
        issued = 0
        if thread != NOBODY:
            issued = self.progress[thread]
            if lane.issue[first] >= issued:
                self._wait(number, thread, lane.issue[first])
                return False
        if not self._join(number, lane, first):
            return False
        meeting = lane.meetings.get(first)
        if meeting is not None:
            self._arrive(number, first, meeting)
            return False
        last = lane.breaks[bisect_right(lane.breaks, first)]
        if thread != NOBODY:
            last = bisect_left(lane.issue, issued, first, last)
        op = Op.GRAPH if thread == NOBODY else Op.DEVICE
        self.operations.append((op, number, first, last))
        self._move(number, last)
        return True

    def _join(self, number: int, lane: Lane, position: int) -> bool:
        join = lane.joins.get(position)
        if join is None:
            return True
        for other, item in join.now:
            if item >= self.progress[other]:
                self._wait(number, other, item)
                return False
        self.operations.append((Op.JOIN, number, position, position))
        return True

    def _arrive(self, number: int, position: int, meeting: int) -> None:
        self.operations.append((Op.ARRIVE, number, position, position))
        self.parked[number] = meeting
        self.absent[meeting] -= 1
        if self.absent[meeting]:
            return
        self.operations.append((Op.MEET, meeting, 0, 0))
        for member, item in self.graph.meetings[meeting].places:
            del self.parked[member]
            self._move(member, item + 1)
            self.ready.append(member)

    def _move(self, number: int, progress: int) -> None:
        self.progress[number] = progress
        waiting = self.waiting[number]
        if not waiting:
            return
        self.waiting[number] = still = []
        for entry in waiting:
            if entry[0] < progress:
                self.ready.append(entry[1])
            else:
                still.append(entry)

    def _wait(self, number: int, other: int, item: int) -> None:
        self.waiting[other].append((item, number))

    def _report(self) -> str:
        lines = [self._stuck(lane, meeting) for lane, meeting in list(self.parked.items())]
        more = len(lines) - _MAX_REPORTED
        tail = f"; and {more} more" if more > 0 else ""
        return "deadlock: " + "; ".join(lines[:_MAX_REPORTED]) + tail

    def _stuck(self, number: int, meeting: int) -> str:
        classes = self.graph.program.classes
        lane = self.lanes[number]
        cls = classes[lane.owner]
        task = cls.tasks[lane.tasks[self.progress[number]]]
        absent = [
            (self.lanes[member], item)
            for member, item in self.graph.meetings[meeting].places
            if self.parked.get(member) != meeting
        ]
        other, item = absent[0]
        far = classes[other.owner]
        return (
            f"{rank_name(cls)} waits in {task.name!r} (group {task.group!r}) for "
            f"{rank_name(far)}, which has not reached {far.tasks[other.tasks[item]].name!r}"
        )
