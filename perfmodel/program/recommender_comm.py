"""Collectives of a recommender: sizes, communicators and formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfmodel.hardware.records import Cluster, Dtype, GroupShape
from perfmodel.plan.stack import Stack
from perfmodel.program.recommender_loads import RankLoads
from perfmodel.program.recommender_settings import RecommenderSettings
from perfmodel.program.recommender_work import amount
from perfmodel.program.work import Amount, Cause, Collective, CollectiveKind
from perfmodel.workload.recommender import RecommenderModel
from perfmodel.workload.records import Workload

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One collective, how often it happens in each scenario, and its communicators.

    `count` is 0 where a scenario has none; a fraction where a library's own transport takes that
    share of NCCL's time.
    """

    name: str
    work: Collective
    count: Amount
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """What the ranks exchange in one iteration; a list is empty where nothing is."""

    num_ranks: int
    ranks_per_node: int
    ids: tuple[Step, ...]
    vectors: tuple[Step, ...]  # forward; backward moves the same bytes the other way
    gradients: tuple[Step, ...]  # of vectors, backward
    dense_early: tuple[Step, ...]  # gradients of the top MLP and cross layers, ready first
    dense_late: tuple[Step, ...]  # of the bottom MLP
    copied_rows: tuple[Step, ...]  # of rows that every rank holds

    @classmethod
    def of(
        cls,
        model: RecommenderModel,
        loads: RankLoads,
        workload: Workload,
        settings: RecommenderSettings,
        stack: Stack,
        cluster: Cluster,
    ) -> Communication:
        """Sizes of all collectives from the loads of all ranks."""
        num_ranks = loads.lookups.shape[1]
        per_node = min(cluster.gpus_per_node, num_ranks)
        maker = _Maker(
            num_ranks, per_node, settings.is_exchange_hierarchical, settings.network_time_fraction
        )
        vector = settings.exchange_dtype(workload.precision)
        sent = loads.exchange_elements.copy()
        if settings.keeps_bottom_on_first_rank and num_ranks > 1:
            sent[:, 0] += workload.global_batch * model.dense_width
        received_ids = loads.lookups * settings.id_bytes if settings.exchanges_ids else 0 * sent
        gradient = stack.gradient_dtype or workload.precision.master
        early, late, rows = _dense_elements(model, loads, settings)
        if gradient.num_bytes * early.max() < stack.gradient_bucket_bytes:
            # Everything fits one bucket, which leaves when it is full: with the last gradients.
            early, late = (
                (early, late) if settings.has_own_exchange_lane else (0 * early, early + late)
            )
        exchange = maker.exchange("vectors", sent, vector)
        return cls(
            num_ranks=num_ranks,
            ranks_per_node=per_node,
            ids=maker.exchange("ids", received_ids / Dtype.INT64.num_bytes, Dtype.INT64),
            vectors=(*exchange, *maker.partial_sums(loads, vector, CollectiveKind.REDUCE_SCATTER)),
            gradients=(*exchange, *maker.partial_sums(loads, vector, CollectiveKind.ALL_GATHER)),
            dense_early=maker.all_reduce("top gradients", early, gradient),
            dense_late=maker.all_reduce("gradients", late, gradient),
            copied_rows=maker.all_reduce("row gradients", rows, gradient),
        )

    def groups(self) -> dict[str, NDArray[np.int64]]:
        """Ranks of every communicator, for `Program.groups`."""
        if self.num_ranks == 1:
            return {}
        grid = np.arange(self.num_ranks, dtype=np.int64).reshape(-1, self.ranks_per_node)
        every = {"world": grid.reshape(1, -1), "node": grid, "rail": grid.T.copy()}
        steps = (*self.ids, *self.vectors, *self.gradients, *self.dense_early, *self.dense_late)
        steps = (*steps, *self.copied_rows)
        used = {step.group for step in steps}
        return {name: ranks for name, ranks in every.items() if name in used}


def _dense_elements(
    model: RecommenderModel, loads: RankLoads, settings: RecommenderSettings
) -> tuple[Array, Array, Array]:
    """Values all-reduced in each scenario, equal on all ranks: top MLP, bottom MLP, rows."""
    rows: Array = loads.dense_elements.max(axis=1)
    top = dense_parameters(model, with_bottom=False)
    everything = dense_parameters(model, with_bottom=not settings.keeps_bottom_on_first_rank)
    return 0 * rows + top, 0 * rows + everything - top, rows


def dense_parameters(model: RecommenderModel, *, with_bottom: bool = True) -> int:
    """Parameters outside the tables."""
    layers = (*model.top_layers(), *model.cross_operators())
    if with_bottom:
        layers = (*layers, *model.bottom_layers())
    return sum(layer.num_parameters for layer in layers)


@dataclass(frozen=True, slots=True)
class _Maker:
    num_ranks: int
    per_node: int
    is_hierarchical: bool
    network_time_fraction: float

    @property
    def _num_nodes(self) -> int:
        return self.num_ranks // self.per_node

    @property
    def _world(self) -> GroupShape:
        return GroupShape(ranks_per_node=self.per_node, num_nodes=self._num_nodes)

    @property
    def _node(self) -> GroupShape:
        return GroupShape(ranks_per_node=self.per_node, num_nodes=1)

    @property
    def _rail(self) -> GroupShape:
        return GroupShape(
            ranks_per_node=1,
            num_nodes=self._num_nodes,
            concurrent=self.per_node,
            stride=self.per_node,
        )

    def exchange(self, name: str, elements: Array, dtype: Dtype) -> tuple[Step, ...]:
        """All-to-all of `elements`, shape (scenarios, ranks): what each rank sends."""
        if self.num_ranks == 1 or not np.any(elements > 0):
            return ()
        mean, largest = elements.mean(axis=1), elements.max(axis=1)
        shapes = [("world", self._world)]
        if self.is_hierarchical and self._num_nodes > 1:
            # Within the node to the rank that serves the destination's local index, then across.
            shapes = [("node", self._node), ("rail", self._rail)]
        return tuple(
            self._step(f"{name} ({g})", CollectiveKind.ALL_TO_ALL, mean, dtype, g, shape, largest)
            for g, shape in shapes
        )

    def partial_sums(
        self, loads: RankLoads, dtype: Dtype, kind: CollectiveKind
    ) -> tuple[Step, ...]:
        """Reduce-scatter of partial sums, or the all-gather of their gradients."""
        steps = []
        every = loads.reduce_elements.max(axis=1)
        if np.any(every > 0):
            steps.append(self._step(f"rows {kind}", kind, every, dtype, "world", self._world))
        inside = loads.node_reduce_elements.max(axis=1)
        if np.any(inside > 0):
            steps.append(self._step(f"rows {kind} (node)", kind, inside, dtype, "node", self._node))
            if self._num_nodes > 1:
                # Sums leave the node for the samples of the others.
                out = inside / self.per_node
                across = CollectiveKind.ALL_TO_ALL
                steps.append(self._step("rows (rail)", across, out, dtype, "rail", self._rail))
        return tuple(steps) if self.num_ranks > 1 else ()

    def all_reduce(self, name: str, elements: Array, dtype: Dtype) -> tuple[Step, ...]:
        """All-reduce of `elements` values, shape (scenarios,)."""
        if self.num_ranks == 1 or not np.any(elements > 0):
            return ()
        return (
            self._step(
                name,
                CollectiveKind.ALL_REDUCE,
                elements,
                dtype,
                "world",
                self._world,
                cause=Cause.DP_COMM,
            ),
        )

    def _step(
        self,
        name: str,
        kind: CollectiveKind,
        elements: Array,
        dtype: Dtype,
        group: str,
        shape: GroupShape,
        largest: Array | None = None,
        cause: Cause = Cause.EMBEDDING_COMM,
    ) -> Step:
        size = dtype.num_bytes
        work = Collective(
            kind=kind,
            num_bytes=amount(elements * size),
            group=shape,
            dtype=dtype,
            max_rank_bytes=None if largest is None else amount(largest * size),
            cause=cause,
        )
        share = self.network_time_fraction if shape.num_nodes > 1 else 1.0
        count = amount((elements > 0).astype(float) * share)
        return Step(name=name, work=work, count=count, group=group)
