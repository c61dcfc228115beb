"""The Timeline: when every task of every rank class runs in a steady iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfmodel.program.priced import PricedProgram
from perfmodel.program.records import TaskKind
from perfmodel.simulator.activity import Activity, wrapped
from perfmodel.simulator.compile import Graph
from perfmodel.simulator.critical_path import CriticalPath
from perfmodel.simulator.durations import Durations
from perfmodel.simulator.iteration import Iteration
from perfmodel.simulator.path_walk import critical_path
from perfmodel.simulator.steady import Steady

__all__ = ["CriticalPath", "Timeline", "assemble"]

Floats = NDArray[np.float64]
Where: TypeAlias = slice | NDArray[np.int64]  # scenarios


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
    num_iterations : (scenarios,) iterations simulated
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
    lane_rate_s: tuple[Floats, ...]
    is_settled: NDArray[np.bool_]
    num_iterations: NDArray[np.int64]

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


def assemble(
    priced: PricedProgram, graph: Graph, durations: Durations, parts: Sequence[Steady]
) -> Timeline:
    """Rearrange iterations from lanes to tasks, and put scenarios in order."""
    classes = [_ClassArrays(owner, graph, durations) for owner in range(len(graph.places))]
    num = durations.scenarios
    period, settled = np.zeros(num), np.zeros(num, dtype=bool)
    iterations = np.zeros(num, dtype=np.int64)
    for part in parts:
        period[part.scenarios] = part.period
        settled[part.scenarios] = part.is_settled
        iterations[part.scenarios] = part.num_iterations
        # A slice where nothing is left out: assignments need no copies then.
        where = slice(None) if len(part.scenarios) == num else part.scenarios
        for number, lane in enumerate(graph.lanes):
            classes[lane.owner].fill(number, part.iteration, where)
    order = np.argsort(np.concatenate([part.scenarios for part in parts]))
    rates = [np.concatenate(lane)[order] for lane in zip(*(p.rate for p in parts), strict=True)]
    return Timeline(
        priced=priced,
        graph=graph,
        iteration_s=period,
        start_s=tuple(c.start for c in classes),
        end_s=tuple(c.end for c in classes),
        wait_s=tuple(c.wait for c in classes),
        device_s=durations.device,
        issue_start_s=tuple(c.issue_start for c in classes),
        issue_end_s=tuple(c.issue_end for c in classes),
        lane_rate_s=tuple(rates),
        is_settled=settled,
        num_iterations=iterations,
    )


class _ClassArrays:
    """Times of the tasks of a class, (num_tasks, scenarios[, ranks])."""

    def __init__(self, owner: int, graph: Graph, durations: Durations) -> None:
        self.graph = graph
        self.is_host = graph.places[owner].is_host
        self.device, self.issue = durations.device[owner], durations.issue[owner]
        shape: tuple[int, ...] = (len(self.is_host), durations.scenarios)
        if graph.unfold:
            shape = (*shape, graph.program.classes[owner].multiplicity)
        self.start, self.end, self.wait = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.issue_start, self.issue_end = np.full(shape, np.nan), np.full(shape, np.nan)

    def fill(self, number: int, iteration: Iteration, where: Where) -> None:
        """Times of one lane in the scenarios `where`."""
        lane = self.graph.lanes[number]
        rest = self.start[:, where].shape[1:]
        ends = np.asarray(iteration.end[number]).reshape(-1, *rest)
        if lane.is_host:
            self._fill_host(lane.tasks, ends, where)
            return
        self._put(self.end, lane.tasks, where, ends)
        starts = np.asarray(iteration.start[number]).reshape(-1, *rest)
        self._put(self.start, lane.tasks, where, starts)
        for position, meeting in lane.meetings.items():
            together = iteration.rendezvous[meeting]
            lanes = [lane for lane, _ in self.graph.meetings[meeting].places]
            member = 0 if len(together) == 1 else lanes.index(number)
            self.wait[lane.tasks[position], where] = together[member] - starts[position]

    def _fill_host(self, tasks: NDArray[np.int64], ends: Floats, where: Where) -> None:
        ran = self.is_host[tasks]
        hosts, launched = tasks[ran], tasks[~ran]
        self._put(self.end, hosts, where, ends[ran])
        self._put(self.start, hosts, where, ends[ran] - self.device[hosts][:, where])
        self._put(self.issue_end, launched, where, ends[~ran])
        begun = ends[~ran] - self.issue[launched][:, where]
        self._put(self.issue_start, launched, where, begun)

    @staticmethod
    def _put(target: Floats, tasks: NDArray[np.int64], where: Where, values: Floats) -> None:
        if isinstance(where, slice):
            target[tasks] = values
        else:
            target[tasks[:, None], where] = values
