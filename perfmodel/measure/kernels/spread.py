"""Intervals: how far held-out rows lay from their prediction, by GPU and duration class."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.kernels.learned import DURATION_EDGES_S, LearnedModel, Spread
from perfmodel.measure.kernels.splits import shape_hash
from perfmodel.measure.kernels.tables import Checked, take
from perfmodel.measure.kernels.train import WIDE, train_model

CONTAINED = 0.80
"""Share of held-out rows that the interval is set to contain."""
_FOLDS = 8  # one in eight shapes is held out to see the error
_ENOUGH = 60  # rows for a quantile of one GPU and class; fewer use all GPUs
_FEW = 20


def with_spread(model: LearnedModel, part: Checked, protocol: str) -> LearnedModel:
    """`model` with intervals from refits without some shapes and without each silicon."""
    known: dict[str, list[float]] = {}
    if protocol != "gpu":
        known = _known_spread(model.name, part)
    # Held-out shapes of measured GPUs say nothing about unseen ones: the costly refits are spared.
    needs_transfer = protocol not in ("shape", "group")
    transfer = _transfer_spread(model.name, part) if needs_transfer else list(WIDE)
    return replace(model, spread=Spread(known=known, transfer=transfer))


def _known_spread(name: str, part: Checked) -> dict[str, list[float]]:
    held = shape_hash(part, part.family.shape, seed=1) % np.uint64(_FOLDS) == 0
    if held.all() or not held.any():
        return {"": list(WIDE)}
    model = train_model(name, take(part, ~held), branches=("known",))
    test = take(part, held)
    predicted = model.predict(test.rows).log_seconds
    error = np.abs(predicted - test.log_measured)
    duration = np.digitize(predicted, np.log(DURATION_EDGES_S))
    everyone = _quantiles(error, duration, [np.quantile(error, CONTAINED)] * _classes())
    out = {"": everyone}
    gpus = test.rows.labels["gpu"]
    for gpu in sorted(set(gpus.tolist())):
        mine = gpus == gpu
        if mine.sum() >= _ENOUGH:
            own = float(np.quantile(error[mine], CONTAINED))
            out[gpu] = _quantiles(error[mine], duration[mine], [own] * _classes())
    return out


def _transfer_spread(name: str, part: Checked) -> list[float]:
    silicon = part.rows.labels["silicon"]
    errors: list[NDArray[np.float64]] = []
    durations: list[NDArray[np.int64]] = []
    names = sorted(set(silicon.tolist()))
    if len(names) < 2:
        return list(WIDE)
    for this in names:
        held = silicon == this
        model = train_model(name, take(part, ~held), branches=("transfer",))
        test = take(part, _some(np.flatnonzero(held)))
        predicted = model.predict(test.rows).log_seconds
        errors.append(np.abs(predicted - test.log_measured))
        durations.append(np.digitize(predicted, np.log(DURATION_EDGES_S)))
    error, duration = np.concatenate(errors), np.concatenate(durations)
    overall = float(np.quantile(error, CONTAINED))
    return _quantiles(error, duration, [overall] * _classes())


def _some(rows: NDArray[np.int64], limit: int = 3_000) -> NDArray[np.int64]:
    step = max(1, len(rows) // limit)
    return rows[::step]


def _classes() -> int:
    return len(DURATION_EDGES_S) + 1


def _quantiles(
    error: NDArray[np.float64], duration: NDArray[np.int64], fallback: list[float]
) -> list[float]:
    out = []
    for j in range(_classes()):
        mine = error[duration == j]
        value = float(np.quantile(mine, CONTAINED)) if len(mine) >= _FEW else fallback[j]
        out.append(round(value, 4))
    return out
