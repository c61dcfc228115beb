"""A recommender from the `model` object of a published run; a RUN file uses the same names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.errors import InputError
from perfmodel.workload.recommender import EmbeddingTable, Interaction, RecommenderModel

_KNOWN = {
    "arch", "name", "model_name", "builder", "family", "num_tables", "table_rows", "table_dim",
    "table_names", "pooling", "num_dense", "bottom_mlp", "top_mlp", "mlp", "interaction",
    "cross_layers", "cross_rank", "interact_stride", "dropout", "deep_slots", "wide_slots",
    "deep_dim", "deep_vocab_total", "wide_vocab_total", "standard_definition",
}  # fmt: skip

# Spellings of an interaction, by what they contain; the first that fits counts.
_INTERACTIONS: tuple[tuple[str, Interaction], ...] = (
    ("gmf", Interaction.GMF_MLP),
    ("neumf", Interaction.GMF_MLP),
    ("wide", Interaction.WIDE_DEEP),
    ("dcn", Interaction.DCNV2),
    ("cross", Interaction.DCNV2),
    ("dot", Interaction.DOT),
    ("pool", Interaction.CONCAT),
    ("cat", Interaction.CONCAT),
    ("none", Interaction.CONCAT),
)

# MLPerf's DLRM-DCNv2 (training reference of 2023), where a row does not give them.
_DCNV2_LAYERS = 3
_DCNV2_RANK = 512


def recommender_from_fields(fields: Mapping[str, Any]) -> RecommenderModel:
    """Recommender from named dimensions.

    Parameters
    ----------
    fields : mapping
        `table_rows` (a list), `table_dim` (a number or a list), `pooling` (a number or a list; an
        entry that is a list belongs to several features of one table), `num_dense`, `bottom_mlp`,
        `top_mlp`, `interaction`, `cross_layers`, `cross_rank`, `interact_stride`, `dropout`,
        `table_names`; wide & deep: `deep_slots, wide_slots, deep_dim, deep_vocab_total`.

    Returns
    -------
    RecommenderModel
        Keys nobody knows are listed in its `warnings`.

    Raises
    ------
    InputError
        If a dimension is missing or not usable; the message names the field.
    """
    warnings = [f"model field {k!r} is not understood and ignored" for k in _unknown(fields)]
    interaction, stride = _interaction(fields)
    tables = _tables(fields, interaction, warnings)
    top = _top_mlp(fields, interaction, tables, warnings)
    if interaction is Interaction.DCNV2 and not fields.get("cross_layers"):
        warnings.append(
            f"no cross_layers given: {_DCNV2_LAYERS} of rank {_DCNV2_RANK} assumed (MLPerf)"
        )
    is_dcn = interaction is Interaction.DCNV2
    return RecommenderModel(
        name=str(fields.get("model_name") or fields.get("name") or fields.get("arch") or "dlrm"),
        tables=tables,
        num_dense=int(_number(fields, "num_dense", 0)),
        bottom_mlp=_widths(fields, "bottom_mlp"),
        top_mlp=top,
        interaction=interaction,
        cross_layers=int(_number(fields, "cross_layers", _DCNV2_LAYERS if is_dcn else 0)),
        cross_rank=int(_number(fields, "cross_rank", _DCNV2_RANK if is_dcn else 0)),
        interact_stride=stride,
        # NCF trains with dropout after every MLP layer; DLRM has none.
        has_dropout=bool(fields.get("dropout", interaction is Interaction.GMF_MLP)),
        warnings=tuple(warnings),
    )


def _unknown(fields: Mapping[str, Any]) -> list[str]:
    return sorted(str(k) for k, v in fields.items() if k not in _KNOWN and v is not None)


def _interaction(fields: Mapping[str, Any]) -> tuple[Interaction, int]:
    text = str(fields.get("interaction") or fields.get("arch") or "dot").lower()
    if fields.get("deep_slots") and "interaction" not in fields:
        text = "wide_deep"
    stride = fields.get("interact_stride")
    found = re.search(r"stride\s+(\d+)", text)
    if stride is None and found:
        stride = int(found.group(1))
    for word, kind in _INTERACTIONS:
        if word in text:
            return kind, int(stride or 1)
    if text == "dlrm":
        return Interaction.DOT, 1
    allowed = ", ".join(Interaction)
    raise InputError(f"interaction {text!r} is not known; use one of {allowed}")


def _number(fields: Mapping[str, Any], key: str, default: float) -> float:
    value = fields.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{key} {value!r} is not a number")
    if value < 0:
        raise InputError(f"{key} {value!r} is negative")
    return value


def _top_mlp(
    fields: Mapping[str, Any],
    interaction: Interaction,
    tables: tuple[EmbeddingTable, ...],
    warnings: list[str],
) -> tuple[int, ...]:
    top = _widths(fields, "top_mlp") or _widths(fields, "mlp")
    if not top:
        warnings.append("no top_mlp given: one output layer assumed")
        return (1,)
    if interaction is Interaction.GMF_MLP and len(top) > 1:
        # NCF code lists the width of the MLP's input first.
        return top[1:] if top[0] == sum(t.dim for t in tables[2:]) else top
    return top


def _widths(fields: Mapping[str, Any], key: str) -> tuple[int, ...]:
    value = fields.get(key)
    if value is None:
        return ()
    if isinstance(value, str):  # "512-256-128", as command lines spell it
        value = [int(v) for v in re.findall(r"\d+", value)]
    if not isinstance(value, Sequence) or any(
        isinstance(v, bool) or not isinstance(v, int) or v <= 0 for v in value
    ):
        raise InputError(f"{key} {value!r} is not a list of positive whole numbers")
    return tuple(value)


def _tables(
    fields: Mapping[str, Any], interaction: Interaction, warnings: list[str]
) -> tuple[EmbeddingTable, ...]:
    rows = fields.get("table_rows")
    if rows is None:
        return _slot_tables(fields, interaction, warnings)
    if not isinstance(rows, Sequence) or isinstance(rows, str) or not rows:
        raise InputError(f"table_rows {rows!r} is not a list of row counts")
    count = len(rows)
    stated = fields.get("num_tables")
    if stated is not None and stated != count:
        warnings.append(f"num_tables {stated} differs from the {count} entries of table_rows")
    dims = _per_table(fields.get("table_dim"), "table_dim", count)
    pooling = _per_table(fields.get("pooling", 1), "pooling", count)
    names = fields.get("table_names") or [f"table_{i}" for i in range(count)]
    if len(names) != count:
        raise InputError(f"table_names has {len(names)} entries, table_rows {count}")
    return tuple(
        EmbeddingTable(
            name=str(names[i]),
            rows=_whole(rows[i], f"table_rows[{i}]"),
            dim=_whole(dims[i], f"table_dim[{i}]"),
            pooling=_pooling(pooling[i], i),
        )
        for i in range(count)
    )


def _per_table(value: Any, key: str, count: int) -> Sequence[Any]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != count:
            raise InputError(f"{key} has {len(value)} entries, table_rows {count}")
        return value
    if value is None:
        raise InputError(f"{key} is missing: give a number or one for each table")
    return [value] * count


def _whole(value: Any, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e13:
        raise InputError(f"{key} {value!r} is not a positive number")
    return int(value)


def _pooling(value: Any, index: int) -> tuple[float, ...]:
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    for v in values:
        if isinstance(v, bool) or not isinstance(v, int | float) or not math.isfinite(v):
            raise InputError(f"pooling[{index}] {value!r} is not a number")
    return tuple(float(v) for v in values)


def _slot_tables(
    fields: Mapping[str, Any], interaction: Interaction, warnings: list[str]
) -> tuple[EmbeddingTable, ...]:
    """Tables of a model that states slots and one vocabulary for all of them (wide & deep)."""
    deep = int(_number(fields, "deep_slots", 0) or _number(fields, "num_tables", 0))
    vocab = _number(fields, "deep_vocab_total", 0)
    if not deep or not vocab:
        raise InputError("table_rows is missing: give a list of row counts, one for each table")
    dim = int(_number(fields, "deep_dim", 0) or _number(fields, "table_dim", 0))
    if not dim:
        raise InputError("deep_dim is missing: the width of the embedding vectors")
    warnings.append(f"rows of single tables are not given: {deep} equal tables assumed")
    tables = [
        EmbeddingTable(name=f"deep_{i}", rows=max(1, int(vocab // deep)), dim=dim)
        for i in range(deep)
    ]
    wide = int(_number(fields, "wide_slots", 0))
    if wide and interaction is Interaction.WIDE_DEEP:
        wide_rows = max(1, int(_number(fields, "wide_vocab_total", vocab) // wide))
        tables += [EmbeddingTable(name=f"wide_{i}", rows=wide_rows, dim=1) for i in range(wide)]
    return tuple(tables)
