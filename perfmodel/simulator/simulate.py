"""simulate: a priced Program in, a Timeline out."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from perfmodel.errors import InputError
from perfmodel.program.priced import PricedProgram
from perfmodel.simulator.arrays import ArrayEvaluator
from perfmodel.simulator.compile import compile_graph
from perfmodel.simulator.contention import contended, is_contended
from perfmodel.simulator.durations import Durations, durations_of, has_rank_axis, lane_durations
from perfmodel.simulator.iteration import Evaluator
from perfmodel.simulator.scalar import ScalarEvaluator
from perfmodel.simulator.schedule import schedule
from perfmodel.simulator.steady import steady_state
from perfmodel.simulator.timeline import Timeline, assemble

# Plans settle within a handful of iterations; this gives longer cycles three tries.
MAX_ITERATIONS = 60


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No garbage collection: runs would scan all tasks of a large program again and again.

    Nothing is lost, since the simulator makes no reference cycles of any size.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def simulate(
    priced: PricedProgram, *, max_iterations: int = MAX_ITERATIONS, unfold: bool = False
) -> Timeline:
    """When each task runs in a steady iteration.

    Parameters
    ----------
    priced : PricedProgram
        Durations (num_tasks, scenarios) by class, or (num_tasks, scenarios, multiplicity).
    max_iterations : int
        Iterations after which the last one is reported although it had not settled.
    unfold : bool
        Simulate every rank on its own with its true communicators, even where ranks are equal.
        Always done where durations differ by rank.

    Returns
    -------
    Timeline
        Times of all scenarios.

    Raises
    ------
    InputError
        If the program or a duration is not usable.
    DeadlockError
        If ranks wait for each other forever; names ranks and collectives.

    Notes
    -----
    On a host thread items run in order. The launch of a task starts when the thread is free and
    the kernel `launch_queue` launches before it has ended. With h the end of that launch, n its
    launches, d the dispatch time, w the work, l the launch latency:

        start = max(lane, h - d (1 - 1/n) + l, ends of waits)
        end   = max(start + w, h + l + w / n)

    which is exact for n equal kernels issued evenly: the first one starts after d / n, the last
    one not before it was issued. A collective occupies its lane from `start`, transfers from the
    latest start of its communicator, and ends together on all members after the longest w.
    """
    if max_iterations < 1:
        raise InputError(f"max_iterations {max_iterations} is not positive")
    with _collector_paused():
        return _simulated(priced, max_iterations, unfold=unfold or has_rank_axis(priced))


def _simulated(priced: PricedProgram, max_iterations: int, *, unfold: bool) -> Timeline:
    graph = compile_graph(priced.program, unfold=unfold)
    durations = durations_of(priced, graph)
    operations = schedule(graph)

    def run(durations: Durations) -> Timeline:
        pieces = lane_durations(graph, durations)
        is_scalar = durations.scenarios == 1 and not graph.unfold
        kind = ScalarEvaluator if is_scalar else ArrayEvaluator
        evaluator: Evaluator = kind(graph, operations, pieces)
        parts = steady_state(graph, evaluator, max_iterations=max_iterations)
        return assemble(priced, graph, durations, parts)

    return contended(graph, durations, run) if is_contended(graph) else run(durations)
