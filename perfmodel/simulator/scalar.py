"""Evaluate iterations of one scenario with plain floats: the fast path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from perfmodel.simulator.compile import NOBODY, Graph, Place
from perfmodel.simulator.durations import LaneDurations
from perfmodel.simulator.iteration import Iteration, Past, Value
from perfmodel.simulator.schedule import Operation

Ends = list[list[float]]
_Step = tuple[Callable[..., None], tuple[Any, ...]]
_Binder = Callable[[int, int, int], _Step]


class ScalarEvaluator:
    """Runs the operations of a schedule; durations are converted to floats once."""

    def __init__(
        self, graph: Graph, operations: Sequence[Operation], pieces: Sequence[LaneDurations]
    ) -> None:
        self.lanes = graph.lanes
        self.places = [m.places for m in graph.meetings]
        self.work: list[list[float]] = [p.work.ravel().tolist() for p in pieces]
        self.release: list[list[float]] = [p.release.ravel().tolist() for p in pieces]
        self.tail: list[list[float]] = [p.tail.ravel().tolist() for p in pieces]
        self.is_lumped = [p.is_lumped for p in pieces]
        # In the order of schedule.Op.
        binders: tuple[_Binder, ...] = (
            self._bind_host, self._bind_run, self._bind_device, self._bind_graph,
            self._bind_join, self._bind_arrive, self._bind_meet,
        )  # fmt: skip
        self.steps = [binders[op](number, first, last) for op, number, first, last in operations]

    def zero_clocks(self) -> list[Value]:
        """Lanes that all stand at time 0."""
        return [0.0] * len(self.lanes)

    def take(self, chosen: NDArray[np.bool_]) -> ScalarEvaluator:
        """Itself: there is one scenario."""
        return self

    def iterate(self, clocks: Sequence[Value], past: Sequence[Past]) -> Iteration:
        """One iteration from where the lanes stand."""
        # One scenario, folded: all values are floats.
        self.past = [(cast(Ends, p.end), cast(list[float], p.offset)) for p in past]
        self.clock: list[float] = list(cast(Sequence[float], clocks))
        self.start: list[list[float]] = [[] for _ in self.lanes]
        self.end: list[list[float]] = [[] for _ in self.lanes]
        self.rendezvous: list[tuple[Value, ...]] = [()] * len(self.places)
        for step, arguments in self.steps:
            step(self, *arguments)
        return Iteration(
            clock=list(self.clock),
            start=list(self.start),
            end=list(self.end),
            rendezvous=self.rendezvous,
        )

    # What each operation needs is looked up once, not in every iteration. (Functions, not bound
    # methods: an evaluator that refers to itself would outlive its use.)

    def _bind_host(self, number: int, first: int, last: int) -> _Step:
        return ScalarEvaluator._host, (number, self.work[number][first:last])

    def _bind_run(self, number: int, first: int, last: int) -> _Step:
        return ScalarEvaluator._queued, (number, first, last)

    def _bind_device(self, number: int, first: int, last: int) -> _Step:
        lane = self.lanes[number]
        if last - first > 1:
            return ScalarEvaluator._device, (number, first, last)
        return ScalarEvaluator._kernel, (
            number, lane.issuer[first], lane.issue[first], self.release[number][first],
            self.work[number][first], self.tail[number][first],
        )  # fmt: skip

    def _bind_graph(self, number: int, first: int, last: int) -> _Step:
        return ScalarEvaluator._graph, (number, self.work[number][first:last])

    def _bind_join(self, number: int, first: int, last: int) -> _Step:
        join = self.lanes[number].joins[first]
        return ScalarEvaluator._join, (number, join.now, join.before)

    def _bind_arrive(self, number: int, first: int, last: int) -> _Step:
        lane = self.lanes[number]
        if lane.issuer[first] == NOBODY:
            return ScalarEvaluator._arrive, (number,)
        return ScalarEvaluator._arrive_launched, (
            number, lane.issuer[first], lane.issue[first], self.release[number][first],
            self.tail[number][first],
        )  # fmt: skip

    def _bind_meet(self, number: int, first: int, last: int) -> _Step:
        places = self.places[number]
        longest = max(self.work[lane][item] for lane, item in places)
        is_lumped = any(self.is_lumped[lane][item] for lane, item in places)
        return ScalarEvaluator._meet, (number, [lane for lane, _ in places], longest, is_lumped)

    def _host(self, number: int, costs: list[float]) -> None:
        ends = list(accumulate(costs, initial=self.clock[number]))
        self.clock[number] = ends[-1]
        self.end[number].extend(ends[1:])

    def _queued(self, number: int, first: int, last: int) -> None:
        lane = self.lanes[number]
        back = lane.queue_back[first]
        if back > len(self.past):
            self._host(number, self.work[number][first:last])
            return
        ends, offsets = self.past[back - 1] if back else (self.end, [0.0] * len(self.end))
        clock = self.clock[number]
        append = self.end[number].append
        for other, item, work in zip(
            lane.queue_lane[first:last],
            lane.queue_item[first:last],
            self.work[number][first:last],
            strict=True,
        ):
            freed = ends[other][item] - offsets[other]
            if freed > clock:
                clock = freed
            clock += work
            append(clock)
        self.clock[number] = clock

    def _device(self, number: int, first: int, last: int) -> None:
        lane = self.lanes[number]
        issued = self.end[lane.issuer[first]]
        front = self.clock[number]
        starts, ends = self.start[number].append, self.end[number].append
        for position, work, release, tail in zip(
            lane.issue[first:last],
            self.work[number][first:last],
            self.release[number][first:last],
            self.tail[number][first:last],
            strict=True,
        ):
            launched = issued[position]
            start = launched + release
            if front > start:
                start = front
            front = start + work
            launched += tail
            if launched > front:
                front = launched
            starts(start)
            ends(front)
        self.clock[number] = front

    def _kernel(
        self, number: int, thread: int, issue: int, release: float, work: float, tail: float
    ) -> None:
        """A run of one; the same as `_device`."""
        launched = self.end[thread][issue]
        start = max(launched + release, self.clock[number])
        end = max(start + work, launched + tail)
        self.start[number].append(start)
        self.end[number].append(end)
        self.clock[number] = end

    def _graph(self, number: int, work: list[float]) -> None:
        times = list(accumulate(work, initial=self.clock[number]))
        self.start[number].extend(times[:-1])
        self.end[number].extend(times[1:])
        self.clock[number] = times[-1]

    def _join(self, number: int, now: tuple[Place, ...], before: tuple[Place, ...]) -> None:
        clock = self.clock[number]
        for other, item in now:
            end = self.end[other][item]
            if end > clock:
                clock = end
        if before and self.past:
            ends, offsets = self.past[0]
            for other, item in before:
                clock = max(clock, ends[other][item] - offsets[other])
        self.clock[number] = clock

    def _arrive(self, number: int) -> None:
        self.start[number].append(self.clock[number])

    def _arrive_launched(
        self, number: int, thread: int, issue: int, release: float, tail: float
    ) -> None:
        launched = self.end[thread][issue]
        self.start[number].append(max(launched + release, self.clock[number]))
        self.clock[number] = launched + tail

    def _meet(self, number: int, lanes: list[int], longest: float, is_lumped: bool) -> None:
        # Every member waits at its last item.
        together = max([self.start[lane][-1] for lane in lanes])
        end = together + longest
        if is_lumped:
            end = max(end, max([self.clock[lane] for lane in lanes]))
        for lane in lanes:
            self.end[lane].append(end)
            self.clock[lane] = end
        self.rendezvous[number] = (together,)
