"""Embedding tables of recommenders: what each rank holds, its optimiser state and its exchange."""

from __future__ import annotations

from collections import defaultdict

from perfmodel.hardware.records import Dtype
from perfmodel.memory.records import Part
from perfmodel.plan.placement_rules import place
from perfmodel.plan.records import Plan
from perfmodel.plan.sharding import EmbeddingKernel, ShardingKind, ShardingPlan, TableSharding
from perfmodel.workload.recommender import EmbeddingTable, RecommenderModel
from perfmodel.workload.records import Block, Model, TokenEmbedding, Workload

_FP32 = 4.0
# Bytes of optimiser state per weight and per row; sparse updates keep no gradient of the table.
_STATE_PER_WEIGHT = {"adam": 8.0, "adagrad": 4.0, "momentum": 4.0}
_STATE_PER_ROW = {"rowwise_adagrad": 4.0, "partial_rowwise_adam": 8.0}
# Rows of a UVM table cached on the device where a plan does not say (TorchRec's load factor).
_CACHE_FRACTION = 0.2


def dense_blocks(model: Model) -> tuple[Block, ...]:
    """Blocks of a model without the tables that are counted by rank."""
    blocks = model.blocks()
    if not isinstance(model, RecommenderModel):
        return blocks
    return tuple(b for b in blocks if not all(isinstance(o, TokenEmbedding) for o in b.operators))


def table_bytes_by_rank(workload: Workload, plan: Plan) -> dict[str, dict[Part, float]]:
    """Table, cache and exchange bytes by rank; empty if the model has no sharded tables.

    Ranks that hold equal amounts share one entry, named after the first of them.
    """
    model = workload.model
    if not isinstance(model, RecommenderModel):
        return {}
    num_ranks = plan.num_gpus
    sharding = plan.embedding
    if not isinstance(sharding, ShardingPlan):
        sharding = place("size_balanced", model.tables, num_ranks)
    held: dict[int, dict[Part, float]] = defaultdict(lambda: defaultdict(float))
    tables = {t.name: t for t in model.tables}
    for entry in sharding.tables:
        shares = zip(entry.ranks, entry.shares, entry.column_shares, strict=True)
        for rank, share, columns in shares:
            _add(held[rank], tables[entry.table], entry, share, columns, workload)
    for rank in range(num_ranks):
        held[rank][Part.BUFFERS] += _received(model, workload, plan)
    return _fold(held, num_ranks)


def shard_bytes(
    table: EmbeddingTable, entry: TableSharding, workload: Workload
) -> dict[Part, float]:
    """Bytes of the first shard of a table: rows and state, cache, buffers."""
    parts: dict[Part, float] = defaultdict(float)
    _add(parts, table, entry, entry.shares[0], entry.column_shares[0], workload)
    return parts


def _add(
    parts: dict[Part, float],
    table: EmbeddingTable,
    entry: TableSharding,
    share: float,
    column_share: float,
    workload: Workload,
) -> None:
    rows = table.rows * share
    if entry.kind is ShardingKind.HYBRID:
        rows = entry.hot_rows + (table.rows - entry.hot_rows) * share
    row_bytes = table.dim * (_FP32 + _state_bytes(workload.optimizer, table.dim))
    if entry.kind is ShardingKind.DATA_PARALLEL and "adam" in workload.optimizer.lower():
        row_bytes += table.dim * _FP32  # dense optimisers need a dense gradient
    if entry.kernel is EmbeddingKernel.FUSED:
        parts[Part.TABLES] += rows * row_bytes
    elif entry.kernel is EmbeddingKernel.UVM_CACHING:
        parts[Part.CACHE] += _CACHE_FRACTION * rows * row_bytes
    if entry.kind is not ShardingKind.DATA_PARALLEL:
        # Pooled vectors of the whole batch for this share, and their gradients.
        columns = table.dim * column_share
        width = workload.precision.activation.num_bytes
        cold = 1 - entry.hot_fraction
        batch = workload.global_batch * cold
        parts[Part.BUFFERS] += 2 * batch * table.num_features * columns * width
    parts[Part.BUFFERS] += workload.global_batch * share * table.lookups * Dtype.INT64.num_bytes


def _state_bytes(optimizer: str, dim: int) -> float:
    name = optimizer.lower()
    for key, per_row in _STATE_PER_ROW.items():
        if key in name:
            return per_row / dim
    return next((v for key, v in _STATE_PER_WEIGHT.items() if key in name), 0.0)


def _received(model: RecommenderModel, workload: Workload, plan: Plan) -> float:
    """Vectors of all features for the local batch, and their gradients."""
    local = workload.global_batch / plan.num_gpus
    return 2 * local * model.embedding_width * workload.precision.activation.num_bytes


def _fold(held: dict[int, dict[Part, float]], num_ranks: int) -> dict[str, dict[Part, float]]:
    first: dict[tuple[float, ...], int] = {}
    for rank in range(num_ranks):
        key = tuple(round(held[rank][part]) for part in Part)
        first.setdefault(key, rank)
    return {f"rank {rank}": dict(held[rank]) for rank in first.values()}
