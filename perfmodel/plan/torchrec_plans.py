"""Sharding plans in the forms people have: TorchRec's JSON, its printed tables, our own YAML.

TorchRec's serialised plan is `{"plan": {module: {table: {sharding_type, compute_kernel, ranks,
shards: [{shard_offsets, shard_sizes, placement}]}}}}`; `print(plan)` gives two tables with the same
fields; ours is a list of placements, one a table (`embedding_sharding` of a RUN file).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

from perfmodel.errors import InputError, InvalidPlanError
from perfmodel.plan.plan_limits import COLUMN_MULTIPLE, EQUAL_WITHIN, bad_width, check_strictly
from perfmodel.plan.printed_plans import is_printed, printed_plan
from perfmodel.plan.sharding import EmbeddingKernel, ShardingKind, ShardingPlan, TableSharding
from perfmodel.plan.shards import Shard, even_shards
from perfmodel.workload.recommender import EmbeddingTable

_MAX_BYTES = 200_000_000
# A plan does not state its caches: TorchRec's default load factor, and even ids as everywhere.
_CACHED = 0.2
_KERNELS = {
    "dense": EmbeddingKernel.FUSED,
    "fused": EmbeddingKernel.FUSED,
    "fused_uvm": EmbeddingKernel.UVM,
    "uvm": EmbeddingKernel.UVM,
    "fused_uvm_caching": EmbeddingKernel.UVM_CACHING,
    "uvm_caching": EmbeddingKernel.UVM_CACHING,
}


def read_plan(
    path: str | PathLike[str],
    tables: Sequence[EmbeddingTable],
    num_ranks: int,
    ranks_per_node: int | None = None,
) -> ShardingPlan:
    """Read a sharding plan file in any of the forms; its `note` is the file's name.

    Parameters
    ----------
    path : path
        JSON, YAML or text.
    tables : sequence of EmbeddingTable
        Of the model the plan is for.
    num_ranks : int
    ranks_per_node : int, optional
        Where given, node-wise kinds must lie within a node.

    Raises
    ------
    InputError
        If the file has none of the forms.
    InvalidPlanError
        If the plan does not fit tables, ranks or nodes: one sentence with table and reason.
    """
    file = Path(path)
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise InputError(f"{file}: larger than a sharding plan can be (200 MB)")
        text = file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not a text file") from error
    try:
        return plan_from_text(text, tables, num_ranks, ranks_per_node, note=file.stem)
    except InvalidPlanError as error:
        raise InvalidPlanError(f"{file}: {error}") from error
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def plan_from_text(
    text: str,
    tables: Sequence[EmbeddingTable],
    num_ranks: int,
    ranks_per_node: int | None = None,
    *,
    note: str = "as given",
) -> ShardingPlan:
    """Sharding plan from the text of a file; see `read_plan`."""
    if is_printed(text):
        return plan_from_torchrec(printed_plan(text), tables, num_ranks, ranks_per_node, note=note)
    try:
        document = json.loads(text)
    except ValueError:
        document = _yaml(text)
    if isinstance(document, Mapping) and "embedding_sharding" in document:
        document = document["embedding_sharding"]
    if isinstance(document, list):
        plan = ShardingPlan(tables=tuple(_placement(p) for p in document), note=note)
        check_strictly(plan, tables, num_ranks, ranks_per_node)
        return plan
    if not isinstance(document, Mapping):
        raise InputError("not a sharding plan; give TorchRec's JSON, its print, or placements")
    return plan_from_torchrec(document, tables, num_ranks, ranks_per_node, note=note)


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError("neither JSON, nor YAML, nor a printed TorchRec plan") from error


def plan_from_torchrec(
    document: Mapping[str, Any],
    tables: Sequence[EmbeddingTable],
    num_ranks: int,
    ranks_per_node: int | None = None,
    *,
    note: str = "as given",
) -> ShardingPlan:
    """Sharding plan from TorchRec's serialised form; modules are joined.

    Raises
    ------
    InvalidPlanError
        If it does not fit: one sentence with table and reason.
    """
    known = {t.name: t for t in tables}
    entries = [
        _entry(name, fields, known.get(name), num_ranks, ranks_per_node)
        for module in _modules(document)
        for name, fields in module.items()
    ]
    plan = ShardingPlan(tables=tuple(entries), note=note)
    check_strictly(plan, tables, num_ranks, ranks_per_node)
    return plan


def _modules(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    modules = document.get("plan", document)
    if not isinstance(modules, Mapping):
        raise InputError("'plan' must map modules to their tables")
    values = list(modules.values())
    if values and all(isinstance(v, Mapping) and "sharding_type" in v for v in values):
        return [modules]  # one module's plan alone
    for module in values:
        if not isinstance(module, Mapping):
            raise InputError("a module of the plan must map tables to their sharding")
    return values


def _entry(
    name: str,
    fields: Any,
    table: EmbeddingTable | None,
    num_ranks: int,
    ranks_per_node: int | None,
) -> TableSharding:
    if not isinstance(fields, Mapping) or "sharding_type" not in fields:
        raise InvalidPlanError(f"table {name!r}: no sharding_type")
    kind = _kind(name, fields["sharding_type"])
    kernel = _kernel(name, fields.get("compute_kernel", "fused"))
    if table is None:  # `check` names the model's tables
        return TableSharding(table=name, kind=ShardingKind.DATA_PARALLEL, ranks=(0,))
    if kind is ShardingKind.DATA_PARALLEL:
        ranks = tuple(_integer(name, r) for r in fields.get("ranks") or range(num_ranks))
        return TableSharding(table=name, kind=kind, ranks=ranks, kernel=kernel)
    shards = _shards(name, fields, table, kind)
    for shard in shards:
        if not 0 <= shard.rank < num_ranks:
            raise InvalidPlanError(
                f"table {name!r} is placed on rank {shard.rank}; ranks are 0 to {num_ranks - 1}"
            )
    _check_tiling(table, shards)
    return _from_shards(table, kind, kernel, shards)


def _kind(name: str, text: Any) -> ShardingKind:
    allowed = [k for k in ShardingKind if k is not ShardingKind.HYBRID]
    if text not in allowed:
        raise InvalidPlanError(
            f"table {name!r}: sharding_type {text!r} is not one of {', '.join(allowed)}"
        )
    return ShardingKind(text)


def _kernel(name: str, text: Any) -> EmbeddingKernel:
    if text not in _KERNELS:
        raise InvalidPlanError(
            f"table {name!r}: compute_kernel {text!r} is not one of {', '.join(_KERNELS)}"
        )
    return _KERNELS[text]


def _shards(
    name: str, fields: Mapping[str, Any], table: EmbeddingTable, kind: ShardingKind
) -> list[Shard]:
    listed, ranks = fields.get("shards"), fields.get("ranks")
    if not listed:
        if not isinstance(ranks, list) or not ranks:
            raise InvalidPlanError(f"table {name!r} has neither shards nor ranks")
        return even_shards(table, kind, [_integer(name, r) for r in ranks])
    shards = []
    for position, shard in enumerate(listed):
        if not isinstance(shard, Mapping):
            raise InvalidPlanError(f"table {name!r}: shard {position} is not a mapping")
        place = re.match(r"rank:(-?\d+)", str(shard.get("placement", "")))
        if place is None and (not isinstance(ranks, list) or position >= len(ranks)):
            raise InvalidPlanError(f"table {name!r}: shard {position} has no rank")
        rank = int(place.group(1)) if place else _integer(name, (ranks or [])[position])
        offsets, sizes = (_pair(name, shard, k) for k in ("shard_offsets", "shard_sizes"))
        shards.append(Shard(*offsets, *sizes, rank))
    return shards


def _integer(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidPlanError(f"table {name!r}: {value!r} is not a whole number")
    return value


def _pair(name: str, shard: Mapping[str, Any], key: str) -> tuple[int, int]:
    value = shard.get(key)
    if not isinstance(value, list) or len(value) != 2:
        raise InvalidPlanError(f"table {name!r}: {key} {value!r} is not [rows, columns]")
    return _integer(name, value[0]), _integer(name, value[1])


def _check_tiling(table: EmbeddingTable, shards: Sequence[Shard]) -> None:
    """Every value of the table in exactly one shard."""
    name = table.name
    for s in shards:
        inside = 0 <= s.row <= s.row + s.rows <= table.rows
        if not (inside and 0 <= s.column <= s.column + s.columns <= table.dim):
            raise InvalidPlanError(
                f"table {name!r}: shard at [{s.row}, {s.column}] of size [{s.rows}, {s.columns}] "
                f"lies outside its {table.rows} rows and {table.dim} columns"
            )
        if not (s.rows and s.columns):
            raise InvalidPlanError(
                f"table {name!r}: the shard on rank {s.rank} is empty; {table.rows} rows and "
                f"{table.dim} columns do not reach {len(shards)} shards"
            )
    if _overlap(shards):
        raise InvalidPlanError(f"table {name!r}: its shards overlap or form no grid")
    covered = sum(s.rows * s.columns for s in shards)
    if covered != table.num_parameters:
        raise InvalidPlanError(
            f"table {name!r}: its shards hold {covered} of {table.num_parameters} values; shards "
            "are missing"
        )


def _overlap(shards: Sequence[Shard]) -> bool:
    strips: dict[tuple[int, int], list[Shard]] = {}
    for shard in shards:
        strips.setdefault((shard.column, shard.columns), []).append(shard)
    ordered = sorted(strips)
    if any(a[0] + a[1] > b[0] for a, b in pairwise(ordered)):
        return True
    for strip in strips.values():
        strip.sort(key=lambda s: s.row)
        if any(a.row + a.rows > b.row for a, b in pairwise(strip)):
            return True
    return False


def _from_shards(
    table: EmbeddingTable, kind: ShardingKind, kernel: EmbeddingKernel, shards: list[Shard]
) -> TableSharding:
    """Shards of one rank are joined: a rank that holds two column shards holds a wider one."""
    groups = 1
    if kind is ShardingKind.GRID:
        shards.sort(key=lambda s: (s.column, s.row))
        groups = len({s.column for s in shards})
        if len({s.rank for s in shards}) != len(shards):
            raise InvalidPlanError(f"table {table.name!r}: grid_shard names a rank twice")
    held: dict[int, float] = {}
    for s in shards:
        held[s.rank] = held.get(s.rank, 0.0) + s.rows * s.columns / table.num_parameters
    width = next((s.columns for s in shards if s.columns % COLUMN_MULTIPLE), 0)
    if width and width < table.dim:
        raise bad_width(table.name, width)
    mean = 1 / len(held)
    is_equal = all(abs(v - mean) <= EQUAL_WITHIN * mean for v in held.values())
    return TableSharding(
        table=table.name,
        kind=kind,
        ranks=tuple(held),
        kernel=kernel,
        weights=None if is_equal else tuple(held.values()),
        cached_fraction=_CACHED if kernel is EmbeddingKernel.UVM_CACHING else 0.0,
        column_groups=groups,
    )


def _placement(fields: Any) -> TableSharding:
    if not isinstance(fields, Mapping) or not {"table", "kind", "ranks"} <= set(fields):
        raise InputError("a placement needs table, kind and ranks")
    allowed = set(TableSharding.__dataclass_fields__)
    unknown = set(fields) - allowed
    if unknown:
        raise InputError(f"table {fields['table']!r}: unknown field {sorted(unknown)[0]!r}")
    name = str(fields["table"])
    if fields["kind"] not in list(ShardingKind):
        raise InvalidPlanError(f"table {name!r}: kind {fields['kind']!r} is not known")
    if not isinstance(fields["ranks"], list):
        raise InvalidPlanError(f"table {name!r}: ranks must be a list")
    values = dict(fields)
    values["kind"] = ShardingKind(fields["kind"])
    values["kernel"] = _kernel(name, fields.get("kernel", "fused"))
    values["ranks"] = tuple(_integer(name, r) for r in fields["ranks"])
    if "weights" in fields and fields["weights"] is not None:
        values["weights"] = tuple(float(w) for w in fields["weights"])
    return TableSharding(**values)
