"""Training of one model: efficiencies of every kind, then trees for known and unseen GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.kernels import efficiency
from perfmodel.cost.kernels.kinds import Kind, KindTable, vendor_of
from perfmodel.cost.kernels.learned import (
    Branch,
    Encoder,
    LearnedModel,
    Spread,
    columns_of,
    design,
    take_work,
)
from perfmodel.cost.kernels.physics import Work
from perfmodel.cost.kernels.residual import MAX_BIN, Trees, from_xgboost
from perfmodel.cost.kernels.rows import Labels, Rows, Vector
from perfmodel.measure.kernels.recipes import TreeRecipe, recipe_for
from perfmodel.measure.kernels.tables import Checked

SEED = 0
_ROWS_PER_KIND = 4_000  # three numbers need no more
_OTHER_VENDOR_WEIGHT = 0.05  # of a part of another vendor than most, in trees for unseen GPUs
WIDE = (0.5,) * 5  # interval before anything is known: half widths of 65 %


def fit_kinds(part: Checked, work: Work) -> KindTable:
    """Efficiencies of every (GPU, dtype, operator) in `part`."""
    labels = part.rows.labels
    names = ("gpu", "silicon", "architecture", "dtype", "op")
    keys: dict[tuple[str, ...], int] = {}
    inverse = np.array(
        [keys.setdefault(k, len(keys)) for k in zip(*(labels[n] for n in names), strict=True)]
    )
    kinds = []
    for key in sorted(keys):
        rows = np.flatnonzero(inverse == keys[key])
        few = _sample(rows, _ROWS_PER_KIND)
        values = efficiency.fit(
            take_work(work, few), part.rows.device.bytes_per_s[few], part.log_measured[few],
            efficiency.DEFAULT,
        )  # fmt: skip
        named = dict(zip(names, key, strict=True))
        kinds.append(
            Kind(**named, values=tuple(np.round(values, 5).tolist()), rows=len(rows))  # type: ignore[arg-type]
        )
    return KindTable(tuple(kinds))


def _sample(rows: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    if len(rows) <= limit:
        return rows
    return np.sort(np.random.default_rng(SEED).choice(rows, limit, replace=False))


def default_choices(part: Checked) -> dict[str, tuple[str, str]]:
    """Most measured (framework, kernel) by "gpu|dtype|op", and over all GPUs by "|dtype|op"."""
    counts: dict[str, dict[tuple[str, str], int]] = {}
    names = ("gpu", "dtype", "op", "framework", "kernel")
    for gpu, dtype, op, framework, kernel in zip(
        *(part.rows.labels[n] for n in names), strict=True
    ):
        for key in (f"{gpu}|{dtype}|{op}", f"|{dtype}|{op}"):
            mine = counts.setdefault(key, {})
            mine[framework, kernel] = mine.get((framework, kernel), 0) + 1
    return {
        key: max(sorted(mine), key=lambda choice: mine[choice])
        for key, mine in sorted(counts.items())
    }


def train_model(
    name: str, part: Checked, *, branches: Sequence[str] = ("known", "transfer")
) -> LearnedModel:
    """Fit a model on all rows of `part`; intervals are set later (`spread`)."""
    work = part.family.describe(part.rows)
    kinds = fit_kinds(part, work)
    recipe = recipe_for(name)
    parts = {
        "known": lambda: _fit_branch(part, work, kinds, recipe.known, is_known=True),
        "transfer": lambda: _fit_branch(part, work, kinds, recipe.transfer, is_known=False),
    }
    empty = Branch(columns=(), encoders={}, trees=None)
    fitted = {key: parts[key]() if key in branches else empty for key in parts}
    return LearnedModel(
        name=name, family=part.family, kinds=kinds, known=fitted["known"],
        transfer=fitted["transfer"], spread=Spread(known={}, transfer=WIDE),
        defaults=default_choices(part), ranges=shape_ranges(part.rows),
    )  # fmt: skip


def shape_ranges(rows: Rows) -> dict[str, tuple[float, float]]:
    """Least and greatest measured value of each shape column."""
    return {k: (float(v.min()), float(v.max())) for k, v in rows.shape.items()}


def _fit_branch(
    part: Checked, work: Work, kinds: KindTable, recipe: TreeRecipe, *, is_known: bool
) -> Branch:
    """Trees on ln(measured / physics)."""
    rows = part.rows
    chosen = np.arange(len(part.index))
    weight = None
    if is_known:
        chosen = _sample(chosen, recipe.max_rows)
    else:
        chosen = _sample_evenly(rows.labels["gpu"], recipe.max_rows)
        weight = _even_weight(rows.take(chosen))
    if len(set(rows.labels["silicon"].tolist())) < 2 and not is_known:
        return Branch(columns=(), encoders={}, trees=None)
    rows, work = rows.take(chosen), take_work(work, chosen)
    values, nearest, _ = kinds.lookup(rows)
    base = efficiency.log_seconds(work, rows.device.bytes_per_s, values)
    target = part.log_measured[chosen] - base
    columns, varying = columns_of(work, rows, is_known=is_known)
    encoders = {label: _encoder(rows.labels[label], target) for label in varying}
    matrix = design(columns, encoders, rows, work, base, nearest)
    return Branch(columns=columns, encoders=encoders, trees=boost(matrix, target, recipe, weight))


def _encoder(labels: Labels, target: Vector) -> Encoder:
    """Names in the order of their mean residual."""
    names, inverse = np.unique(labels.astype(str), return_inverse=True)
    mean = np.bincount(inverse, weights=target) / np.bincount(inverse)
    return Encoder(names=tuple(str(names[i]) for i in np.argsort(mean, kind="stable")))


def _sample_evenly(gpus: Labels, limit: int) -> NDArray[np.int64]:
    names, inverse = np.unique(gpus.astype(str), return_inverse=True)
    share = max(limit // len(names), 1)
    return np.sort(
        np.concatenate([_sample(np.flatnonzero(inverse == j), share) for j in range(len(names))])
    )


def _even_weight(rows: Rows) -> Vector:
    """Every silicon counts the same, whatever its rows; other vendors less."""
    silicon, inverse = np.unique(rows.labels["silicon"].astype(str), return_inverse=True)
    weight = 1.0 / np.bincount(inverse, minlength=len(silicon))[inverse]
    weight = np.where(is_usual_vendor(rows), weight, _OTHER_VENDOR_WEIGHT * weight)
    return np.asarray(weight * len(weight) / weight.sum())


def is_usual_vendor(rows: Rows) -> NDArray[np.bool_]:
    """Rows on parts of the vendor that most silicon in `rows` is from."""
    architectures = rows.labels["architecture"].tolist()
    names = {a: vendor_of(a) for a in set(architectures)}
    pairs = set(zip(architectures, rows.labels["silicon"].tolist(), strict=True))
    crowd = [names[a] for a, _ in sorted(pairs)]
    usual = max(sorted(set(crowd)), key=crowd.count)
    return np.array([names[a] == usual for a in architectures], dtype=np.bool_)


def boost(
    matrix: NDArray[np.float32], target: Vector, recipe: TreeRecipe, weight: Vector | None = None
) -> Trees:
    """Boosted regression trees on `target`; the same data and seed give the same trees."""
    import xgboost

    data = xgboost.QuantileDMatrix(matrix, target, weight=weight, max_bin=MAX_BIN, nthread=1)
    settings: Mapping[str, Any] = {
        "objective": "reg:squarederror", "base_score": 0.0, "tree_method": "hist",
        "max_depth": recipe.depth, "eta": recipe.learning_rate, "max_bin": MAX_BIN,
        "min_child_weight": recipe.min_child_weight, "subsample": recipe.row_fraction,
        "colsample_bytree": recipe.column_fraction, "nthread": 1, "seed": SEED,
    }  # fmt: skip
    booster = xgboost.train(dict(settings), data, recipe.num_trees)
    return from_xgboost(booster, matrix.shape[1])
