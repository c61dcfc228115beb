"""Lowering of recommenders: sharded embeddings around data-parallel MLPs.

Every rank runs, on one compute stream: lookups, bottom MLP, interaction, top MLP, and back. An
all-to-all before the interaction and one after its gradient join the ranks; gradients of what is
copied are all-reduced. The stack says what runs beside what.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InvalidPlanError
from perfmodel.hardware.records import Cluster, FabricKind
from perfmodel.plan.placement_rules import PlacementRule, sharding_from_text
from perfmodel.plan.records import Plan
from perfmodel.plan.sharding import ShardingPlan
from perfmodel.plan.stack import Stack
from perfmodel.program.recommender_comm import Communication
from perfmodel.program.recommender_loads import RankLoads, rank_loads
from perfmodel.program.recommender_rank import RankBuilder
from perfmodel.program.recommender_settings import RecommenderSettings
from perfmodel.program.records import Program, RankClass
from perfmodel.workload.recommender import RecommenderModel
from perfmodel.workload.records import Workload

_NO_PEER_ACCESS = (
    "the GPUs exchange embeddings over PCIe without peer access: traffic is staged in host memory, "
    "where published runs of one model differ by more than 1.5 times; expect a wide interval"
)
_PEER_ACCESS = (
    "the GPUs exchange embeddings over PCIe: peer access between them is assumed to work; without "
    "it an iteration takes about ten times as long"
)


def lower_recommender(workload: Workload, plan: Plan, stack: Stack, cluster: Cluster) -> Program:
    """Program of one iteration of a recommender.

    Parameters
    ----------
    workload : Workload
        Its model is a RecommenderModel.
    plan : Plan
        Data parallel only; `plan.embedding` is a ShardingPlan, a sentence such as "table-wise", or
        None for the stack's own placement.
    stack : Stack
    cluster : Cluster

    Raises
    ------
    InvalidPlanError
        If the plan does not fit the model (a table it lacks, a rank that does not exist) or uses
        an axis other than dp.
    """
    model = _model(workload)
    sharding = plan.embedding
    if not isinstance(sharding, ShardingPlan):
        text = None if sharding is None else str(sharding)
        rule = PlacementRule.of(stack.options)
        sharding = sharding_from_text(text, model.tables, plan.num_gpus, rule)
    return lower_recommender_plans(workload, [sharding], plan, stack, cluster)


def lower_recommender_plans(
    workload: Workload,
    plans: Sequence[ShardingPlan],
    plan: Plan,
    stack: Stack,
    cluster: Cluster,
) -> Program:
    """One Program with a scenario for each sharding plan; `plan.embedding` plays no part.

    Raises
    ------
    InvalidPlanError
        As `lower_recommender`, or if `plans` is empty.
    """
    model = _model(workload)
    _check(plan, plans, model, cluster)
    num_ranks = plan.num_gpus
    loads = rank_loads(
        model,
        plans,
        num_ranks,
        global_batch=workload.global_batch,
        l2_bytes=cluster.gpu.l2_bytes,
    )
    settings = RecommenderSettings.of(stack)
    precision = settings.effective_precision(workload.precision, cluster.gpu)
    workload = replace(workload, precision=precision)
    communication = Communication.of(model, loads, workload, settings, stack, cluster)
    return Program(
        classes=_classes(model, loads, workload, settings, stack, communication),
        groups=communication.groups(),
        scenarios=len(plans),
        assumptions=_assumptions(plans, settings, stack),
        warnings=(*model.warnings, *_link_warnings(cluster, num_ranks)),
    )


def _model(workload: Workload) -> RecommenderModel:
    if not isinstance(workload.model, RecommenderModel):
        raise InvalidPlanError(f"workload {workload.name!r} is not a recommender")
    return workload.model


def _check(
    plan: Plan, plans: Sequence[ShardingPlan], model: RecommenderModel, cluster: Cluster
) -> None:
    if not plans:
        raise InvalidPlanError("no sharding plan to lower")
    for axis in ("tp", "pp", "cp", "ep"):
        if getattr(plan, axis) != 1:
            raise InvalidPlanError(
                f"{axis} {getattr(plan, axis)} has no meaning for a recommender; use dp and an "
                "embedding sharding plan"
            )
    if plan.num_gpus != cluster.num_gpus:
        raise InvalidPlanError(
            f"dp {plan.num_gpus} is not the {cluster.num_gpus} GPUs of the cluster; use all of them"
        )
    for sharding in plans:
        sharding.check(model.tables, plan.num_gpus)


@dataclass(frozen=True, slots=True)
class _Group:
    name: str
    ranks: list[int]


def _groups(
    loads: RankLoads, settings: RecommenderSettings, communication: Communication
) -> list[_Group]:
    """Ranks with equal loads in every scenario, and equal company, are one class."""
    colours: list[int] = []
    known: dict[tuple[object, ...], int] = {}
    for rank in range(loads.lookups.shape[1]):
        is_bottom = settings.keeps_bottom_on_first_rank and rank == 0
        columns = loads.select(rank)
        key = (is_bottom, *(np.round(v, 6).tobytes() for v in columns.values()))
        colours.append(known.setdefault(key, len(known)))
    colours = _refined(colours, list(communication.groups().values()))
    found: dict[int, list[int]] = {}
    for rank, colour in enumerate(colours):
        found.setdefault(colour, []).append(rank)
    return [_Group(_class_name(ranks), ranks) for ranks in found.values()]


def _refined(colours: list[int], groups: Sequence[NDArray[np.int64]]) -> list[int]:
    """Split classes until each one's ranks meet the same classes in every communicator.

    The simulator lets one rank stand for its class, which needs that.
    """
    while True:
        company: list[list[object]] = [[c] for c in colours]
        for group in groups:
            for members in group.tolist():
                make_up = tuple(sorted(colours[r] for r in members))
                for rank in members:
                    company[rank].append(make_up)
        numbers: dict[tuple[object, ...], int] = {}
        refined = [numbers.setdefault(tuple(c), len(numbers)) for c in company]
        if len(numbers) == len(set(colours)):
            return refined
        colours = refined


def _class_name(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"rank {ranks[0]} and {len(ranks) - 1} alike"


def _classes(
    model: RecommenderModel,
    loads: RankLoads,
    workload: Workload,
    settings: RecommenderSettings,
    stack: Stack,
    communication: Communication,
) -> tuple[RankClass, ...]:
    classes = []
    for group in _groups(loads, settings, communication):
        builder = RankBuilder(
            rank=group.ranks[0],
            model=model,
            loads=loads.select(group.ranks[0]),
            workload=workload,
            settings=settings,
            stack=stack,
            communication=communication,
        )
        ranks = np.asarray(group.ranks, dtype=np.int64)
        classes.append(RankClass(name=group.name, ranks=ranks, tasks=builder.build()))
    return tuple(classes)


def _assumptions(
    plans: Sequence[ShardingPlan], settings: RecommenderSettings, stack: Stack
) -> tuple[str, ...]:
    notes = list(stack.assumptions)
    if len(plans) == 1 and plans[0].note:
        notes.append(f"embedding tables are placed by the rule {plans[0].note}")
        hot = [t.hot_fraction for t in plans[0].tables if t.hot_fraction]
        if hot:
            notes.append(f"{hot[0]:.0%} of lookups hit rows that every rank holds")
    if settings.keeps_bottom_on_first_rank:
        notes.append("the bottom MLP runs on rank 0 for the global batch")
    notes.append("ids spread evenly over the rows of a table")
    return tuple(notes)


def _link_warnings(cluster: Cluster, num_ranks: int) -> tuple[str, ...]:
    if num_ranks == 1:
        return ()
    if cluster.node.fabric is FabricKind.PCIE_HOST:
        return (_NO_PEER_ACCESS,)
    return (_PEER_ACCESS,) if cluster.node.fabric is FabricKind.PCIE else ()
