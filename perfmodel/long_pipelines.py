"""Long pipelines: two short runs simulated, the rest by the straight line through them.

Once a pipeline is full, one more round of micro-batches adds the same time: the iteration is
linear in their number, exactly so without contention. Simulating every pass of 2,000
micro-batches on 64 stages would only repeat that slope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from perfmodel.program.work import Cause
from perfmodel.run import Run

# Rounds of `pp` micro-batches in the two short runs: filling takes one, draining another.
_ROUNDS = (2, 3)
# Pipelines are shortened where that saves most of the work.
_LEAST_ROUNDS = 7
_LEAST_PASSES = 8_000  # stages x chunks x micro-batches; fewer take less than a second


def shortened(run: Run) -> tuple[Run, Run] | None:
    """The run with 2 and with 3 rounds of micro-batches; None where it is simulated whole."""
    plan = run.plan
    if plan.pp == 1:
        return None
    count = plan.num_micro_batches(run.workload.global_batch)
    passes = count * plan.pp * plan.vp
    if passes < _LEAST_PASSES or count < _LEAST_ROUNDS * plan.pp:
        return None
    # a count that the stages do not divide is not interleaved: keep the remainder
    rest = count % plan.pp
    few, more = (_with_micro_batches(run, rounds * plan.pp + rest) for rounds in _ROUNDS)
    return few, more


def _with_micro_batches(run: Run, count: int) -> Run:
    batch = count * run.plan.dp * run.plan.micro_batch
    return replace(run, workload=replace(run.workload, global_batch=batch))


def extrapolated(
    run: Run, few: Mapping[Cause, float], more: Mapping[Cause, float]
) -> dict[Cause, float]:
    """Seconds by cause of the whole run from those of the two `shortened` ones."""
    plan = run.plan
    count = plan.num_micro_batches(run.workload.global_batch)
    known = _ROUNDS[1] * plan.pp + count % plan.pp
    slope = (count - known) / ((_ROUNDS[1] - _ROUNDS[0]) * plan.pp)
    causes = dict.fromkeys([*more, *few])
    return {
        cause: max(0.0, (1 + slope) * more.get(cause, 0.0) - slope * few.get(cause, 0.0))
        for cause in causes
    }
