"""Adapting a bundle to a GPU of which a few kernels are measured.

The three efficiencies of each kind move to where the rows say, held by what was predicted before:
this tells a slow peak from a slow memory and a long launch. What is left over near the rows is a
smooth correction. The trees stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from perfmodel.cost.kernels import correction, efficiency
from perfmodel.cost.kernels.bundle import KernelBundle, describe_model
from perfmodel.cost.kernels.kinds import Kind, KindTable
from perfmodel.cost.kernels.learned import LearnedModel
from perfmodel.cost.kernels.select import choose_model
from perfmodel.measure.kernels.spread import CONTAINED
from perfmodel.measure.kernels.tables import Checked, take

# Leaving one row out still lets it move the three efficiencies, so the errors seen are too small.
_OPTIMISM = 1.15
_LEAST_ROWS = 3  # fewer say too little to move three numbers, prior or not


def adapt_bundle(base: KernelBundle, parts: Iterable[Checked]) -> KernelBundle:
    """A bundle whose efficiencies follow the few rows in `parts`."""
    models = {name: model for name in base.names if (model := base.model(name)) is not None}
    for part in parts:
        for piece in _by_silicon_and_dtype(part):
            model, priced = choose_model(base, part.family, piece.rows)
            if model is not None:
                renamed = replace(piece, rows=priced)
                models[model.name] = adapt_model(models[model.name], renamed)
    entries: dict[str, Any] = {
        name: {**base.manifest["models"][name], **describe_model(model)}
        for name, model in models.items()
    }
    return KernelBundle(manifest={**base.manifest, "models": entries}, models=models)


def _by_silicon_and_dtype(part: Checked) -> list[Checked]:
    labels = part.rows.labels
    keys = sorted(set(zip(labels["silicon"], labels["dtype"], strict=True)))
    return [
        take(part, (labels["silicon"] == silicon) & (labels["dtype"] == dtype))
        for silicon, dtype in keys
    ]


def adapt_model(model: LearnedModel, part: Checked) -> LearnedModel:
    """`model` with one adapted kind for each (GPU, operator) in `part` with rows enough."""
    labels = part.rows.labels
    for gpu, op in sorted(set(zip(labels["gpu"], labels["op"], strict=True))):
        rows = take(part, (labels["gpu"] == gpu) & (labels["op"] == op))
        if len(rows.index) >= _LEAST_ROWS:
            model = _adapt_kind(model, rows)
    return model


def _adapt_kind(model: LearnedModel, part: Checked) -> LearnedModel:
    labels = {k: str(v[0]) for k, v in part.rows.labels.items()}
    unseen = replace(model, kinds=_without(model.kinds, labels["gpu"], labels["silicon"]))
    prior = unseen.kinds.prior(labels["architecture"], labels["dtype"], labels["op"])
    before = unseen.predict(part.rows)
    work = part.family.describe(part.rows)
    physics = efficiency.log_seconds(work, part.rows.device.bytes_per_s, prior)
    trees = before.log_seconds - physics
    values = efficiency.fit(work, part.rows.device.bytes_per_s, part.log_measured - trees, prior)
    kind = Kind(
        gpu=labels["gpu"], silicon=labels["silicon"], architecture=labels["architecture"],
        dtype=labels["dtype"], op=labels["op"], values=tuple(np.round(values, 5).tolist()),
        rows=len(part.index), is_adapted=True,
    )  # fmt: skip
    kind = _corrected(unseen, kind, part)
    others = [
        k for k in model.kinds.kinds if (k.gpu, k.dtype, k.op) != (kind.gpu, kind.dtype, kind.op)
    ]
    return replace(model, kinds=KindTable((*others, kind)))


def _corrected(model: LearnedModel, kind: Kind, part: Checked) -> Kind:
    """`kind` with what is left over near the rows, and an interval from leaving each row out."""
    plain = replace(model, kinds=KindTable((*model.kinds.kinds, kind)))
    predicted = plain.predict(part.rows).log_seconds
    points = correction.coordinates(part.rows, predicted)
    found, left_out = correction.fit(points, part.log_measured - predicted)
    width = float(np.quantile(np.abs(left_out), CONTAINED)) * _OPTIMISM
    return replace(kind, correction=found, half_width=round(width, 4))


def _without(kinds: KindTable, gpu: str, silicon: str) -> KindTable:
    return KindTable(tuple(k for k in kinds.kinds if k.gpu != gpu and k.silicon != silicon))
