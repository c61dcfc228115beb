"""Find the critical path: from the last end back through whatever each item waited for.

In a steady state the chain closes: going back, some item is met again one (or several) iterations
earlier, and the stretch between the two is what every iteration repeats. Its length is the period,
exactly. With a barrier the chain goes back to the start of the iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from perfmodel.program.records import TaskKind
from perfmodel.program.work import Cause
from perfmodel.simulator.compile import NOBODY, ClassPlaces
from perfmodel.simulator.critical_path import CriticalPath, Segment, SegmentKind

if TYPE_CHECKING:
    from perfmodel.simulator.timeline import Timeline

# Ends that differ by less than this share of the period are the same instant.
_SAME_INSTANT = 1e-10

Item = tuple[int, int, int]  # lane, position, rank within its class


@dataclass(frozen=True, slots=True)
class _Choice:
    """Something that ended at `end`; `is_launch` leads to the start of a kernel."""

    item: Item
    end: float
    turns: int = 0  # iterations it lies back
    is_launch: bool = False


def critical_path(timeline: Timeline, scenario: int) -> CriticalPath:
    """Critical path of one scenario; see CriticalPath."""
    return _Walk(timeline, scenario).run()


class _Walk:
    def __init__(self, timeline: Timeline, scenario: int) -> None:
        self.timeline = timeline
        self.graph = timeline.graph
        self.program = timeline.graph.program
        self.scenario = scenario
        self.period = float(timeline.iteration_s[scenario])
        self.slack = _SAME_INSTANT * self.period
        self.pieces: list[Segment] = []
        self.origin = 0.0  # start of the iteration that the walk has reached
        self.visited: dict[Item, tuple[int, int]] = {}  # item -> (turn, pieces before it)
        self.turn = 0

    def run(self) -> CriticalPath:
        item = self._last() if self.graph.lanes else None
        turns = 1
        while item is not None:
            if item in self.visited:
                turn, first = self.visited[item]
                turns = self.turn - turn
                self.pieces = self.pieces[first:]
                break
            self.visited[item] = (self.turn, len(self.pieces))
            item = self._back(item)
        return self._finished(max(turns, 1))

    def _finished(self, turns: int) -> CriticalPath:
        segments = tuple(
            Segment(
                rank_class=s.rank_class, class_name=s.class_name, rank=s.rank, task=s.task,
                name=s.name, lane=s.lane, kind=s.kind, causes=s.causes, start_s=s.start_s,
                end_s=s.end_s, duration_s=(s.end_s - s.start_s) / turns,
            )
            for s in reversed(self.pieces)
        )  # fmt: skip
        return CriticalPath(segments=segments, iteration_s=self.period, num_iterations=turns)

    def _last(self) -> Item:
        """The item that ends the iteration, on a lane that sets the pace."""
        found: list[tuple[bool, float, Item]] = []
        for number, lane in enumerate(self.graph.lanes):
            for rank in range(self._num_ranks(lane.owner)):
                item = (number, len(lane.tasks) - 1, rank)
                found.append((self._sets_pace(item), self._end(item), item))
        return max(found)[2]

    def _back(self, item: Item) -> Item | None:
        """Add what `item` did before its end; the item that it waited for, if any."""
        number, position, _ = item
        lane = self.graph.lanes[number]
        if lane.is_host:
            start = self._start(item)
            self._add(item, SegmentKind.HOST, start, self._end(item))
            return self._enter(item, start, self._before_host(item))
        if position in lane.meetings:
            return self._back_from_meeting(item, lane.meetings[position])
        start, end, work = self._start(item), self._end(item), self._work(item)
        if end > start + work + self.slack:
            return self._back_to_last_launch(item, end)
        self._add(item, SegmentKind.WORK, start, end)
        return self._enter(item, start, self._before_stream(item))

    def _back_from_meeting(self, item: Item, meeting: int) -> Item | None:
        members = list(self._members(item, meeting))
        end = self._end(item)
        latest = max(members, key=self._start)
        together = self._start(latest)
        work = max(self._work(m) for m in members)
        if end > together + work + self.slack:
            return self._back_to_last_launch(max(members, key=self._tail), end)
        self._add(item, SegmentKind.WORK, together, end)
        return self._enter(latest, together, self._before_stream(latest))

    def _back_to_last_launch(self, item: Item, end: float) -> Item:
        """The last of several kernels started when it was launched."""
        launch = self._launch_of(item)
        launched, last = self._end(launch), self._work(item) / self._launches(item)
        self._add(item, SegmentKind.WORK, end - last, end)
        self._add(item, SegmentKind.LAUNCH, launched, end - last)
        return launch

    def _enter(self, item: Item, start: float, choices: Iterator[_Choice]) -> Item | None:
        """The choice that ended at `start`, on a lane that sets the pace if there is one."""
        near = [c for c in choices if c.end <= start + self.slack]
        if not near:
            return None
        latest = max(c.end for c in near)
        bound = [c for c in near if c.end >= latest - self.slack]
        choice = max(bound, key=lambda c: self._sets_pace(c.item))
        if choice.is_launch:
            return self._enter_launch(item, choice, start)
        if start - choice.end > self.slack:
            self._add(item, SegmentKind.IDLE, choice.end, start)
        self.turn += choice.turns
        self.origin -= choice.turns * self.period
        return choice.item

    def _enter_launch(self, item: Item, choice: _Choice, start: float) -> Item | None:
        launch, latency = choice.item, self.program.launch_latency_s
        self._add(item, SegmentKind.LAUNCH, start - latency, start)
        if self._launches(item) == 1.0:
            return launch
        begun = self._start(launch)
        self._add(launch, SegmentKind.HOST, begun, start - latency)
        return self._enter(launch, begun, self._before_host(launch))

    def _before_host(self, item: Item) -> Iterator[_Choice]:
        number, position, rank = item
        yield from self._before_on_lane(item)
        yield from self._joined(item)
        lane = self.graph.lanes[number]
        back = lane.queue_back[position]
        is_launch = not self._places(item).is_host[lane.tasks[position]]
        if back != NOBODY and is_launch and not (back and self.program.barrier):
            freed = (lane.queue_lane[position], lane.queue_item[position], rank)
            yield self._earlier(freed, back)

    def _before_stream(self, item: Item) -> Iterator[_Choice]:
        yield from self._before_on_lane(item)
        yield from self._joined(item)
        if self.graph.lanes[item[0]].issuer[item[1]] != NOBODY:
            launch = self._launch_of(item)
            several = self._launches(item)
            cost = self._end(launch) - self._start(launch)
            first = self._end(launch) - cost * (1.0 - 1.0 / several)
            yield _Choice(launch, first + self.program.launch_latency_s, is_launch=True)

    def _before_on_lane(self, item: Item) -> Iterator[_Choice]:
        number, position, rank = item
        if position > 0:
            yield self._earlier((number, position - 1, rank), 0)
        elif not self.program.barrier:
            yield self._earlier((number, len(self.graph.lanes[number].tasks) - 1, rank), 1)

    def _joined(self, item: Item) -> Iterator[_Choice]:
        number, position, rank = item
        join = self.graph.lanes[number].joins.get(position)
        if join is None:
            return
        for lane, other in join.now:
            yield self._earlier((lane, other, rank), 0)
        if not self.program.barrier:
            for lane, other in join.before:
                yield self._earlier((lane, other, rank), 1)

    def _earlier(self, item: Item, turns: int) -> _Choice:
        return _Choice(item, self._end(item) - turns * self._rate(item), turns)

    def _members(self, item: Item, meeting: int) -> Iterator[Item]:
        """Items of the members of the communicator of `item`."""
        places = self.graph.meetings[meeting].places
        if not self.graph.unfold:
            yield from ((lane, position, 0) for lane, position in places)
            return
        circle = self.graph.meetings[meeting].circle
        mine = [lane for lane, _ in places].index(item[0])
        group = circle.group_of[mine][item[2]]
        for (lane, position), groups in zip(places, circle.group_of, strict=True):
            for rank in np.flatnonzero(groups == group).tolist():
                yield (lane, position, rank)

    def _add(self, item: Item, kind: SegmentKind, start: float, end: float) -> None:
        if end <= start:
            return
        number, position, rank = item
        lane = self.graph.lanes[number]
        cls = self.program.classes[lane.owner]
        task = int(lane.tasks[position])
        self.pieces.append(
            Segment(
                rank_class=lane.owner,
                class_name=cls.name,
                rank=int(cls.ranks[rank]),
                task=task,
                name=cls.tasks[task].name,
                lane=lane.name,
                kind=kind,
                causes=self._causes(lane.owner, task, kind, is_host=lane.is_host),
                start_s=start + self.origin,
                end_s=end + self.origin,
                duration_s=end - start,
            )
        )

    def _causes(
        self, owner: int, task: int, kind: SegmentKind, *, is_host: bool
    ) -> Mapping[Cause, float]:
        if kind in (SegmentKind.LAUNCH, SegmentKind.IDLE):
            return {Cause.IDLE: 1.0}
        record = self.program.classes[owner].tasks[task]
        if is_host and record.kind is not TaskKind.HOST:
            return {record.dispatch.cause if record.dispatch else Cause.HOST: 1.0}
        causes = self.timeline.priced.causes[owner][task]
        return causes or {Cause.HOST if is_host else Cause.IDLE: 1.0}

    # Values of one item in the chosen scenario.

    def _num_ranks(self, owner: int) -> int:
        return self.program.classes[owner].multiplicity if self.graph.unfold else 1

    def _places(self, item: Item) -> ClassPlaces:
        return self.graph.places[self.graph.lanes[item[0]].owner]

    def _at(self, arrays: tuple[NDArray[np.float64], ...], item: Item) -> float:
        lane = self.graph.lanes[item[0]]
        row = arrays[lane.owner][lane.tasks[item[1]], self.scenario]
        if row.ndim == 0:
            return float(row)
        return float(row[item[2] if row.shape[0] > 1 else 0])

    def _is_launch(self, item: Item) -> bool:
        lane = self.graph.lanes[item[0]]
        return lane.is_host and not self._places(item).is_host[lane.tasks[item[1]]]

    def _end(self, item: Item) -> float:
        timeline = self.timeline
        return self._at(timeline.issue_end_s if self._is_launch(item) else timeline.end_s, item)

    def _start(self, item: Item) -> float:
        timeline = self.timeline
        return self._at(timeline.issue_start_s if self._is_launch(item) else timeline.start_s, item)

    def _work(self, item: Item) -> float:
        return self._at(self.timeline.device_s, item)

    def _launches(self, item: Item) -> float:
        lane = self.graph.lanes[item[0]]
        return float(self._places(item).launches[lane.tasks[item[1]]])

    def _launch_of(self, item: Item) -> Item:
        lane = self.graph.lanes[item[0]]
        return (lane.issuer[item[1]], lane.issue[item[1]], item[2])

    def _tail(self, item: Item) -> float:
        if self.graph.lanes[item[0]].issuer[item[1]] == NOBODY:
            return -np.inf
        return self._end(self._launch_of(item)) + self._work(item) / self._launches(item)

    def _rate(self, item: Item) -> float:
        rate = self.timeline.lane_rate_s[item[0]][self.scenario]
        return float(rate if np.ndim(rate) == 0 else rate[item[2]])

    def _sets_pace(self, item: Item) -> bool:
        return self.program.barrier or abs(self._rate(item) - self.period) <= self.slack
