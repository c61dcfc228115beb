"""Evaluate iterations of many scenarios, or of every rank, with one array operation a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.simulator.compile import NOBODY, Graph, Meeting
from perfmodel.simulator.durations import LaneDurations
from perfmodel.simulator.iteration import Iteration, Past, Value
from perfmodel.simulator.schedule import Operation

Floats = NDArray[np.float64]


class ArrayEvaluator:
    """Runs the operations of a schedule on arrays (scenarios,) or (scenarios, ranks)."""

    def __init__(
        self, graph: Graph, operations: Sequence[Operation], pieces: Sequence[LaneDurations]
    ) -> None:
        self.graph = graph
        self.pieces = pieces
        self.lanes = graph.lanes
        self.meetings = graph.meetings
        self.operations = operations
        # Rows as views made once: indexing an array costs more than a small addition.
        self.work = [list(p.work) for p in pieces]
        self.release = [list(p.release) for p in pieces]
        self.tail = [list(p.tail) for p in pieces]
        self.lumped = [p.is_lumped for p in pieces]
        scenarios = pieces[0].work.shape[1]
        classes = graph.program.classes
        self.shapes: list[tuple[int, ...]] = [
            (scenarios, classes[lane.owner].multiplicity) if graph.unfold else (scenarios,)
            for lane in graph.lanes
        ]
        self.meeting_work = [self._meeting_work(m) for m in graph.meetings]

    def zero_clocks(self) -> list[Value]:
        """Lanes that all stand at time 0."""
        return [np.zeros(shape) for shape in self.shapes]

    def take(self, chosen: NDArray[np.bool_]) -> ArrayEvaluator:
        """The evaluator of some of the scenarios."""
        return ArrayEvaluator(self.graph, self.operations, [p.take(chosen) for p in self.pieces])

    def iterate(self, clocks: Sequence[Value], past: Sequence[Past]) -> Iteration:
        """One iteration from where the lanes stand."""
        self.past = past
        self.clock: list[Floats] = list(clocks)  # type: ignore[arg-type]
        self.end = [np.empty((len(w), *s)) for w, s in zip(self.work, self.shapes, strict=True)]
        self.start = [
            np.empty((0 if lane.is_host else len(lane.tasks), *shape))
            for lane, shape in zip(self.lanes, self.shapes, strict=True)
        ]
        self.rendezvous: list[tuple[Value, ...]] = [()] * len(self.meetings)
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
        clock, end = self.clock[number], self.end[number]
        for position in range(first, last):
            clock = np.add(clock, self.work[number][position], out=end[position])
        self.clock[number] = clock

    def _queued(self, number: int, first: int, last: int) -> None:
        lane = self.lanes[number]
        back = lane.queue_back[first]
        if back > len(self.past):
            self._host(number, first, last)
            return
        clock, end = self.clock[number], self.end[number]
        for position in range(first, last):
            other, item = lane.queue_lane[position], lane.queue_item[position]
            freed = self._past_end(back, other, item) if back else self.end[other][item]
            clock = np.maximum(clock, freed, out=end[position])
            clock += self.work[number][position]
        self.clock[number] = clock

    def _past_end(self, back: int, lane: int, item: int) -> Value:
        before = self.past[back - 1]
        return before.end[lane][item] - before.offset[lane]

    def _device(self, number: int, first: int, last: int) -> None:
        lane = self.lanes[number]
        issued = self.end[lane.issuer[first]]
        front, start, end = self.clock[number], self.start[number], self.end[number]
        work, release, lumped = self.work[number], self.release[number], self.lumped[number]
        for position in range(first, last):
            launched = issued[lane.issue[position]]
            begin = np.add(launched, release[position], out=start[position])
            np.maximum(begin, front, out=begin)
            front = np.add(begin, work[position], out=end[position])
            if lumped[position]:
                np.maximum(front, launched + self.tail[number][position], out=front)
        self.clock[number] = front

    def _graph(self, number: int, first: int, last: int) -> None:
        front, start, end = self.clock[number], self.start[number], self.end[number]
        for position in range(first, last):
            start[position] = front
            front = np.add(front, self.work[number][position], out=end[position])
        self.clock[number] = front

    def _join(self, number: int, first: int, last: int) -> None:
        join = self.lanes[number].joins[first]
        clock = self.clock[number]
        for other, item in join.now:
            clock = np.maximum(clock, self.end[other][item])
        if self.past:
            for other, item in join.before:
                clock = np.maximum(clock, self._past_end(1, other, item))
        self.clock[number] = clock

    def _arrive(self, number: int, first: int, last: int) -> None:
        lane, begin = self.lanes[number], self.start[number][first]
        if lane.issuer[first] == NOBODY:
            begin[...] = self.clock[number]
            return
        launched = self.end[lane.issuer[first]][lane.issue[first]]
        np.add(launched, self.release[number][first], out=begin)
        np.maximum(begin, self.clock[number], out=begin)
        if self.lumped[number][first]:
            self.clock[number] = launched + self.tail[number][first]

    def _meet(self, number: int, first: int, last: int) -> None:
        meeting = self.meetings[number]
        arrivals = [self.start[lane][item] for lane, item in meeting.places]
        together = self._over_members(meeting, arrivals)
        ends = [t + w for t, w in zip(together, self.meeting_work[number], strict=True)]
        if any(self.lumped[lane][item] for lane, item in meeting.places):
            tails = self._over_members(meeting, [self.clock[lane] for lane, _ in meeting.places])
            ends = [np.maximum(e, t) for e, t in zip(ends, tails, strict=True)]
        for (lane, item), end in zip(meeting.places, ends, strict=True):
            self.end[lane][item] = end
            self.clock[lane] = end
        self.rendezvous[number] = tuple(together) if self.graph.unfold else (together[0],)

    def _meeting_work(self, meeting: Meeting) -> list[Floats]:
        """Transfer time by member: the longest of its communicator."""
        rows = [self.work[lane][item] for lane, item in meeting.places]
        varies = any(row.ndim == 2 and row.shape[1] > 1 for row in rows)
        if varies or not meeting.circle.is_uniform:
            full = [
                np.broadcast_to(row, self.shapes[lane])
                for row, (lane, _) in zip(rows, meeting.places, strict=True)
            ]
            return self._over_members(meeting, full)
        return [np.maximum.reduce(rows)] * len(rows)

    def _over_members(self, meeting: Meeting, values: list[Floats]) -> list[Floats]:
        """Maximum over each communicator, handed back to its members."""
        if values[0].ndim == 1:
            together = values[0] if len(values) == 1 else np.maximum.reduce(values)
            return [together] * len(values)
        circle = meeting.circle
        everyone = values[0] if len(values) == 1 else np.concatenate(values, axis=-1)
        by_group = np.take(everyone, circle.members, axis=-1).max(axis=1)
        return [by_group[:, group] for group in circle.group_of]
