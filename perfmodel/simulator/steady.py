"""Repeat an iteration until it has settled.

Without contention one iteration is a max-plus linear map x(k+1) = A x(k) of where the lanes
stand. Two facts are used. If every component advances by a constant amount of its own, and the
fastest growing of them sets the pace of the last end, then no later iteration differs. And if the
map only repeats every c iterations with mean period p, then max over i < c of x(k-i) + i p is a
state that repeats every iteration (its image is itself plus p), so it goes on from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from perfmodel.simulator.compile import Graph, Place
from perfmodel.simulator.iteration import Evaluator, Iteration, Past, Value, Values

Floats = NDArray[np.float64]

# Sums of 10^4 durations carry rounding of up to 10^4 x 1.1e-16 of the period.
CONVERGED = 1e-11
# Iterations averaged where the period repeats in a longer cycle: a multiple of 2, 3, 4 and 6.
CYCLE = 12
# Leaves room for a few iterations that are not like those to come, and for CYCLE that are.
AVERAGE_EVERY = 16
# Iterations at rest that a path from a launch to the end of a kernel may take: one on the thread,
# one on the stream. Launch queues that reach further back do not set the pace.
RELEVANT_QUEUE = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steady:
    """The iteration in which some of the scenarios settled.

    Times count from the last end of the iteration before. `period` and `rate`, what each lane
    advances by, have the chosen scenarios as first axis.
    """

    scenarios: NDArray[np.int64]
    iteration: Iteration
    period: Floats
    rate: list[Floats]
    is_settled: bool
    num_iterations: int


def steady_state(graph: Graph, evaluator: Evaluator, *, max_iterations: int) -> list[Steady]:
    """Iterate until every scenario has settled, at most `max_iterations` times.

    Scenarios leave as soon as they settle, so that one is not affected by the others.
    """
    loop = _Loop(graph, evaluator)
    if graph.program.barrier:
        # Every iteration starts with all lanes at rest, so the first is like all others.
        loop.advance()
        return [loop.leave(np.ones(len(loop.scenarios), dtype=bool), is_settled=True)]
    parts = []
    for n in range(max_iterations):
        if n and n % AVERAGE_EVERY == 0:
            loop.average()
        loop.advance()
        if loop.is_settled.any():
            parts.append(loop.leave(loop.is_settled, is_settled=True))
            if not len(loop.scenarios):
                return parts
        loop.skip_ahead()
    parts.append(loop.leave(~loop.is_settled, is_settled=False))
    return parts


class _Columns:
    """Lists of lane values as one matrix (scenarios, columns) and back."""

    def __init__(self, sample: Sequence[Value]) -> None:
        self.is_scalar = not isinstance(sample[0], np.ndarray)
        self.widths = [
            v.shape[1] if isinstance(v, np.ndarray) and v.ndim == 2 else 1 for v in sample
        ]
        first = sample[0]
        self.is_unfolded = isinstance(first, np.ndarray) and first.ndim == 2

    def matrix(self, values: Sequence[Value]) -> Floats:
        if self.is_scalar:
            return np.array(values, dtype=np.float64)[None]
        if self.is_unfolded:
            return np.concatenate(values, axis=1)
        return np.stack(values, axis=1)

    def values(self, matrix: Floats) -> list[Value]:
        if self.is_scalar:
            return list(matrix[0].tolist())
        return list(self.arrays(matrix))

    def arrays(self, matrix: Floats) -> list[Floats]:
        """By lane (scenarios,) or (scenarios, ranks)."""
        if self.is_unfolded:
            return list(np.split(matrix, np.cumsum(self.widths)[:-1], axis=1))
        return list(matrix.T)

    def envelope(self, ends: Sequence[list[Values]], moves: Sequence[Floats]) -> list[Values]:
        """Lane by lane, the maximum of `ends`, each moved by (scenarios,)."""
        lanes: list[Values] = []
        for rows in zip(*ends, strict=True):
            arrays = [np.asarray(row) for row in rows]
            wide = [m[:, None] if self.is_unfolded else m for m in moves]
            top = np.maximum.reduce([a + m for a, m in zip(arrays, wide, strict=True)])
            lanes.append(top.tolist() if self.is_scalar else top)
        return lanes


class _Loop:
    """Where the lanes stand, counted from the last end so far, and what was seen."""

    def __init__(self, graph: Graph, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        backs = set().union(*(lane.queue_back for lane in graph.lanes))
        self.backs = sorted(b for b in backs if b > 0)
        is_short = bool(self.backs) and self.backs[0] <= RELEVANT_QUEUE
        self.carried = _carried(graph, with_queue=is_short)
        self.depth = max([*self.backs, int(bool(self.carried))], default=0)
        clocks = evaluator.zero_clocks()
        self.columns = _Columns(clocks)
        self.begin = self.columns.matrix(clocks)
        self.past: deque[tuple[list[Values], Floats]] = deque(maxlen=self.depth)
        # Ends are needed for as many earlier iterations as an item can wait for.
        kept = CYCLE + min(self.depth, RELEVANT_QUEUE)
        self.history: deque[tuple[Floats, list[Values]]] = deque(maxlen=kept)
        self.periods: list[Floats] = []
        self.carried_before: Floats | None = None
        self.rates: Floats | None = None
        self.lane_rate = self.begin
        self.scenarios = np.arange(len(self.begin))
        self.streak = np.zeros(len(self.begin), dtype=np.int64)  # iterations with equal rates
        self.is_constant: NDArray[np.bool_] = np.zeros(len(self.begin), dtype=bool)
        self.is_settled = self.is_constant

    def advance(self) -> None:
        """One more iteration; judges whether it has settled."""
        past = [Past(end, self.columns.values(offset)) for end, offset in self.past]
        iteration = self.evaluator.iterate(self.columns.values(self.begin), past)
        clock = self.columns.matrix(iteration.clock)
        period = clock.max(axis=1)
        self.periods.append(period)
        self.lane_rate = clock - self.begin
        self._judge(self._all_rates(iteration, period), period)
        self.begin = clock - period[:, None]
        if self.depth:
            self.past.appendleft((iteration.end, np.zeros_like(clock)))
            self._rebase(period[:, None])
        self.history.appendleft((self.begin, iteration.end if self.depth else []))
        self.iteration = iteration

    def _rebase(self, later: Floats) -> None:
        """Count from `later` on: (scenarios, 1) or by lane (scenarios, columns)."""
        self.past = deque(((e, offset + later) for e, offset in self.past), maxlen=self.depth)

    def _all_rates(self, iteration: Iteration, period: Floats) -> Floats | None:
        """What every lane and every item that the next iteration waits for advanced by."""
        if not self.carried:
            return self.lane_rate
        ends: list[Value] = [iteration.end[lane][item] for lane, item in self.carried]
        now, before = _Columns(ends).matrix(ends), self.carried_before
        self.carried_before = now - period[:, None]
        return None if before is None else np.hstack([self.lane_rate, now - before])

    def _judge(self, rates: Floats | None, period: Floats) -> None:
        before, self.rates = self.rates, rates
        self.is_constant = self.is_settled = np.zeros(len(period), dtype=bool)
        if rates is None or len(self.periods) < 2:
            return
        slack = CONVERGED * period
        same = None if before is None else (np.abs(rates - before) <= slack[:, None]).all(axis=1)
        self.streak = np.zeros_like(self.streak) if same is None else (self.streak + 1) * same
        memory = self._memory(period)
        self.is_constant = self.streak >= memory
        is_uniform = (np.abs(rates - period[:, None]) <= slack[:, None]).all(axis=1)
        is_uniform &= self.streak >= memory - 1
        sets_pace = rates.max(axis=1) <= period + slack
        self.is_settled = np.asarray(is_uniform | (self.is_constant & sets_pace), dtype=bool)

    def _memory(self, period: Floats) -> NDArray[np.int64]:
        """How many iterations decide the next one, by scenario.

        A launch queue that reaches b iterations back sets the pace only if a path from a launch to
        the end of a kernel exceeds b periods. Such a path crosses a thread and a stream: it is no
        longer than two iterations that start at rest.
        """
        memory = np.ones(len(period), dtype=np.int64)
        for back in self.backs:
            memory[back * period <= RELEVANT_QUEUE * self.periods[0]] = back
        return memory

    def skip_ahead(self) -> None:
        """Where a lane that grows faster has yet to catch up, go to where it has.

        The final pace does not depend on where lanes start, so the jump may overshoot.
        """
        period, fastest = self.periods[-1], self.lane_rate.argmax(axis=1)[:, None]
        lead = np.take_along_axis(self.lane_rate, fastest, axis=1)[:, 0] - period
        lag = -np.take_along_axis(self.begin, fastest, axis=1)[:, 0]
        jumps = self.is_constant & ~self.is_settled & (lead > CONVERGED * period)
        if not jumps.any():
            return
        count = np.where(jumps, np.ceil(lag / np.where(jumps, lead, 1.0)) + 1, 0.0)
        shift = count[:, None] * (self.lane_rate - period[:, None])
        begin = self.begin + shift
        top = begin.max(axis=1, keepdims=True)
        self.begin = begin - top
        self._rebase(top - shift)
        self.rates = None
        self.history.clear()

    def average(self) -> None:
        """Start from the upper envelope of the last iterations, each moved by the mean period."""
        depth = min(self.depth, RELEVANT_QUEUE)
        number = min(CYCLE, len(self.history) - depth)
        if number < 2:
            return
        recent = np.array(self.periods[: -number - depth - 1 : -1])
        mean = recent[:number].mean(axis=0)
        since = np.concatenate([np.zeros((1, len(mean))), np.cumsum(recent, axis=0)])
        moves = [k * mean - since[k] for k in range(number)]
        self.begin = np.maximum.reduce(
            [self.history[k][0] + moves[k][:, None] for k in range(number)]
        )
        self.past.clear()
        for back in range(depth):
            steps = [k * mean - since[k + back + 1] for k in range(number)]
            ends = [self.history[k + back][1] for k in range(number)]
            envelope = self.columns.envelope(ends, steps)
            self.past.append((envelope, np.zeros_like(self.begin)))
        self.rates = self.carried_before = None

    def leave(self, chosen: NDArray[np.bool_], *, is_settled: bool) -> Steady:
        """Record the last iteration of the chosen scenarios and go on without them."""
        is_all = bool(chosen.all())
        part = Steady(
            scenarios=self.scenarios[chosen],
            iteration=self.iteration if is_all else self.iteration.take(chosen),
            period=self.periods[-1][chosen],
            rate=self.columns.arrays(self.lane_rate[chosen]),
            is_settled=is_settled,
            num_iterations=len(self.periods),
        )
        self.scenarios = self.scenarios[~chosen]
        if not is_all:
            self._keep(~chosen)
        return part

    def _keep(self, chosen: NDArray[np.bool_]) -> None:
        def ends(values: list[Values]) -> list[Values]:
            return [np.asarray(v)[:, chosen] for v in values]

        self.evaluator = self.evaluator.take(chosen)
        self.begin, self.lane_rate = self.begin[chosen], self.lane_rate[chosen]
        self.past = deque(((ends(e), o[chosen]) for e, o in self.past), maxlen=self.depth)
        history = ((b[chosen], ends(e)) for b, e in self.history)
        self.history = deque(history, maxlen=self.history.maxlen)
        self.periods = [p[chosen] for p in self.periods]
        if self.carried_before is not None:
            self.carried_before = self.carried_before[chosen]
        if self.rates is not None:
            self.rates = self.rates[chosen]
        self.streak = self.streak[chosen]
        self.is_constant, self.is_settled = self.is_constant[chosen], self.is_settled[chosen]


def _carried(graph: Graph, *, with_queue: bool) -> list[Place]:
    """Items that later iterations wait for."""
    items = {p for lane in graph.lanes for j in lane.joins.values() for p in j.before}
    if with_queue:
        for lane in graph.lanes:
            # Between breaks all launches reach back equally far.
            for first, last in pairwise([0, *lane.breaks] if lane.is_host else ()):
                if lane.queue_back[first] > 0:
                    freed = slice(first, last)
                    items.update(zip(lane.queue_lane[freed], lane.queue_item[freed], strict=True))
    return sorted(items)
