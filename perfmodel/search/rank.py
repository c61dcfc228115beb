"""Rates sharding plans of one recommender beside each other, and says why the best one is best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.cost.execution import ExecutionBundle, load_execution
from perfmodel.cost.price import price
from perfmodel.cost.spread import interval
from perfmodel.errors import InputError
from perfmodel.figures import spread_features
from perfmodel.memory import estimate_memory
from perfmodel.memory.records import MemoryEstimate
from perfmodel.plan.placement_rules import PlacementRule, place
from perfmodel.plan.sharding import ShardingPlan
from perfmodel.plan.torchrec_plans import read_plan
from perfmodel.predict import default_models, predict
from perfmodel.program.recommender import lower_recommender_plans
from perfmodel.run import Run
from perfmodel.schema.sections import EMBEDDING_RULES
from perfmodel.search.plan_doubt import MAX_CONTENDERS, NEAR, SURE, chance_to_win, joint_times
from perfmodel.simulator import simulate
from perfmodel.simulator.timeline import Timeline
from perfmodel.units import GIB, MS
from perfmodel.workload.recommender import RecommenderModel

if TYPE_CHECKING:
    import pandas as pd

MAX_PLANS = 20_000
Given = str | PathLike[str] | ShardingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPlan:
    """One plan rated: seconds, and why it takes them.

    `exposed_communication_s` is the mean over ranks of the time in which only communication runs;
    `straggler` the rank that the others wait for, `straggler_wait_s` the longest wait of a rank;
    `chance_to_win` the probability that it is faster than the first plan that fits.
    """

    name: str
    plan: ShardingPlan
    iteration_s: float
    interval_s: tuple[float, float]
    memory: MemoryEstimate
    exposed_communication_s: float
    straggler: str
    straggler_wait_s: float
    chance_to_win: float
    too_close_to_call: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; times in ms, memory in GiB."""
        return {
            "plan": self.name,
            "iteration_time_ms": self.iteration_s / MS,
            "interval_ms": [t / MS for t in self.interval_s],
            "memory_gib": self.memory.peak_bytes / GIB,
            "capacity_gib": self.memory.capacity_bytes / GIB,
            "fits": self.memory.fits,
            "too_close_to_call": self.too_close_to_call,
            "chance_to_win": self.chance_to_win,
            "exposed_communication_ms": self.exposed_communication_s / MS,
            "straggler": self.straggler,
            "straggler_wait_ms": self.straggler_wait_s / MS,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Plans, those that fit first, then by time; `causes_s` explains the first against the second.

    `causes_s[cause]` is how much more of the second plan's critical path that cause takes than of
    the first one's; they sum to the difference of the two iteration times.
    """

    plans: tuple[RankedPlan, ...]
    causes_s: Mapping[str, float]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The document of `perfmodel rank --json`."""
        explanation = None
        if len(self.plans) > 1:
            best, second = self.plans[:2]
            explanation = {
                "best": best.name,
                "next": second.name,
                "difference_ms": (second.iteration_s - best.iteration_s) / MS,
                "by_cause_ms": {c: s / MS for c, s in self.causes_s.items()},
            }
        return {
            "ranking": [p.to_dict() for p in self.plans],
            "explanation": explanation,
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
        }


def rank(
    run: Run,
    plans: Sequence[Given] | Mapping[str, Given],
    *,
    bundle: ExecutionBundle | None = None,
) -> pd.DataFrame:
    """Table of sharding plans, best first: times in ms, memory in GiB; see `rank_plans`."""
    import pandas as pd

    return pd.DataFrame(rank_plans(run, plans, bundle=bundle).to_dict()["ranking"])


def rank_plans(
    run: Run,
    plans: Sequence[Given] | Mapping[str, Given],
    *,
    bundle: ExecutionBundle | None = None,
) -> Ranking:
    """Rate sharding plans of one run.

    Parameters
    ----------
    run : Run
        Of a recommender; its own plan's tables play no part.
    plans : sequence or mapping from names
        Sharding plans, files of them (TorchRec's JSON or print, our placements), or names of
        placement rules such as "table_wise".
    bundle : ExecutionBundle, optional
        Calibration; the shipped one if None.

    Raises
    ------
    InputError, InvalidPlanError
        If the run is no recommender, there are no plans, or one does not fit tables and ranks.
    """
    named = named_plans(run, plans)
    calibrated = bundle or load_execution()
    program = lower_recommender_plans(
        run.workload, list(named.values()), run.plan, run.stack, run.cluster
    )
    models = default_models()
    priced = price(program, models, run.cluster, run.stack, calibrated.parameters)
    timeline = simulate(priced)
    memory = [
        estimate_memory(run.workload, replace(run.plan, embedding=p), run.stack, run.cluster)
        for p in named.values()
    ]
    seconds = timeline.iteration_s
    order = sorted(range(len(named)), key=lambda i: (not memory[i].fits, float(seconds[i])))
    chances = _chances(run, list(named.values()), timeline, order, calibrated)
    rows = _rows(run, named, timeline, memory, calibrated, chances)
    ranked = tuple(rows[i] for i in order)
    return Ranking(
        plans=ranked,
        causes_s=_difference(run, ranked, calibrated),
        assumptions=tuple(dict.fromkeys((*run.notes, *run.cluster.notes, *program.assumptions))),
        warnings=tuple(dict.fromkeys((*run.warnings, *program.warnings, *priced.warnings))),
    )


def named_plans(run: Run, plans: Sequence[Given] | Mapping[str, Given]) -> dict[str, ShardingPlan]:
    """Sharding plans by name; files and rules are read.

    Raises
    ------
    InputError, InvalidPlanError
        As `rank_plans`.
    """
    model = run.workload.model
    if not isinstance(model, RecommenderModel):
        raise InputError(f"embedding plans are for recommenders, the workload is a {model.family}")
    if not 0 < len(plans) <= MAX_PLANS:
        raise InputError(f"{len(plans)} plans to rank; give 1 to {MAX_PLANS:,}")
    pairs = plans.items() if isinstance(plans, Mapping) else [(_name(p), p) for p in plans]
    named: dict[str, ShardingPlan] = {}
    for name, given in pairs:
        unique, number = name, 2
        while unique in named:
            unique, number = f"{name} ({number})", number + 1
        named[unique] = _plan(given, run, model)
    return named


def _name(given: Given) -> str:
    return given.note or "plan" if isinstance(given, ShardingPlan) else str(given)


def _plan(given: Given, run: Run, model: RecommenderModel) -> ShardingPlan:
    ranks = run.plan.num_gpus
    if isinstance(given, ShardingPlan):
        given.check(model.tables, ranks)
        return given
    if str(given) in EMBEDDING_RULES and not Path(given).exists():
        rule = PlacementRule.of(run.stack.options)
        name = str(given)
        if name == "table_wise":  # the stack's own choice of ranks
            from perfmodel.plan.placement_rules import sharding_from_text

            return sharding_from_text(name, model.tables, ranks, rule)
        return place(name, model.tables, ranks, rule)
    return read_plan(given, model.tables, ranks, min(run.cluster.gpus_per_node, ranks))


def _chances(
    run: Run,
    plans: Sequence[ShardingPlan],
    timeline: Timeline,
    order: Sequence[int],
    bundle: ExecutionBundle,
) -> dict[int, float]:
    """Probability of each contender to beat the first plan; the others have none."""
    first = order[0]
    limit = NEAR * timeline.iteration_s[first]
    near = [i for i in order if timeline.iteration_s[i] <= limit][:MAX_CONTENDERS]
    if len(near) == 1:
        return {}
    chosen = [plans[i] for i in near]
    times = joint_times(run, chosen, bundle.parameters, default_models())
    chances = chance_to_win(times, near.index(first))
    return dict(zip(near, chances.tolist(), strict=True))


def _rows(
    run: Run,
    named: Mapping[str, ShardingPlan],
    timeline: Timeline,
    memory: Sequence[MemoryEstimate],
    bundle: ExecutionBundle,
    chances: Mapping[int, float],
) -> list[RankedPlan]:
    classes = timeline.graph.program.classes
    counts = np.array([c.multiplicity for c in classes], dtype=float)
    exposed = np.array([timeline.exposed_communication_s(c) for c in range(len(classes))])
    waits = np.array([timeline.straggler_wait_s(c) for c in range(len(classes))])
    features = spread_features(run)
    rows = []
    for i, (name, plan) in enumerate(named.items()):
        seconds = float(timeline.iteration_s[i])
        chance = chances.get(i, 0.0)
        rows.append(
            RankedPlan(
                name=name,
                plan=plan,
                iteration_s=seconds,
                interval_s=interval(seconds, features, bundle.spread),
                memory=memory[i],
                exposed_communication_s=float(counts @ exposed[:, i] / counts.sum()),
                straggler=classes[int(np.argmin(waits[:, i]))].name,
                straggler_wait_s=float(waits[:, i].max()),
                chance_to_win=chance,
                # The first plan's own chance is a half by definition: it is judged by the others.
                too_close_to_call=chance > 1 - SURE and not _is_lone(chances, i),
            )
        )
    return rows


def _is_lone(chances: Mapping[int, float], index: int) -> bool:
    """Whether `index` is the first plan and no other comes near it."""
    first = next(iter(chances), None)
    return index == first and all(c <= 1 - SURE for i, c in chances.items() if i != first)


def _difference(
    run: Run, ranked: Sequence[RankedPlan], bundle: ExecutionBundle
) -> dict[str, float]:
    """Critical path of the second plan minus that of the first, by cause, largest first."""
    if len(ranked) < 2:
        return {}
    best, second = (
        predict(replace(run, plan=replace(run.plan, embedding=p.plan)), bundle=bundle).breakdown_s
        for p in ranked[:2]
    )
    causes = dict.fromkeys((*best, *second))
    parts = {str(c): second.get(c, 0.0) - best.get(c, 0.0) for c in causes}
    return dict(sorted(parts.items(), key=lambda pair: -abs(pair[1])))
