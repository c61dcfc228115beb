"""Searches a sharding plan of a recommender: an additive rating first, then the simulator."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.execution import ExecutionBundle, load_execution
from perfmodel.cost.price import price
from perfmodel.errors import InputError, RefusedError
from perfmodel.memory import estimate_memory
from perfmodel.plan.placement_rules import PlacementRule, place
from perfmodel.plan.sharding import ShardingPlan
from perfmodel.plan.write_plans import to_placements, to_torchrec
from perfmodel.predict import default_models, predict
from perfmodel.prediction import Prediction
from perfmodel.program.recommender import lower_recommender_plans
from perfmodel.run import Run
from perfmodel.search.embedding_costs import Candidate, EmbeddingCosts, candidates
from perfmodel.search.makespan import Found, Option, Placement, place_shards
from perfmodel.simulator import simulate
from perfmodel.units import GIB, MS
from perfmodel.workload.recommender import RecommenderModel

Array = NDArray[np.float64]

RULES = ("round_robin", "lookup_balanced", "size_balanced", "column_wise", "row_wise")
"""Plans that every search is compared with."""
MAX_EVALUATIONS = 60_000  # placements of one table under the additive rating
_MEMORY_SHARE = 0.98  # allocator rounding of buffers is not part of the sizes of shards
_ROUNDS, _NEIGHBOURS = 12, 24  # of the search under the simulator
_RATING_SHARE = 0.5  # of the time limit


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingPlan:
    """The best plan found, its prediction, and how far the search went.

    `rating_s` is the best additive embedding rating that was found and `gap` how much it lies above
    a bound that no plan of these cuts can beat; `gain` how much faster the plan is than the best of
    the usual rules that fits.
    """

    run: Run
    plan: ShardingPlan
    prediction: Prediction
    rating_s: float
    bound_s: float
    best_rule: str | None
    best_rule_s: float | None
    evaluated: int
    simulated: int
    seconds: float

    @property
    def gap(self) -> float:
        """Of the additive rating to its lower bound."""
        return self.rating_s / self.bound_s - 1 if self.bound_s > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The document of `perfmodel plan --json`."""
        p = self.prediction
        rule = self.best_rule_s
        return {
            "plan": {"dp": self.run.plan.dp, "embedding_sharding": to_placements(self.plan)},
            "iteration_time_ms": p.iteration_time_s / MS,
            "interval_ms": [t / MS for t in p.interval_s],
            "memory_gib": p.memory.peak_bytes / GIB,
            "capacity_gib": p.memory.capacity_bytes / GIB,
            "fits": p.fits,
            "evaluated": self.evaluated,
            "simulated": self.simulated,
            "seconds": self.seconds,
            "rating_ms": self.rating_s / MS,
            "rating_lower_bound_ms": self.bound_s / MS,
            "gap": self.gap,
            "best_rule": self.best_rule,
            "best_rule_ms": None if rule is None else rule / MS,
            "gain": None if rule is None else 1 - p.iteration_time_s / rule,
            "assumptions": list(p.assumptions),
            "warnings": list(p.warnings),
        }

    def to_torchrec(self) -> dict[str, Any]:
        """The plan in TorchRec's serialised form."""
        model = _model(self.run)
        return to_torchrec(self.plan, model.tables, self.run.cluster.gpus_per_node)


def plan_embeddings(
    run: Run,
    *,
    seed: int = 0,
    seconds: float | None = None,
    memory_share: float = 1.0,
    bundle: ExecutionBundle | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> EmbeddingPlan:
    """Search the fastest sharding plan that fits in memory.

    Parameters
    ----------
    run : Run
        Of a recommender; its own sharding is one of the candidates.
    seed : int
        Same seed, same plan, unless `seconds` ends the search first.
    seconds : float, optional
        Time after which the best plan so far is returned.
    memory_share : float
        Share of a GPU's memory that may be used.
    bundle : ExecutionBundle, optional
        Calibration; the shipped one if None.

    Raises
    ------
    InputError
        If the run is no recommender or a limit is not positive.
    RefusedError
        If the tables do not fit; it says how much is missing.
    """
    if seconds is not None and not 0 < seconds < 1e6:
        raise InputError(f"--seconds {seconds!r} is not a positive number of seconds")
    if not 0 < memory_share <= 1:
        raise InputError(f"memory share {memory_share!r} is not above 0 and at most 1")
    began = clock()
    search = _Search(run, _model(run), bundle or load_execution(), memory_share)
    limit = None if seconds is None else began + seconds
    found = search.rate(seed, None if seconds is None else seconds * _RATING_SHARE)
    best, fastest = search.confirm(found)
    best, fastest = search.polish(best, fastest, np.random.default_rng(seed), limit, clock)
    rules = search.rules()
    name, (usual, usual_s) = min(rules.items(), key=lambda pair: pair[1][1])
    plan = usual if usual_s < fastest else search.plan_of(best)
    chosen = replace(run, plan=replace(run.plan, embedding=plan))
    return EmbeddingPlan(
        run=chosen,
        plan=plan,
        prediction=predict(chosen, bundle=search.bundle),
        rating_s=found.best.rating,
        bound_s=found.lower_bound,
        best_rule=name if math.isfinite(usual_s) else None,
        best_rule_s=usual_s if math.isfinite(usual_s) else None,
        evaluated=found.evaluated + search.simulated,
        simulated=search.simulated,
        seconds=clock() - began,
    )


def _model(run: Run) -> RecommenderModel:
    model = run.workload.model
    if not isinstance(model, RecommenderModel):
        raise InputError(f"embedding plans are for recommenders, the workload is a {model.family}")
    return model


class _Search:
    """Options of every table, and the simulator as a judge."""

    def __init__(
        self, run: Run, model: RecommenderModel, bundle: ExecutionBundle, memory_share: float
    ) -> None:
        self.run, self.model, self.bundle = run, model, bundle
        self.num_ranks = run.plan.num_gpus
        self.models = default_models()
        costs = EmbeddingCosts(run, model, self.models, bundle)
        ways = [candidates(t, i, self.num_ranks) for i, t in enumerate(model.tables)]
        options = costs.options([c for way in ways for c in way])
        self.ways: list[list[Candidate]] = ways
        self.options: list[list[Option]] = []
        for way in ways:
            self.options.append(options[: len(way)])
            options = options[len(way) :]
        self.limit_bytes = run.cluster.gpu.memory_bytes * memory_share
        self.simulated = 0

    @property
    def capacity(self) -> float:
        """Bytes of a rank for tables: what the rest of the run leaves."""
        copied = place("round_robin", self.model.tables, self.num_ranks, PlacementRule())
        estimate = estimate_memory(
            self.run.workload, replace(self.run.plan, embedding=copied), self.run.stack,
            self.run.cluster,
        )  # fmt: skip
        mine = [0.0] * self.num_ranks
        for entry, options in zip(copied.tables, self.options, strict=True):
            mine[entry.ranks[0]] += options[0].size
        name, total = max(estimate.by_rank.items(), key=lambda pair: pair[1])
        rest = total - mine[int(name.split()[1])]
        return max(self.limit_bytes * _MEMORY_SHARE - rest, 0.0)

    def rate(self, seed: int, seconds: float | None) -> Found:
        """Search under the additive rating."""
        return place_shards(
            self.options, self.num_ranks, self.capacity,
            seed=seed, max_evaluations=MAX_EVALUATIONS, seconds=seconds,
        )  # fmt: skip

    def plan_of(self, placement: Placement) -> ShardingPlan:
        """Sharding plan of a placement."""
        entries = [
            replace(way[number].sharding, ranks=ranks)
            for way, number, ranks in zip(
                self.ways, placement.options, placement.ranks, strict=True
            )
        ]
        return ShardingPlan(tables=tuple(entries))

    def times(self, plans: Sequence[ShardingPlan]) -> list[float]:
        """Simulated iteration time of each plan; infinite where it does not fit in memory."""
        run = self.run
        program = lower_recommender_plans(run.workload, plans, run.plan, run.stack, run.cluster)
        parameters = self.bundle.parameters
        priced = price(program, self.models, run.cluster, run.stack, parameters)
        self.simulated += len(plans)
        seconds = simulate(priced).iteration_s
        return [
            float(s) if self._fits(p) else float("inf") for s, p in zip(seconds, plans, strict=True)
        ]

    def _fits(self, plan: ShardingPlan) -> bool:
        run = self.run
        placed = replace(run.plan, embedding=plan)
        memory = estimate_memory(run.workload, placed, run.stack, run.cluster)
        return memory.fits and memory.peak_bytes <= self.limit_bytes

    def confirm(self, found: Found) -> tuple[Placement, float]:
        """The fastest of the best rated placements, as the simulator sees them.

        Raises
        ------
        RefusedError
            If none of them fits in memory.
        """
        plans = [self.plan_of(p) for p in found.elite]
        seconds = self.times(plans)
        best = int(np.argmin(seconds))
        if not np.isfinite(seconds[best]):
            raise RefusedError(
                "no plan was found that leaves memory for the rest of the run; use more GPUs"
            )
        return found.elite[best], seconds[best]

    def rules(self) -> dict[str, tuple[ShardingPlan, float]]:
        """Plans of the usual rules and of the run itself, with their times."""
        tables, ranks = self.model.tables, self.num_ranks
        rule = PlacementRule.of(self.run.stack.options)
        plans = {name: place(name, tables, ranks, rule) for name in RULES}
        own = self.run.plan.embedding
        if isinstance(own, ShardingPlan):
            plans["the run's own"] = own
        return dict(
            zip(
                plans,
                zip(plans.values(), self.times(list(plans.values())), strict=True),
                strict=True,
            )
        )

    def polish(
        self,
        start: Placement,
        seconds: float,
        rng: np.random.Generator,
        limit: float | None,
        clock: Callable[[], float],
    ) -> tuple[Placement, float]:
        """Moves of single tables that the simulator finds faster; `limit` is a time of `clock`."""
        best = start
        for _ in range(_ROUNDS):
            if limit is not None and clock() > limit:
                break
            near = [self._neighbour(best, rng) for _ in range(_NEIGHBOURS)]
            times = self.times([self.plan_of(p) for p in near])
            number = int(np.argmin(times))
            if times[number] < seconds:
                best, seconds = near[number], times[number]
        return best, seconds

    def _neighbour(self, placement: Placement, rng: np.random.Generator) -> Placement:
        """One table, costly ones more often, cut anew or moved to ranks with little to do."""
        loads = self.loads(placement)
        costs = np.array([o[n].cost for o, n in zip(self.options, placement.options, strict=True)])
        chance = np.maximum(costs, 1e-12)
        table = int(rng.choice(len(costs), p=chance / chance.sum()))
        number = int(rng.integers(len(self.options[table])))
        option = self.options[table][number]
        if option.everywhere:
            ranks = tuple(range(self.num_ranks))
        else:
            blurred = loads + rng.random(self.num_ranks) * costs[table]
            ranks = tuple(int(r) for r in np.argsort(blurred, kind="stable")[: option.count])
        options, where = list(placement.options), list(placement.ranks)
        options[table], where[table] = number, ranks
        moved = Placement(tuple(options), tuple(where), 0.0)
        return replace(moved, rating=float(self.loads(moved).max()))

    def loads(self, placement: Placement) -> Array:
        """Additive rating of every rank."""
        total = np.zeros(self.num_ranks)
        for options, number, ranks in zip(
            self.options, placement.options, placement.ranks, strict=True
        ):
            total[list(ranks)] += options[number].cost
        return total
