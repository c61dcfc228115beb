"""How sure it is that one sharding plan beats another: errors that plans share cancel.

A constant that is wrong (the bandwidth of a link, the rate of lookups) is wrong for every plan
alike. Each draw changes every constant once for all plans and simulates them; only what a change
does to their differences counts. Overlapping single intervals would say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.parameters import ParameterSet, parameter_names
from perfmodel.cost.price import price
from perfmodel.cost.protocol import CostModel
from perfmodel.plan.sharding import ShardingPlan
from perfmodel.program.recommender import lower_recommender_plans
from perfmodel.program.records import Program
from perfmodel.program.work import Cause
from perfmodel.run import Run
from perfmodel.simulator import simulate

Array = NDArray[np.float64]

SURE = 0.9
"""A plan is better than another for sure where it is faster in this share of the draws."""
NUM_DRAWS = 96
MAX_CONTENDERS = 16
# Plans slower than this factor are not contenders: no draw of constants makes up for it.
NEAR = 1.5
# Share of the variance of lookups and exchanges that is a plan's own: its mix of widths, skew and
# sizes is not the average of what the constants were measured on. An assumption: no set of several
# measured plans of one model is public from which it could be fitted.
OWN_SHARE = 0.25
_OWN_CAUSES = (Cause.EMBEDDING, Cause.EMBEDDING_COMM)


def joint_times(
    run: Run,
    plans: Sequence[ShardingPlan],
    parameters: ParameterSet,
    models: Sequence[CostModel],
    *,
    num_draws: int = NUM_DRAWS,
    seed: int = 0,
) -> Array:
    """Iteration times of `plans` under shared draws of all constants.

    Returns
    -------
    float64 array, shape (num_draws, len(plans)), seconds; deterministic by `seed`.
    """
    repeated = [plan for _ in range(num_draws) for plan in plans]
    program = lower_recommender_plans(run.workload, repeated, run.plan, run.stack, run.cluster)
    rng = np.random.default_rng(seed)
    values = dict(parameters.values)
    for name, (sigma, is_own) in sorted(_spreads(program, run, models).items()):
        shared, own = _pairs(rng, num_draws, 1), _pairs(rng, num_draws, len(plans))
        share = OWN_SHARE if is_own else 0.0
        drawn = np.exp(sigma * (np.sqrt(1 - share) * shared + np.sqrt(share) * own))
        values[name] = np.asarray(values.get(name, 1.0)) * drawn.ravel()
    drawn_set = ParameterSet(values=values)
    timeline = simulate(price(program, models, run.cluster, run.stack, drawn_set))
    return np.asarray(timeline.iteration_s, dtype=float).reshape(num_draws, len(plans))


def _pairs(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Standard normal rows, the second half the negative of the first: equal plans draw even."""
    half = rng.standard_normal((-(-rows // 2), columns))
    out: Array = np.concatenate([half, -half])[:rows]
    return out


def _spreads(
    program: Program, run: Run, models: Sequence[CostModel]
) -> dict[str, tuple[float, bool]]:
    """Spread (ln) of each constant, median of its works, and whether part is a plan's own."""
    found: dict[str, list[float]] = {}
    own: set[str] = set()
    works = {id(i.work): i.work for c in program.classes for t in c.tasks for i in t.work}
    for model in models:
        mine = [w for w in works.values() if model.handles(w)]
        if not mine:
            continue
        sigmas = model.estimate(mine, run.cluster).log_sigma
        for work, sigma in zip(mine, sigmas, strict=True):
            name = parameter_names(work, run.cluster, run.stack)[0]
            found.setdefault(name, []).append(float(sigma))
            if work.cause in _OWN_CAUSES:
                own.add(name)
            works.pop(id(work), None)
    return {name: (float(np.median(s)), name in own) for name, s in found.items()}


def chance_to_win(times: Array, best: int) -> Array:
    """Share of draws in which each plan is faster than `best`; shape (plans,), ties count half."""
    reference = times[:, best : best + 1]
    faster = (times < reference) + 0.5 * (times == reference)
    out: Array = np.asarray(faster, dtype=float).mean(axis=0)
    return out
