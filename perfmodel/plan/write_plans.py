"""Sharding plans written as TorchRec's JSON and as placements of a RUN file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from perfmodel.errors import InvalidPlanError
from perfmodel.plan.plan_limits import COLUMN_MULTIPLE
from perfmodel.plan.sharding import EmbeddingKernel, ShardingKind, ShardingPlan, TableSharding
from perfmodel.plan.shards import COLUMN_KINDS, ROW_KINDS, Shard, even_shards
from perfmodel.workload.recommender import EmbeddingTable


def to_torchrec(
    plan: ShardingPlan,
    tables: Sequence[EmbeddingTable],
    ranks_per_node: int,
    module: str = "",
) -> dict[str, Any]:
    """The plan in TorchRec's serialised form.

    Parameters
    ----------
    plan : ShardingPlan
    tables : sequence of EmbeddingTable
    ranks_per_node : int
        Decides the local device of a rank.
    module : str
        Path of the embedding collection in the model; "" is the root.

    Raises
    ------
    InvalidPlanError
        If a table is hybrid, which TorchRec does not have.
    """
    known = {t.name: t for t in tables}
    placed = {e.table: _serialised(e, known[e.table], ranks_per_node) for e in plan.tables}
    return {"plan": {module: placed}}


def _serialised(entry: TableSharding, table: EmbeddingTable, ranks_per_node: int) -> dict[str, Any]:
    if entry.kind is ShardingKind.HYBRID:
        raise InvalidPlanError(f"table {entry.table!r} is hybrid, which TorchRec does not have")
    is_copy = entry.kind is ShardingKind.DATA_PARALLEL
    kernel = {EmbeddingKernel.UVM: "fused_uvm", EmbeddingKernel.UVM_CACHING: "fused_uvm_caching"}
    fields: dict[str, Any] = {
        "sharding_type": str(entry.kind),
        "compute_kernel": "dense" if is_copy else kernel.get(entry.kernel, "fused"),
        "ranks": list(entry.ranks),
    }
    if not is_copy:
        fields["shards"] = [
            {
                "shard_offsets": [s.row, s.column],
                "shard_sizes": [s.rows, s.columns],
                "placement": f"rank:{s.rank}/cuda:{s.rank % ranks_per_node}",
            }
            for s in _cut(entry, table)
        ]
    return fields


def _cut(entry: TableSharding, table: EmbeddingTable) -> list[Shard]:
    """Whole rows and columns of every shard."""
    if entry.kind in (*ROW_KINDS, *COLUMN_KINDS, ShardingKind.TABLE_WISE) and not entry.weights:
        is_even = table.dim % (COLUMN_MULTIPLE * len(entry.ranks)) == 0
        if entry.kind not in COLUMN_KINDS or is_even:
            return even_shards(table, entry.kind, entry.ranks)
    size = len(entry.ranks) // entry.column_groups
    strips = [entry.ranks[i : i + size] for i in range(0, len(entry.ranks), size)]
    if entry.kind in COLUMN_KINDS:
        strips = [(rank,) for rank in entry.ranks]
    columns = [entry.column_shares[entry.ranks.index(s[0])] for s in strips]
    shards = []
    for strip, (column, width) in zip(
        strips, _proportional(table.dim, columns, COLUMN_MULTIPLE), strict=True
    ):
        rows = [entry.row_shares[entry.ranks.index(r)] for r in strip]
        for rank, (row, height) in zip(strip, _proportional(table.rows, rows, 1), strict=True):
            shards.append(Shard(row, column, height, width, rank))
    return shards


def _proportional(length: int, shares: Sequence[float], multiple: int) -> list[tuple[int, int]]:
    """Offsets and sizes near `shares` of `length`, borders on whole multiples."""
    borders, done = [0], 0.0
    for share in shares[:-1]:
        done += share
        borders.append(min(round(done * length / multiple) * multiple, length))
    borders.append(length)
    return [(a, b - a) for a, b in pairwise(borders)]


def to_placements(plan: ShardingPlan) -> list[dict[str, Any]]:
    """The plan as placements of a RUN file (`embedding_sharding`), defaults left out."""
    out = []
    for entry in plan.tables:
        fields: dict[str, Any] = {
            "table": entry.table,
            "kind": str(entry.kind),
            "ranks": list(entry.ranks),
        }
        if entry.kernel is not EmbeddingKernel.FUSED:
            fields["kernel"] = str(entry.kernel)
        if entry.weights is not None:
            fields["weights"] = list(entry.weights)
        for name, usual in (
            ("hot_fraction", 0.0), ("hot_rows", 0.0), ("cached_fraction", 0.0),
            ("column_groups", 1),
        ):  # fmt: skip
            if getattr(entry, name) != usual:
                fields[name] = getattr(entry, name)
        out.append(fields)
    return out
