"""What kernels and node-wise kinds demand of a sharding plan beyond its being complete."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.errors import InvalidPlanError
from perfmodel.plan.sharding import ShardingKind, ShardingPlan, TableSharding
from perfmodel.workload.recommender import EmbeddingTable

COLUMN_MULTIPLE = 4
"""FBGEMM reads rows in vectors of four values: widths of column shards are multiples of that."""
EQUAL_WITHIN = 1e-3
"""Shares that differ by less are taken as equal: a last shard of a few rows less changes no time,
and equal ranks are simulated once."""
_NODE_KINDS = (ShardingKind.TABLE_ROW_WISE, ShardingKind.TABLE_COLUMN_WISE)
_ROW_KINDS = (ShardingKind.ROW_WISE, ShardingKind.TABLE_ROW_WISE, ShardingKind.GRID)


def bad_width(name: str, width: float) -> InvalidPlanError:
    """The refusal of a column width."""
    return InvalidPlanError(
        f"table {name!r}: column width {width:g} is not a multiple of {COLUMN_MULTIPLE}"
    )


def check_strictly(
    plan: ShardingPlan,
    tables: Sequence[EmbeddingTable],
    num_ranks: int,
    ranks_per_node: int | None = None,
) -> None:
    """`ShardingPlan.check`, and what the kernels and node-wise kinds demand beyond it.

    Raises
    ------
    InvalidPlanError
        One sentence: a row-wise table with fewer rows than ranks, a column width that is not a
        multiple of 4, a node-wise table or grid strip that leaves its node.
    """
    plan.check(tables, num_ranks)
    known = {t.name: t for t in tables}
    for entry in plan.tables:
        _check_division(entry, known[entry.table])
        if ranks_per_node:
            _check_nodes(entry, ranks_per_node)


def _check_division(entry: TableSharding, table: EmbeddingTable) -> None:
    per_strip = len(entry.ranks) // entry.column_groups
    if entry.kind in _ROW_KINDS and per_strip > table.rows:
        raise InvalidPlanError(
            f"table {table.name!r} has {table.rows} rows for {per_strip} ranks; use fewer"
        )
    for share in entry.column_shares:
        width = share * table.dim
        whole = round(width / COLUMN_MULTIPLE) * COLUMN_MULTIPLE
        if share < 1 and abs(width - whole) > 2 * EQUAL_WITHIN * width:
            raise bad_width(table.name, width)


def _check_nodes(entry: TableSharding, ranks_per_node: int) -> None:
    if entry.kind in _NODE_KINDS:
        strips = [entry.ranks]
    elif entry.kind is ShardingKind.GRID:
        size = len(entry.ranks) // entry.column_groups
        strips = [entry.ranks[i : i + size] for i in range(0, len(entry.ranks), size)]
    else:
        return
    for strip in strips:
        if len({rank // ranks_per_node for rank in strip}) > 1:
            raise InvalidPlanError(
                f"table {entry.table!r}: {entry.kind} ranks {strip[0]} and {strip[-1]} lie on "
                f"different nodes of {ranks_per_node}"
            )
