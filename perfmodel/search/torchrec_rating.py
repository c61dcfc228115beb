"""TorchRec's own rating of sharding plans, so that plans can be compared under both ratings.

The formulas are those of TorchRec 1.8's performance estimator in our words (see the class). Times
are milliseconds and rates GiB/s, as TorchRec states them. It rates embedding work only: no dense
layers, overlap, launch cost, cache, skew or input exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel.errors import InvalidPlanError
from perfmodel.plan.sharding import EmbeddingKernel, ShardingKind, ShardingPlan, TableSharding
from perfmodel.search.makespan import Found, Option, place_shards
from perfmodel.units import GIB
from perfmodel.workload.recommender import EmbeddingTable

_INDEX_BYTES = 8.0
_BACKWARD = 2.0  # backward compute over forward compute
_BATCHED_COPY = 2.455  # regrouping of gathered gradients
_DENSE_KERNELS = 9.22  # element-wise kernels of a data-parallel optimiser
_DENSE_SHARE = 0.5  # of HBM bandwidth that a dense kernel reaches
_NARROW = ((64, 1.75), (128, 1.15))  # width below which rows cost more, and how much
_SMALLEST_READ = 32  # values
MIN_COLUMNS = 128
"""Narrowest column shard that TorchRec's planner makes."""
RESERVED = 0.15
"""Share of memory that its planner keeps free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Parts of one shard's time, ms."""

    forward_compute: float
    forward_comms: float
    backward_compute: float
    backward_comms: float

    @property
    def total(self) -> float:
        """Their sum, what the planner adds up by rank."""
        return (
            self.forward_compute + self.forward_comms + self.backward_compute + self.backward_comms
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchRecRating:
    """The estimator for one machine; fused kernels, fp32 tables and exchanges, pooled outputs.

    With B the batch of a GPU, L the pooling, W ranks of which N on a host, D the width of a shard,
    I = sum of B L, O = sum of B, K bytes per ms of HBM and X of the link:
    whole and column shards: forward p (8 I W + 4 I W max(D, 32) + 4 O W D) / K, either exchange
    4 O W D / X; row shards: (8 I + 4 I D + 4 O W D) / K, backward plus 2.455 x 4 O W D / K; copies:
    (8 I + 4 I D + 4 O D) / (K / 2), then an all-reduce and 9.22 passes over the table. Backward
    compute is twice forward. X is the host's link where W = N and the network otherwise.
    """

    num_ranks: int
    ranks_per_node: int
    batch: float  # samples of a GPU
    memory_gib: float = 32.0
    hbm_gib_per_s: float = 897.0
    intra_gib_per_s: float = 600.0
    inter_gib_per_s: float = 12.5
    value_bytes: float = 4.0

    def terms(self, table: EmbeddingTable, kind: ShardingKind, width: float) -> Terms:
        """Time of one shard of `width` columns.

        Raises
        ------
        InvalidPlanError
            If the kind is not whole, columns, rows or copies.
        """
        hbm, ranks = _bytes_per_ms(self.hbm_gib_per_s), self.num_ranks
        ids, outputs = self.batch * table.lookups, self.batch * table.num_features
        size = self.value_bytes
        moved = outputs * ranks * width * size
        if kind is ShardingKind.DATA_PARALLEL:
            return self._copies(table, ids, outputs)
        if kind is ShardingKind.ROW_WISE:
            forward = (_INDEX_BYTES * ids + ids * width * size + moved) / hbm
            comms = moved / self._link
            return Terms(
                forward_compute=forward,
                forward_comms=comms,
                backward_compute=_BACKWARD * forward,
                backward_comms=comms + _BATCHED_COPY * moved / hbm,
            )
        if kind not in (ShardingKind.TABLE_WISE, ShardingKind.COLUMN_WISE):
            raise InvalidPlanError(f"table {table.name!r}: {kind} is not rated")
        penalty = next((p for limit, p in _NARROW if width < limit), 1.0)
        read = ids * ranks * (_INDEX_BYTES + max(width, _SMALLEST_READ) * size)
        forward = penalty * (read + moved) / hbm
        comms = moved / self._link
        return Terms(
            forward_compute=forward,
            forward_comms=comms,
            backward_compute=_BACKWARD * forward,
            backward_comms=comms,
        )

    @property
    def _link(self) -> float:
        is_one_host = self.num_ranks <= self.ranks_per_node
        return _bytes_per_ms(self.intra_gib_per_s if is_one_host else self.inter_gib_per_s)

    def _copies(self, table: EmbeddingTable, ids: float, outputs: float) -> Terms:
        dense = _bytes_per_ms(self.hbm_gib_per_s) * _DENSE_SHARE
        size, width = self.value_bytes, table.dim
        forward = (_INDEX_BYTES * ids + (ids + outputs) * width * size) / dense
        held = table.num_parameters * size
        nodes = min(self.num_ranks / self.ranks_per_node, 2.0)
        network = _bytes_per_ms(self.inter_gib_per_s) * self.ranks_per_node
        reduce = held * (2 * nodes - 1) / nodes / network
        if self.num_ranks > 2 * self.ranks_per_node:
            reduce *= 2
        return Terms(
            forward_compute=forward,
            forward_comms=0.0,
            backward_compute=_BACKWARD * forward,
            backward_comms=reduce + _DENSE_KERNELS * held / dense,
        )

    def by_rank(self, plan: ShardingPlan, tables: Sequence[EmbeddingTable]) -> list[float]:
        """Milliseconds of every rank: the sum of its shards.

        Raises
        ------
        InvalidPlanError
            If the plan does not fit, uses host memory or a kind that is not rated.
        """
        plan.check(tables, self.num_ranks)
        known = {t.name: t for t in tables}
        sums = [0.0] * self.num_ranks
        for entry in plan.tables:
            if entry.kernel is not EmbeddingKernel.FUSED:
                raise InvalidPlanError(f"table {entry.table!r}: {entry.kernel} is not rated")
            table = known[entry.table]
            for rank, share in zip(entry.ranks, entry.column_shares, strict=True):
                sums[rank] += self.terms(table, entry.kind, share * table.dim).total
        return sums

    def rate(self, plan: ShardingPlan, tables: Sequence[EmbeddingTable]) -> float:
        """Milliseconds of the slowest rank, what TorchRec's planner minimises."""
        return max(self.by_rank(plan, tables))

    def size(self, table: EmbeddingTable, kind: ShardingKind, width: float) -> float:
        """Bytes of one shard: weights (plain SGD), ids and pooled vectors."""
        rows, share = float(table.rows), float(self.num_ranks)
        if kind is ShardingKind.ROW_WISE:
            rows = float(-(-table.rows // self.num_ranks))
        ids = self.batch * table.lookups * _INDEX_BYTES
        outputs = self.batch * table.num_features * width * self.value_bytes
        if kind is ShardingKind.ROW_WISE:
            ids /= self.num_ranks
        elif kind is ShardingKind.DATA_PARALLEL:
            share = 1.0
        return rows * width * self.value_bytes + share * (ids + outputs)


def _bytes_per_ms(gib_per_s: float) -> float:
    return gib_per_s * GIB / 1e3


def plan_for_torchrec(
    rating: TorchRecRating,
    tables: Sequence[EmbeddingTable],
    *,
    seed: int = 0,
    max_evaluations: int = 100_000,
    seconds: float | None = None,
) -> tuple[ShardingPlan, Found]:
    """The plan that we find best under TorchRec's rating, from its own options and memory.

    Raises
    ------
    RefusedError
        If the tables do not fit.
    """
    cuts = [_cuts(table, rating.num_ranks) for table in tables]
    options = [
        [_option(rating, table, kind, count) for kind, count in ways]
        for table, ways in zip(tables, cuts, strict=True)
    ]
    capacity = rating.memory_gib * GIB * (1 - RESERVED)
    found = place_shards(
        options, rating.num_ranks, capacity,
        seed=seed, max_evaluations=max_evaluations, seconds=seconds,
    )  # fmt: skip
    entries = tuple(
        TableSharding(table=t.name, kind=ways[number][0], ranks=ranks)
        for t, ways, number, ranks in zip(
            tables, cuts, found.best.options, found.best.ranks, strict=True
        )
    )
    return ShardingPlan(tables=entries, note="found under TorchRec's rating"), found


def _cuts(table: EmbeddingTable, num_ranks: int) -> list[tuple[ShardingKind, int]]:
    ways = [(ShardingKind.TABLE_WISE, 1), (ShardingKind.DATA_PARALLEL, num_ranks)]
    if table.rows >= num_ranks:
        ways.append((ShardingKind.ROW_WISE, num_ranks))
    for count in range(2, min(num_ranks, table.dim // MIN_COLUMNS) + 1):
        if table.dim % (4 * count) == 0:
            ways.append((ShardingKind.COLUMN_WISE, count))
    return ways


def _option(
    rating: TorchRecRating, table: EmbeddingTable, kind: ShardingKind, count: int
) -> Option:
    width = table.dim / count if kind is ShardingKind.COLUMN_WISE else float(table.dim)
    return Option(
        count=count,
        cost=rating.terms(table, kind, width).total,
        size=rating.size(table, kind, width),
        everywhere=count == rating.num_ranks,
    )


def imbalance(sums: Sequence[float]) -> float:
    """Slowest rank over the mean one."""
    return float(np.max(sums) / np.mean(sums))
