"""Evaluate iterations of one scenario with plain floats: the fast path."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import cast

import numpy as np
from numpy.typing import NDArray

from perfmodel.simulator.compile import NOBODY, Graph
from perfmodel.simulator.durations import LaneDurations
from perfmodel.simulator.iteration import Iteration, Past, Value
from perfmodel.simulator.schedule import Operation

Ends = list[list[float]]


class ScalarEvaluator:
    """Runs the operations of a schedule; durations are converted to lists once."""

    def __init__(
        self, graph: Graph, operations: Sequence[Operation], pieces: Sequence[LaneDurations]
    ) -> None:
        self.lanes = graph.lanes
        self.places = [m.places for m in graph.meetings]
        self.operations = operations
        self.work: list[list[float]] = [p.work.ravel().tolist() for p in pieces]
        self.release: list[list[float]] = [p.release.ravel().tolist() for p in pieces]
        self.tail: list[list[float]] = [p.tail.ravel().tolist() for p in pieces]
        self.is_lumped = [any(pieces[n].is_lumped[p] for n, p in places) for places in self.places]
        self.meeting_work = [max(self.work[n][p] for n, p in places) for places in self.places]

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
        # In the order of schedule.Op.
        handlers = (
            self._host, self._queued, self._device, self._graph,
            self._join, self._arrive, self._meet,
        )  # fmt: skip
        for op, number, first, last in self.operations:
            handlers[op](number, first, last)
        return Iteration(
            clock=list(self.clock),
            start=list(self.start),
            end=list(self.end),
            rendezvous=self.rendezvous,
        )

    def _host(self, number: int, first: int, last: int) -> None:
        costs = self.work[number][first:last]
        ends = list(accumulate(costs, initial=self.clock[number]))
        self.clock[number] = ends[-1]
        self.end[number].extend(ends[1:])

    def _queued(self, number: int, first: int, last: int) -> None:
        lane = self.lanes[number]
        back = lane.queue_back[first]
        if back > len(self.past):
            self._host(number, first, last)
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

    def _graph(self, number: int, first: int, last: int) -> None:
        times = list(accumulate(self.work[number][first:last], initial=self.clock[number]))
        self.start[number].extend(times[:-1])
        self.end[number].extend(times[1:])
        self.clock[number] = times[-1]

    def _join(self, number: int, first: int, last: int) -> None:
        join = self.lanes[number].joins[first]
        clock = self.clock[number]
        for other, item in join.now:
            clock = max(clock, self.end[other][item])
        if self.past:
            ends, offsets = self.past[0]
            for other, item in join.before:
                clock = max(clock, ends[other][item] - offsets[other])
        self.clock[number] = clock

    def _arrive(self, number: int, first: int, last: int) -> None:
        lane = self.lanes[number]
        start = self.clock[number]
        if lane.issuer[first] != NOBODY:
            launched = self.end[lane.issuer[first]][lane.issue[first]]
            released = launched + self.release[number][first]
            if released > start:
                start = released
            self.clock[number] = launched + self.tail[number][first]
        self.start[number].append(start)

    def _meet(self, number: int, first: int, last: int) -> None:
        places = self.places[number]
        together = max([self.start[lane][item] for lane, item in places])
        end = together + self.meeting_work[number]
        if self.is_lumped[number]:
            end = max(end, max([self.clock[lane] for lane, _ in places]))
        for lane, _ in places:
            self.end[lane].append(end)
            self.clock[lane] = end
        self.rendezvous[number] = (together,)
