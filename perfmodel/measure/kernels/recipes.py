"""How each model is trained: sizes of the trees. Chosen by cross-validation on shapes and GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfmodel.cost.kernels.families import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRecipe:
    """Settings of one set of boosted trees."""

    num_trees: int
    depth: int
    learning_rate: float
    min_child_weight: float
    column_fraction: float = 0.8
    row_fraction: float = 0.8
    max_rows: int = 1_200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Both branches of a model."""

    known: TreeRecipe
    transfer: TreeRecipe


# Large tables on a grid of shapes: deep trees, since library choices are not smooth, and few, since
# a million predictions are to take seconds.
_LARGE = TreeRecipe(num_trees=220, depth=11, learning_rate=0.15, min_child_weight=3)
# Smooth enough that half the rows tell as much.
_ATTENTION = TreeRecipe(
    num_trees=220, depth=10, learning_rate=0.15, min_child_weight=3, max_rows=400_000
)
_FP32 = TreeRecipe(num_trees=400, depth=10, learning_rate=0.1, min_child_weight=3)
_MEDIUM = TreeRecipe(num_trees=500, depth=9, learning_rate=0.08, min_child_weight=3)
_SMALL = TreeRecipe(num_trees=600, depth=8, learning_rate=0.06, min_child_weight=3)
_CONVOLUTION = TreeRecipe(
    num_trees=800, depth=10, learning_rate=0.05, min_child_weight=5, column_fraction=0.5
)
# Few GPUs: shallow trees that must agree across parts.
_TRANSFER = TreeRecipe(
    num_trees=150, depth=6, learning_rate=0.1, min_child_weight=20, column_fraction=0.5,
    max_rows=60_000,
)  # fmt: skip

_RECIPES: Mapping[str, Recipe] = {
    "gemm.bf16": Recipe(known=_LARGE, transfer=_TRANSFER),
    "gemm.fp8": Recipe(known=_LARGE, transfer=_TRANSFER),
    "gemm.fp16": Recipe(known=_MEDIUM, transfer=_TRANSFER),
    "gemm.fp32": Recipe(known=_FP32, transfer=_TRANSFER),
    "attention": Recipe(known=_ATTENTION, transfer=_TRANSFER),
    "experts": Recipe(known=_LARGE, transfer=_TRANSFER),
    "convolution": Recipe(known=_CONVOLUTION, transfer=_TRANSFER),
}
_DEFAULT = Recipe(known=_SMALL, transfer=_TRANSFER)


def recipe_for(name: str) -> Recipe:
    """Recipe of model `name`."""
    return _RECIPES.get(name, _DEFAULT)


def model_name(family: Family, dtype: str) -> str:
    """Name of the model for one family and dtype: GEMMs have one for each dtype."""
    return f"gemm.{dtype}" if family.name == "gemm" else family.name
