"""Held-out error of a model, and the intervals that follow from it.

Known GPUs: one in eight shapes is held out. Unseen GPUs: each silicon in turn. Intervals contain
80 % of those rows, by GPU and duration class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.kernels.learned import DURATION_EDGES_S, LearnedModel, Spread
from perfmodel.measure.kernels.splits import shape_hash
from perfmodel.measure.kernels.tables import Checked, take
from perfmodel.measure.kernels.train import WIDE, is_usual_vendor, train_model

CONTAINED = 0.80
"""Share of held-out rows that an interval is set to contain."""
_FOLDS = 8  # one in eight shapes is held out to see the error
_ENOUGH = 60  # rows for the quantiles of one GPU; fewer use those of all GPUs
_FEW = 20  # rows for the quantile of one duration class
_ROWS_OF_SILICON = 3_000  # that the error on an unseen GPU is measured on: each silicon the same
_NUM_CLASSES = len(DURATION_EDGES_S) + 1


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Errors of held-out rows: ln(predicted / measured), duration class, name of GPU or silicon."""

    error: NDArray[np.float64]
    duration: NDArray[np.int64]
    name: NDArray[np.object_]

    def take(self, index: NDArray[np.bool_] | NDArray[np.int64]) -> HeldOut:
        """The rows at `index`."""
        return HeldOut(self.error[index], self.duration[index], self.name[index])

    def half_widths(self) -> list[float]:
        """Quantile of each duration class; classes with few rows take that of all."""
        size = np.abs(self.error)
        overall = float(np.quantile(size, CONTAINED))
        out = []
        for j in range(_NUM_CLASSES):
            mine = size[self.duration == j]
            out.append(float(np.quantile(mine, CONTAINED)) if len(mine) >= _FEW else overall)
        return [round(value, 4) for value in out]

    def by_name(self) -> dict[str, list[float]]:
        """`half_widths` of each name with rows enough, and of all under ""."""
        widths = {"": self.half_widths()}
        for name in sorted(set(self.name.tolist())):
            mine = self.name == name
            if mine.sum() >= _ENOUGH:
                widths[name] = self.take(mine).half_widths()
        return widths

    def summary(self) -> dict[str, dict[str, float]]:
        """rows, geomean_error, median, p90, worst and bias by name; fractions."""
        return {
            name: _summary(self.error[self.name == name])
            for name in sorted(set(self.name.tolist()))
        }


@dataclass(frozen=True, slots=True)
class Spreads:
    """A model with its intervals, and the held-out errors behind them."""

    model: LearnedModel
    errors: Mapping[str, Any] = field(default_factory=dict)


def with_spread(
    model: LearnedModel, part: Checked, *, known: bool = True, transfer: bool = True
) -> Spreads:
    """`model` with intervals from refits on `part` without some shapes and without each silicon.

    `known` and `transfer` say which refits to do; without one its intervals stay wide.
    """
    seen = _known_errors(model.name, part) if known else None
    unseen = _transfer_errors(model.name, part) if transfer else None
    widths: Sequence[float] = WIDE
    if unseen is not None:
        # Parts of another vendor err in their own way and say little about the usual one's.
        silicon = part.rows.labels["silicon"]
        usual = set(silicon[is_usual_vendor(part.rows)].tolist())
        kept = np.array([name in usual for name in unseen.name], dtype=bool)
        widths = unseen.take(kept).half_widths()
    spread = Spread(known=seen.by_name() if seen else {}, transfer=widths)
    errors = {
        "unseen_shapes": seen.summary() if seen else {},
        "unseen_silicon": unseen.summary() if unseen else {},
    }
    return Spreads(model=replace(model, spread=spread), errors=errors)


def width_from(
    part: Checked,
    log_seconds: NDArray[np.float64],
    seen: NDArray[np.bool_],
    wanted: NDArray[np.bool_],
    *,
    by_gpu: bool,
) -> NDArray[np.float64]:
    """Half widths of the `wanted` rows of `part` from the errors of the `seen` ones.

    `log_seconds` are held-out predictions of all rows.
    """
    duration = np.digitize(log_seconds, np.log(DURATION_EDGES_S))
    if not seen.any():
        return np.asarray(WIDE)[duration[wanted]]
    gpus = part.rows.labels["gpu"]
    held_out = HeldOut((log_seconds - part.log_measured)[seen], duration[seen], gpus[seen])
    if not by_gpu:
        few = _evenly(part.rows.labels["silicon"][seen])
        few = few[is_usual_vendor(part.rows.take(seen))[few]]
        return np.asarray(held_out.take(few).half_widths())[duration[wanted]]
    table = held_out.by_name()
    return np.array(
        [
            table.get(gpu, table[""])[j]
            for gpu, j in zip(gpus[wanted], duration[wanted], strict=True)
        ]
    )  # fmt: skip


def _known_errors(name: str, part: Checked) -> HeldOut | None:
    held = shape_hash(part, part.family.shape, seed=1) % np.uint64(_FOLDS) == 0
    if held.all() or not held.any():
        return None
    model = train_model(name, take(part, ~held), branches=("known",))
    return _errors(model, take(part, held), "gpu")


def _transfer_errors(name: str, part: Checked) -> HeldOut | None:
    silicon = part.rows.labels["silicon"]
    names = sorted(set(silicon.tolist()))
    if len(names) < 2:
        return None
    pieces = []
    for this in names:
        held = silicon == this
        model = train_model(name, take(part, ~held), branches=("transfer",))
        rows = np.flatnonzero(held)
        step = max(1, len(rows) // _ROWS_OF_SILICON)
        pieces.append(_errors(model, take(part, rows[::step]), "silicon"))
    return HeldOut(
        np.concatenate([p.error for p in pieces]),
        np.concatenate([p.duration for p in pieces]),
        np.concatenate([p.name for p in pieces]),
    )


def _evenly(silicon: NDArray[np.object_]) -> NDArray[np.int64]:
    """Positions of about as many rows of each silicon."""
    chosen = []
    for name in sorted(set(silicon.tolist())):
        rows = np.flatnonzero(silicon == name)
        chosen.append(rows[:: max(1, len(rows) // _ROWS_OF_SILICON)])
    return np.sort(np.concatenate(chosen))


def _errors(model: LearnedModel, test: Checked, label: str) -> HeldOut:
    predicted = model.predict(test.rows).log_seconds
    return HeldOut(
        predicted - test.log_measured,
        np.digitize(predicted, np.log(DURATION_EDGES_S)),
        test.rows.labels[label],
    )


def _summary(error: NDArray[np.float64]) -> dict[str, float]:
    size = np.abs(np.expm1(error))
    values = {
        "geomean_error": np.expm1(np.mean(np.abs(error))),
        "median": np.median(size),
        "p90": np.quantile(size, 0.9),
        "worst": size.max(),
        "bias": np.expm1(np.median(error)),
    }
    return {"rows": len(error), **{k: round(float(v), 4) for k, v in values.items()}}
