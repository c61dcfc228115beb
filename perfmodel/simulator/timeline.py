"""The Timeline: when every task of every rank class runs in a steady iteration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.program.priced import PricedProgram
from perfmodel.program.records import TaskKind
from perfmodel.simulator.activity import Activity, wrapped
from perfmodel.simulator.compile import Graph
from perfmodel.simulator.critical_path import CriticalPath
from perfmodel.simulator.durations import Durations
from perfmodel.simulator.iteration import Iteration, Value
from perfmodel.simulator.path_walk import critical_path
from perfmodel.simulator.steady import Steady

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """One steady iteration, in seconds from the last end of the iteration before it.

    Arrays by rank class have shape (num_tasks, scenarios), or (num_tasks, scenarios, multiplicity)
    where ranks were simulated one by one. Times may be negative: host threads and streams of other
    ranks run ahead.

    iteration_s : (scenarios,)
    start_s, end_s : when a task occupies its lane; a collective does from its own arrival
    wait_s : the part of a collective before the last member arrives, 0 for other tasks
    device_s : work of the task, slowed down by what ran beside it
    issue_start_s, issue_end_s : launch by the host thread, NaN where nobody launches
    lane_rate_s : by lane of `graph`, what it advances in an iteration; a host thread that runs
        ahead advances by less than `iteration_s`
    is_settled : (scenarios,) False where iterations still differed when `simulate` gave up
    num_iterations : iterations simulated
    """

    priced: PricedProgram
    graph: Graph
    iteration_s: Floats
    start_s: tuple[Floats, ...]
    end_s: tuple[Floats, ...]
    wait_s: tuple[Floats, ...]
    device_s: tuple[Floats, ...]
    issue_start_s: tuple[Floats, ...]
    issue_end_s: tuple[Floats, ...]
    lane_rate_s: tuple[Value, ...]
    is_settled: NDArray[np.bool_]
    num_iterations: int

    @property
    def is_unfolded(self) -> bool:
        """Whether ranks of a class were simulated one by one."""
        return self.graph.unfold

    def work_s(self, rank_class: int) -> Floats:
        """Time each task works: of a collective, its transfer; shape as `start_s`."""
        tasks = self.graph.program.classes[rank_class].tasks
        start, end = self.start_s[rank_class], self.end_s[rank_class]
        is_collective = np.array([t.kind is TaskKind.COLLECTIVE for t in tasks], dtype=bool)
        selector = is_collective.reshape(-1, *(1,) * (start.ndim - 1))
        return np.where(selector, end - start - self.wait_s[rank_class], self.device_s[rank_class])

    def lane_busy_s(self, rank_class: int) -> dict[str, Floats]:
        """Work by stream, and by host thread ("… (host)", launches included), of one rank.

        Arrays have shape (scenarios,) or (scenarios, multiplicity).
        """
        places = self.graph.places[rank_class]
        work = self.work_s(rank_class)
        launch = self.issue_end_s[rank_class] - self.issue_start_s[rank_class]
        busy: dict[str, Floats] = {}
        for number, lane in enumerate(self.graph.lanes):
            if lane.owner != rank_class:
                continue
            total = work[places.lane == number].sum(axis=0)
            if lane.is_host:
                issued = (places.thread == number) & ~places.is_host
                total = total + launch[issued].sum(axis=0)
            busy[f"{lane.name} (host)" if lane.is_host else lane.name] = total
        return busy

    def straggler_wait_s(self, rank_class: int) -> Floats:
        """Time the collectives of a rank wait for others; (scenarios,) or (scenarios, ranks)."""
        total: Floats = self.wait_s[rank_class].sum(axis=0)
        return total

    def exposed_communication_s(self, rank_class: int) -> Floats:
        """Time of an iteration in which collectives transfer and no kernel runs, of one rank.

        Shape (scenarios,) or (scenarios, multiplicity). Waiting for other ranks is no transfer.
        """
        tasks = self.graph.program.classes[rank_class].tasks
        chosen = [t for t, task in enumerate(tasks) if task.kind is not TaskKind.HOST]
        shape = self.start_s[rank_class].shape[1:]
        if not chosen:
            return np.zeros(shape)
        start = (self.start_s[rank_class] + self.wait_s[rank_class])[chosen]
        rows = (len(chosen), -1)
        period = np.repeat(self.iteration_s, int(np.prod(shape[1:], dtype=int)))
        begin, end = wrapped(
            start.reshape(rows).T, self.end_s[rank_class][chosen].reshape(rows).T, period, (0, -1)
        )
        ceiling = period[:, None]
        activity = Activity(np.clip(begin, 0.0, ceiling), np.clip(end, 0.0, ceiling))
        is_comm = np.array([tasks[t].kind is TaskKind.COLLECTIVE for t in chosen] * 2, dtype=float)
        alone = (activity.level(is_comm) > 0.5) & (activity.level(1.0 - is_comm) < 0.5)
        return activity.total(alone.astype(float)).reshape(shape)

    def critical_path(self, *, scenario: int = 0) -> CriticalPath:
        """The chain of work and launches that sets the iteration time of one scenario."""
        return critical_path(self, scenario)


def assemble(priced: PricedProgram, graph: Graph, durations: Durations, steady: Steady) -> Timeline:
    """Rearrange an iteration from lanes to tasks."""
    columns: list[list[Floats]] = [[] for _ in range(5)]
    for owner in range(len(graph.places)):
        arrays = _class_arrays(owner, graph, durations, steady.iteration)
        for column, array in zip(columns, arrays, strict=True):
            column.append(array)
    start, end, wait, issue_start, issue_end = (tuple(c) for c in columns)
    return Timeline(
        priced=priced,
        graph=graph,
        iteration_s=steady.period,
        start_s=start,
        end_s=end,
        wait_s=wait,
        device_s=durations.device,
        issue_start_s=issue_start,
        issue_end_s=issue_end,
        lane_rate_s=tuple(steady.rate),
        is_settled=steady.is_settled,
        num_iterations=steady.num_iterations,
    )


def _class_arrays(
    owner: int, graph: Graph, durations: Durations, iteration: Iteration
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """(start, end, wait, issue start, issue end) of the tasks of a class."""
    cls, places = graph.program.classes[owner], graph.places[owner]
    device, issue = durations.device[owner], durations.issue[owner]
    shape: tuple[int, ...] = (len(cls.tasks), device.shape[1])
    if graph.unfold:
        shape = (*shape, cls.multiplicity)
    start, end, wait = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    issue_start, issue_end = np.full(shape, np.nan), np.full(shape, np.nan)
    for number, lane in enumerate(graph.lanes):
        if lane.owner != owner:
            continue
        ends = np.asarray(iteration.end[number]).reshape(len(lane.tasks), *shape[1:])
        if not lane.is_host:
            start[lane.tasks] = np.asarray(iteration.start[number]).reshape(ends.shape)
            end[lane.tasks] = ends
            for position, meeting in lane.meetings.items():
                task = lane.tasks[position]
                together = iteration.rendezvous[meeting]
                member = [lane for lane, _ in graph.meetings[meeting].places].index(number)
                wait[task] = together[min(member, len(together) - 1)] - start[task]
            continue
        ran = places.is_host[lane.tasks]
        hosts, launched = lane.tasks[ran], lane.tasks[~ran]
        end[hosts] = ends[ran]
        start[hosts] = ends[ran] - device[hosts]
        issue_end[launched] = ends[~ran]
        issue_start[launched] = ends[~ran] - issue[launched]
    return start, end, wait, issue_start, issue_end
