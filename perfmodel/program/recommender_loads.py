"""What each rank does for the embedding tables it holds, for one plan or many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfmodel.plan.sharding import EmbeddingKernel, ShardingKind, ShardingPlan
from perfmodel.workload.recommender import EmbeddingTable, RecommenderModel

Array: TypeAlias = NDArray[np.float64]

# A table whose bytes are below this share of L2 keeps its rows there while a batch is looked up;
# several such tables and the batch's own vectors share the cache.
_CACHE_SHARE = 0.25
_FP32_BYTES = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoads:
    """Embedding work of one iteration, float64 arrays of shape (scenarios, ranks).

    "Elements" are values, rows times width; "outputs" are pooled vectors. Sharded tables work on
    the global batch, `local_*` (copies on every rank) on the rank's own.
    """

    lookups: Array  # rows read from sharded tables in GPU memory
    elements: Array
    outputs: Array
    output_elements: Array
    exchange_elements: Array  # leave the rank by all-to-all, its own part included
    reduce_elements: Array  # partial sums that enter a reduce-scatter among all ranks
    node_reduce_elements: Array  # the same among the ranks of a node
    distinct_elements: Array  # rows touched at least once, times width
    cached_elements: Array  # elements of lookups that L2 serves
    num_features: Array  # features whose tables the rank holds
    num_tables: Array
    local_lookups: Array
    local_elements: Array
    local_outputs: Array
    local_output_elements: Array
    local_cached_elements: Array
    dense_elements: Array  # gradient values all-reduced for copied rows
    host_lookups: Array  # rows read from host memory
    host_elements: Array
    parameters: Array  # values stored on the rank

    def select(self, rank: int) -> dict[str, Array]:
        """Columns of one rank, each of shape (scenarios,)."""
        return {name: getattr(self, name)[:, rank] for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class _Shards:
    """Flat list of shards: one entry a (scenario, table, rank)."""

    scenario: NDArray[np.int64]
    table: NDArray[np.int64]
    rank: NDArray[np.int64]
    row_share: Array
    column_share: Array
    kind: NDArray[np.int64]
    hot_fraction: Array
    hot_rows: Array
    host_share: Array  # of lookups that go to host memory
    is_everywhere: Array  # the table has a shard on every rank


_KINDS = tuple(ShardingKind)
_CODE = {kind: i for i, kind in enumerate(_KINDS)}


def rank_loads(
    model: RecommenderModel,
    plans: Sequence[ShardingPlan],
    num_ranks: int,
    *,
    global_batch: float,
    l2_bytes: float,
) -> RankLoads:
    """Work of every rank under every plan.

    Parameters
    ----------
    model : RecommenderModel
    plans : sequence of ShardingPlan
        One scenario each; they must have passed `ShardingPlan.check`.
    num_ranks : int
    global_batch : float
        Samples per iteration, all ranks.
    l2_bytes : float
        Cache of the GPU: tables much smaller than it are served from it.

    Returns
    -------
    RankLoads
        Arrays of shape (len(plans), num_ranks).

    Notes
    -----
    Distinct rows assume ids spread evenly over the rows of a shard: an upper bound under skew.
    """
    shards = _flatten(model.tables, plans, num_ranks)
    shape = (len(plans), num_ranks)
    index = shards.scenario * num_ranks + shards.rank

    def total(values: Array) -> Array:
        summed = np.bincount(index, weights=values, minlength=shape[0] * shape[1])
        return summed.astype(float).reshape(shape)

    return _sum_loads(model.tables, shards, total, global_batch, num_ranks, l2_bytes)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Facts of the table of every shard, and masks of its kind."""

    rows: Array  # of the shard
    width: Array
    lookups: Array  # per sample of the whole table
    features: Array
    table_rows: Array
    is_copy: Array
    is_hybrid: Array
    is_row: Array  # partial sums reduced among all ranks
    is_node_row: Array


def _columns(tables: Sequence[EmbeddingTable], shards: _Shards) -> _Columns:
    def of(values: Sequence[float]) -> Array:
        column: Array = np.asarray(values, dtype=float)[shards.table]
        return column

    def is_kind(kind: ShardingKind) -> Array:
        mask: Array = (shards.kind == _CODE[kind]).astype(float)
        return mask

    rows = of([t.rows for t in tables])
    return _Columns(
        rows=rows * shards.row_share,
        width=of([t.dim for t in tables]) * shards.column_share,
        lookups=of([t.lookups for t in tables]),
        features=of([t.num_features for t in tables]),
        table_rows=rows,
        is_copy=is_kind(ShardingKind.DATA_PARALLEL),
        is_hybrid=is_kind(ShardingKind.HYBRID),
        # Partial sums of some ranks only travel by all-to-all, like whole vectors.
        is_row=is_kind(ShardingKind.ROW_WISE) * shards.is_everywhere,
        is_node_row=is_kind(ShardingKind.TABLE_ROW_WISE) + is_kind(ShardingKind.GRID),
    )


def _sum_loads(
    tables: Sequence[EmbeddingTable],
    shards: _Shards,
    total: Callable[[Array], Array],
    global_batch: float,
    num_ranks: int,
    l2_bytes: float,
) -> RankLoads:
    c = _columns(tables, shards)
    is_sharded = 1.0 - c.is_copy
    on_gpu = 1.0 - shards.host_share
    # Sharded rows: a hybrid table's cold lookups, everything of the others.
    lookups = global_batch * c.lookups * shards.row_share * is_sharded * (1 - shards.hot_fraction)
    gpu_lookups = lookups * on_gpu
    # Hybrid ranks send only the rows asked of them; others one vector a feature and sample.
    outputs = np.where(c.is_hybrid > 0, lookups, global_batch * c.features * is_sharded)
    partial = np.minimum(c.is_row + c.is_node_row, 1.0)
    is_cached = (c.rows * c.width * _FP32_BYTES < _CACHE_SHARE * l2_bytes).astype(float)
    distinct = _distinct_rows(c.rows, gpu_lookups)
    hot_rows = np.minimum(shards.hot_rows / len(tables), c.table_rows) * c.is_hybrid
    return RankLoads(
        lookups=total(gpu_lookups),
        elements=total(gpu_lookups * c.width),
        outputs=total(outputs * on_gpu),
        output_elements=total(outputs * c.width * on_gpu),
        exchange_elements=total(outputs * c.width * (1 - partial)),
        reduce_elements=total(outputs * c.width * c.is_row),
        node_reduce_elements=total(outputs * c.width * c.is_node_row),
        distinct_elements=total(distinct * c.width),
        cached_elements=total(gpu_lookups * c.width * is_cached),
        num_features=total(c.features),
        num_tables=total(np.ones_like(c.width)),
        dense_elements=total(c.width * (c.is_copy * c.table_rows + hot_rows)),
        host_lookups=total(lookups * shards.host_share),
        host_elements=total(lookups * shards.host_share * c.width),
        parameters=total((c.rows + hot_rows) * c.width),
        **_local_loads(c, shards, total, global_batch / num_ranks, is_cached),
    )


def _local_loads(
    c: _Columns,
    shards: _Shards,
    total: Callable[[Array], Array],
    local_batch: float,
    is_cached: Array,
) -> dict[str, Array]:
    """Work on rows that every rank holds: copied tables and the hot rows of hybrid ones."""
    share = c.is_copy + c.is_hybrid * shards.hot_fraction
    lookups = local_batch * c.lookups * share
    outputs = local_batch * c.features * np.minimum(c.is_copy + c.is_hybrid, 1.0)
    # Frequent rows are few: they stay in L2 whatever the size of their table.
    in_cache = np.maximum(is_cached, c.is_hybrid)
    return {
        "local_lookups": total(lookups),
        "local_elements": total(lookups * c.width),
        "local_outputs": total(outputs),
        "local_output_elements": total(outputs * c.width),
        "local_cached_elements": total(lookups * c.width * in_cache),
    }


def _distinct_rows(rows: Array, lookups: Array) -> Array:
    """Expected number of different rows among evenly spread lookups: R (1 - exp(-N/R))."""
    distinct: Array = -rows * np.expm1(-lookups / np.maximum(rows, 1e-9))
    return distinct


def _flatten(
    tables: Sequence[EmbeddingTable], plans: Sequence[ShardingPlan], num_ranks: int
) -> _Shards:
    numbers = {t.name: i for i, t in enumerate(tables)}
    entries: list[tuple[float, ...]] = []
    for scenario, plan in enumerate(plans):
        for p in plan.tables:
            table, code = numbers[p.table], _CODE[p.kind]
            everywhere = float(len(p.ranks) == num_ranks)
            host = 0.0 if p.kernel is EmbeddingKernel.FUSED else 1.0 - p.cached_fraction
            shares = zip(p.ranks, p.row_shares, p.column_shares, strict=True)
            for rank, rows, columns in shares:
                entries.append((
                    scenario, table, rank, rows, columns, code, p.hot_fraction, p.hot_rows, host,
                    everywhere,
                ))  # fmt: skip
    flat = np.array(entries, dtype=float)
    whole = flat[:, [0, 1, 2, 5]].astype(np.int64)
    return _Shards(
        scenario=whole[:, 0],
        table=whole[:, 1],
        rank=whole[:, 2],
        row_share=flat[:, 3],
        column_share=flat[:, 4],
        kind=whole[:, 3],
        hot_fraction=flat[:, 6],
        hot_rows=flat[:, 7],
        host_share=flat[:, 8],
        is_everywhere=flat[:, 9],
    )
