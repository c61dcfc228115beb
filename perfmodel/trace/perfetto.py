"""Timeline -> a trace that Perfetto and chrome://tracing open.

One process a rank class, one thread a host thread or stream, one complete event a task or launch,
and flow arrows for what starts what: launch -> kernel, awaited task -> waiting task, and the last
member of a collective -> the members that waited for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.program.records import RankClass, Task, TaskKind
from perfmodel.program.work import Cause
from perfmodel.simulator import Timeline
from perfmodel.units import US

Event = dict[str, Any]
Track = tuple[int, int]  # process, thread

# A hundredth of a nanosecond: enough digits for any kernel, and short numbers in the file.
_DIGITS = 5


def write_perfetto(timeline: Timeline, path: str | PathLike[str], *, scenario: int = 0) -> None:
    """Write one iteration of `timeline` as Chrome trace JSON.

    Parameters
    ----------
    timeline : Timeline
        Where ranks were simulated one by one, the first rank of each class is shown.
    path : str or path-like
        File to write; replaced if it exists.
    scenario : int
        Which scenario.
    """
    document = perfetto_document(timeline, scenario=scenario)
    Path(path).write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")


def perfetto_document(timeline: Timeline, *, scenario: int = 0) -> dict[str, Any]:
    """What `write_perfetto` writes; times in microseconds from the first event."""
    return {
        "displayTimeUnit": "ns",
        "otherData": {
            "iteration_ms": float(timeline.iteration_s[scenario]) * 1e3,
            "scenario": scenario,
        },
        "traceEvents": list(_Document(timeline, scenario).events()),
    }


class _Document:
    def __init__(self, timeline: Timeline, scenario: int) -> None:
        self.timeline = timeline
        self.classes = timeline.priced.program.classes
        self.start = [self._column(a, scenario) for a in timeline.start_s]
        self.end = [self._column(a, scenario) for a in timeline.end_s]
        self.wait = [self._column(a, scenario) for a in timeline.wait_s]
        self.issue_start = [self._column(a, scenario) for a in timeline.issue_start_s]
        self.issue_end = [self._column(a, scenario) for a in timeline.issue_end_s]
        firsts = [np.nanmin(a) for a in (*self.start, *self.issue_start) if np.isfinite(a).any()]
        self.origin = float(min(firsts, default=0.0))
        self.tracks = [_tracks(cls) for cls in self.classes]
        self.num_flows = 0

    @staticmethod
    def _column(array: np.ndarray, scenario: int) -> np.ndarray:
        return array[:, scenario] if array.ndim == 2 else array[:, scenario, 0]

    def events(self) -> Iterator[Event]:
        for c, cls in enumerate(self.classes):
            yield from self._names(c, cls)
        for c, cls in enumerate(self.classes):
            for t, task in enumerate(cls.tasks):
                yield from self._slices(c, t, task)
        for c, cls in enumerate(self.classes):
            for t, task in enumerate(cls.tasks):
                yield from self._arrows(c, t, task)
        yield from self._meetings()

    def _names(self, c: int, cls: RankClass) -> Iterator[Event]:
        ranks = f"rank {int(cls.ranks[0])}"
        if cls.multiplicity > 1:
            ranks = f"{cls.multiplicity} ranks, e.g. {int(cls.ranks[0])}"
        yield _metadata("process_name", c, 0, name=f"{cls.name} ({ranks})")
        yield _metadata("process_sort_index", c, 0, sort_index=c)
        for (is_host, lane), thread in self.tracks[c].items():
            kind = "host" if is_host else "stream"
            yield _metadata("thread_name", c, thread, name=f"{kind} {lane}")
            yield _metadata("thread_sort_index", c, thread, sort_index=thread)

    def _slices(self, c: int, t: int, task: Task) -> Iterator[Event]:
        is_host = task.kind is TaskKind.HOST
        causes = self.timeline.priced.causes[c][t]
        cause = max(causes, key=lambda k: causes[k]) if causes else Cause.IDLE
        args: Event = {"cause": str(cause), "phase": str(task.phase)}
        if task.launches != 1.0:
            args["launches"] = round(task.launches, 2)
        if len(causes) > 1:
            args["causes"] = {str(cause): round(share, 4) for cause, share in causes.items()}
        if task.group is not None:
            args["group"] = task.group
            args["wait_us"] = self._us(self.wait[c][t])
        yield self._slice(
            self._track(c, is_host, task.lane),
            task.name,
            cause,
            (self.start[c][t], self.end[c][t]),
            args,
        )
        if not is_host and task.issued_by is not None:
            span = (self.issue_start[c][t], self.issue_end[c][t])
            yield self._slice(
                self._track(c, True, task.issued_by), f"launch {task.name}", Cause.HOST, span, {}
            )

    def _slice(
        self, track: Track, name: str, cause: Cause, span: tuple[float, float], args: Event
    ) -> Event:
        event: Event = {
            "ph": "X",
            "name": name,
            "cat": str(cause),
            "pid": track[0],
            "tid": track[1],
            "ts": self._us(span[0] - self.origin),
            "dur": self._us(span[1] - span[0]),
        }
        return {**event, "args": args} if args else event

    def _arrows(self, c: int, t: int, task: Task) -> Iterator[Event]:
        here = self._track(c, task.kind is TaskKind.HOST, task.lane)
        if task.kind is not TaskKind.HOST and task.issued_by is not None:
            there = self._track(c, True, task.issued_by)
            yield from self._arrow("launch", there, self.issue_start[c][t], here, self.start[c][t])
        for awaited in task.waits:
            other = self.classes[c].tasks[awaited]
            there = self._track(c, other.kind is TaskKind.HOST, other.lane)
            if there != here:
                yield from self._arrow("wait", there, self.end[c][awaited], here, self.start[c][t])

    def _meetings(self) -> Iterator[Event]:
        graph = self.timeline.graph
        for meeting in graph.meetings:
            members = []
            for number, position in meeting.places:
                lane = graph.lanes[number]
                members.append((lane.owner, int(lane.tasks[position])))
            last = max(members, key=lambda m: self.start[m[0]][m[1]])
            there = self._track_of(*last)
            for c, t in members:
                if (c, t) != last and self.wait[c][t] > 0:
                    begin = self.start[c][t] + self.wait[c][t]
                    yield from self._arrow(
                        "rendezvous",
                        there,
                        self.start[last[0]][last[1]],
                        self._track_of(c, t),
                        begin,
                    )

    def _track_of(self, c: int, t: int) -> Track:
        task = self.classes[c].tasks[t]
        return self._track(c, task.kind is TaskKind.HOST, task.lane)

    def _track(self, c: int, is_host: bool, lane: str) -> Track:
        return c, self.tracks[c][is_host, lane]

    def _arrow(
        self, name: str, there: Track, left: float, here: Track, reached: float
    ) -> Iterator[Event]:
        self.num_flows += 1
        common = {"cat": "flow", "name": name, "id": self.num_flows}
        yield {
            "ph": "s", **common, "pid": there[0], "tid": there[1],
            "ts": self._us(left - self.origin),
        }  # fmt: skip
        yield {
            "ph": "f", "bp": "e", **common, "pid": here[0], "tid": here[1],
            "ts": self._us(reached - self.origin),
        }  # fmt: skip

    @staticmethod
    def _us(seconds: float) -> float:
        return round(float(seconds) / US, _DIGITS)


def _tracks(cls: RankClass) -> dict[tuple[bool, str], int]:
    """(is host, lane) -> thread number, host threads first."""
    hosts: dict[tuple[bool, str], None] = {}
    streams: dict[tuple[bool, str], None] = {}
    for task in cls.tasks:
        if task.kind is TaskKind.HOST:
            hosts[True, task.lane] = None
        else:
            streams[False, task.lane] = None
            if task.issued_by is not None:
                hosts[True, task.issued_by] = None
    return {key: number for number, key in enumerate([*hosts, *streams], start=1)}


def _metadata(what: str, process: int, thread: int, **args: str | int) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": args}
