"""Rectangles of a table on ranks, as TorchRec lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.errors import InvalidPlanError
from perfmodel.plan.sharding import ShardingKind
from perfmodel.workload.recommender import EmbeddingTable

ROW_KINDS = (ShardingKind.ROW_WISE, ShardingKind.TABLE_ROW_WISE)
COLUMN_KINDS = (ShardingKind.COLUMN_WISE, ShardingKind.TABLE_COLUMN_WISE)


@dataclass(frozen=True, slots=True)
class Shard:
    """A rectangle of a table on a rank."""

    row: int
    column: int
    rows: int
    columns: int
    rank: int


def even_shards(table: EmbeddingTable, kind: ShardingKind, ranks: Sequence[int]) -> list[Shard]:
    """Shards of a plan that names ranks only: equal blocks, the last one smaller."""
    if kind is ShardingKind.GRID:
        raise InvalidPlanError(f"table {table.name!r}: grid_shard needs its shards listed")
    rows, columns = [(0, table.rows)] * len(ranks), [(0, table.dim)] * len(ranks)
    if kind in ROW_KINDS:
        rows = _blocks(table.rows, len(ranks))
    elif kind in COLUMN_KINDS:
        columns = _blocks(table.dim, len(ranks))
    return [
        Shard(r[0], c[0], r[1], c[1], rank) for r, c, rank in zip(rows, columns, ranks, strict=True)
    ]


def _blocks(length: int, count: int) -> list[tuple[int, int]]:
    """Offset and size of `count` blocks of ceil(length / count), as TorchRec divides."""
    size = -(-length // count)
    starts = [min(i * size, length) for i in range(count)]
    return [(start, min(size, length - start)) for start in starts]
