"""From fields to parts of a run: what RUN files and published runs have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.errors import InputError
from perfmodel.hardware.aliases import dtype_note, resolve_dtype
from perfmodel.hardware.records import Dtype
from perfmodel.workload.records import Model, Precision

THROUGHPUT_UNITS = {"transformer": "sequences/s", "cnn": "images/s", "dlrm": "samples/s"}


def model_from_fields(
    family: str, fields: Mapping[str, Any], *, lora: bool = False
) -> tuple[Model, tuple[str, ...], tuple[str, ...]]:
    """Model of a family from its dimensions, with notes and warnings.

    Raises
    ------
    InputError
        If the family is unknown or a dimension is missing or impossible.
    """
    if family == "transformer":
        from perfmodel.workload.transformer_fields import transformer_from_fields

        model, said = transformer_from_fields(fields, lora=lora)
        notes = tuple(s for s in said if "assumed" in s)
        return model, notes, tuple(s for s in said if s not in notes)
    if family == "dlrm":
        from perfmodel.workload.recommender_fields import recommender_from_fields

        recommender = recommender_from_fields(fields)
        return recommender, (), recommender.warnings
    if family == "cnn":
        from perfmodel.workload.convnet import convnet_from_fields

        network = convnet_from_fields(fields)
        return network, (), tuple(getattr(network, "warnings", ()))
    raise InputError(f"family {family!r} is not known; use transformer, dlrm or cnn")


def precision_from_text(text: str) -> tuple[Precision, str | None]:
    """Number formats of a run, and what was taken for granted.

    Automatic mixed precision ("amp", "autocast") keeps fp32 weights and casts them for every use.

    Raises
    ------
    InputError
        If the text names no format.

    Examples
    --------
    >>> precision_from_text("fp16-amp")[0].is_autocast
    True
    """
    dtype = resolve_dtype(text)
    lowered = text.lower()
    is_autocast = dtype in (Dtype.FP16, Dtype.BF16) and bool(re.search("amp|autocast", lowered))
    return Precision.of(dtype, is_autocast=is_autocast), dtype_note(text)


# Optimisers by a word of their description, most specific first.
_OPTIMIZERS = (
    ("rowwise_adagrad", r"row.?wise.{0,3}adagrad"),
    ("adagrad", "adagrad"),
    ("adafactor", "adafactor"),
    ("lamb", "lamb"),
    ("lars", "lars"),
    ("adam", "adam"),
    ("lion", "lion"),
    ("muon", "muon"),
    ("sgd_momentum", "momentum|nesterov"),
    ("sgd", "sgd"),
)
OPTIMIZER_NAMES = ("adamw", *(name for name, _ in _OPTIMIZERS))
"""Spellings of a RUN file; adamw is adam with decoupled decay, which costs the same."""
_NOT_TIMED = re.compile(
    r"not (?:timed|included|measured|counted)|without (?:the )?optimi|"
    r"(?:fwd|forward) ?(?:\+|and|/) ?(?:bwd|backward)(?: only|,|\b(?!.*optimi))"
)


def optimizer_from_text(text: object) -> tuple[str, str | None]:
    """Canonical optimiser of a description such as "decoupled AdamW", and a note if assumed."""
    lowered = str(text or "").lower()
    for name, pattern in _OPTIMIZERS:
        if re.search(pattern, lowered):
            return name, None
    return "adam", f"optimizer {text!r} is not known: adam assumed"


def leaves_optimizer_out(*texts: object) -> bool:
    """Whether a description says that the optimiser is not part of the timed span.

    Examples
    --------
    >>> leaves_optimizer_out("AdamW (NOT timed: event closes after backward)")
    True
    >>> leaves_optimizer_out("AdamW")
    False
    """
    return any(_NOT_TIMED.search(str(text or "").lower()) for text in texts)


# Tokens of a micro-batch from which on matrix products of a layer run at their full rate on
# data-centre GPUs (a GEMM of 8192 rows fills them), and micro-batches per stage that keep the
# bubble of 1F1B under a fifth: (p - 1) / (4 p).
_ENOUGH_TOKENS = 8192
_MICRO_BATCHES_PER_STAGE = 4


def usual_micro_batch(model: Model, samples: float, pp: int) -> float:
    """Micro-batch where none is stated; `samples` is what one replica trains per step.

    Without tokens (recommenders, CNNs) everything goes in one pass. Transformers take the largest
    power of two that divides `samples`, holds at most 8192 tokens and leaves four micro-batches for
    every pipeline stage; at least one sample.
    """
    tokens = getattr(model, "seq", None)
    if tokens is None:
        return samples
    size = 1.0
    while (
        2 * size * tokens <= _ENOUGH_TOKENS
        and samples % (2 * size) == 0
        and samples / (2 * size) >= (_MICRO_BATCHES_PER_STAGE * pp if pp > 1 else 1)
    ):
        size *= 2
    return min(size, samples)


def embedding_from_rule(
    text: str | None, model: Model, num_ranks: int, options: Mapping[str, float | str | bool]
) -> object | None:
    """Sharding plan that a rule or sentence means; None for models without tables."""
    tables = getattr(model, "tables", None)
    if tables is None:
        return None
    from perfmodel.plan.placement_rules import PlacementRule, sharding_from_text

    return sharding_from_text(text, tables, num_ranks, PlacementRule.of(options))


def embedding_from_placements(
    placements: Sequence[Mapping[str, Any]], model: Model, num_ranks: int
) -> object:
    """Sharding plan of explicit placements, one a table.

    Raises
    ------
    InvalidPlanError
        If a table does not exist, is left out, or lies on ranks that do not exist.
    """
    from perfmodel.plan.sharding import (
        EmbeddingKernel,
        ShardingKind,
        ShardingPlan,
        TableSharding,
    )

    tables = getattr(model, "tables", None)
    if tables is None:
        raise InputError("embedding_sharding places tables, but the model has none")
    entries = tuple(
        TableSharding(
            table=p["table"],
            kind=ShardingKind(p["kind"]),
            ranks=tuple(p["ranks"]),
            kernel=EmbeddingKernel(p.get("kernel", "fused")),
            weights=tuple(p["weights"]) if "weights" in p else None,
            hot_fraction=p.get("hot_fraction", 0.0),
            hot_rows=p.get("hot_rows", 0.0),
            cached_fraction=p.get("cached_fraction", 0.0),
            column_groups=p.get("column_groups", 1),
        )
        for p in placements
    )
    plan = ShardingPlan(tables=entries, note="as given")
    plan.check(tables, num_ranks)
    return plan
