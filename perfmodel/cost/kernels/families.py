"""The families of measured kernels: which operators and shape columns each has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfmodel.cost.kernels import (
    attention,
    convolution,
    embedding,
    experts,
    gemm,
    pointwise,
    quantisation,
)
from perfmodel.cost.kernels.physics import Work
from perfmodel.cost.kernels.rows import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One model: operators that share physics, features and a residual.

    `group` names the shape columns whose values, left out together, make a whole unseen weight,
    layout or layer; `may_be_zero` those that may be 0.
    """

    name: str
    ops: tuple[str, ...]
    shape: tuple[str, ...]
    describe: Callable[[Rows], Work]
    group: tuple[str, ...]
    may_be_zero: tuple[str, ...] = ()


FAMILIES: tuple[Family, ...] = (
    Family(name="gemm", ops=gemm.OPS, shape=gemm.SHAPE, describe=gemm.describe, group=("n", "k")),
    Family(
        name="attention", ops=attention.OPS, shape=attention.SHAPE, describe=attention.describe,
        group=("num_heads", "num_kv_heads", "head_dim"), may_be_zero=("causal", "window"),
    ),
    Family(
        name="experts", ops=experts.OPS, shape=experts.SHAPE, describe=experts.describe,
        group=("hidden_size", "inter_size", "topk", "num_experts"),
    ),
    Family(
        name="elementwise", ops=pointwise.ELEMENTWISE, shape=pointwise.SHAPE,
        describe=pointwise.describe, group=("cols",),
    ),
    Family(
        name="norm", ops=pointwise.NORMS, shape=pointwise.SHAPE, describe=pointwise.describe,
        group=("cols",),
    ),
    Family(
        name="softmax", ops=pointwise.SOFTMAX, shape=pointwise.SHAPE, describe=pointwise.describe,
        group=("cols",),
    ),
    Family(
        name="convolution", ops=convolution.OPS, shape=convolution.SHAPE,
        describe=convolution.describe, group=("in_channels", "out_channels"),
        may_be_zero=("padding",),
    ),
    Family(
        name="quantisation", ops=quantisation.OPS, shape=quantisation.SHAPE,
        describe=quantisation.describe, group=("cols",),
    ),
    Family(
        name="embedding", ops=embedding.OPS, shape=embedding.SHAPE, describe=embedding.describe,
        group=("rows_per_table", "dim"),
    ),
)  # fmt: skip


def family_of(op: str) -> Family | None:
    """Family that prices operator `op`, None where none does."""
    for family in FAMILIES:
        if op in family.ops:
            return family
    return None
