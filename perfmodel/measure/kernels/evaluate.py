"""How well models predict measured kernels, with or without having seen them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.kernels.backward import predict
from perfmodel.cost.kernels.bundle import KernelBundle
from perfmodel.cost.kernels.learned import LearnedModel, Prediction
from perfmodel.cost.kernels.select import choose_model
from perfmodel.errors import InputError
from perfmodel.measure.kernels.recipes import model_name
from perfmodel.measure.kernels.splits import PROTOCOLS, folds
from perfmodel.measure.kernels.spread import width_from
from perfmodel.measure.kernels.tables import Checked, can_fit, check, read_tables, take
from perfmodel.measure.kernels.train import train_model
from perfmodel.units import US

if TYPE_CHECKING:
    import pandas as pd


# Which trees a protocol puts to the test: held-out shapes are of known GPUs, held-out GPUs are not.
_BRANCHES: Mapping[str, Sequence[str]] = {
    "shape": ("known",),
    "group": ("known",),
    "gpu": ("transfer",),
    "source": ("known", "transfer"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvaluation:
    """Result of `evaluate_kernels`.

    rows : every input row with `predicted_us`, `lo_us`, `hi_us` (80 % interval), `refused` (bool),
        `refusal` (why) and `is_judged` (measured and not flagged)
    by_op, by_gpu : name -> {rows, geomean_error, mape, median, p90, coverage} over judged rows
    """

    rows: pd.DataFrame
    refused: int
    by_op: Mapping[str, Mapping[str, float]]
    by_gpu: Mapping[str, Mapping[str, float]]


def evaluate_kernels(
    tables: Iterable[str | Path | pd.DataFrame],
    *,
    bundle: str | Path | KernelBundle | None = None,
    leave_out: str | None = None,
) -> KernelEvaluation:
    """Predict every row of `tables` and compare with what was measured.

    Parameters
    ----------
    tables : iterable of path or DataFrame
        Kernel tables.
    bundle : path or KernelBundle, optional
        Fitted models to judge; needed unless `leave_out` is given.
    leave_out : {"shape", "group", "gpu", "source"}, optional
        Refit on `tables` without the fold that a row is in: five folds of shapes or of groups of
        shapes, one for each silicon ("gpu": siblings are left out together) or source.

    Raises
    ------
    InputError
        If a table cannot be read, or neither a bundle nor `leave_out` is given.
    """
    frame = read_tables(tables)
    parts, refusals = check(frame)
    outcome = _Outcome.empty(len(frame))
    if leave_out is not None:
        if leave_out not in PROTOCOLS:
            raise InputError(f"leave-out {leave_out!r} is not one of {', '.join(PROTOCOLS)}")
        for part in parts:
            _leave_out(part, leave_out, outcome)
    elif bundle is None:
        raise InputError("evaluate needs a bundle, or what to leave out")
    else:
        opened = bundle if isinstance(bundle, KernelBundle) else KernelBundle.load(bundle)
        for part in parts:
            _predict_with(opened, part, outcome, refusals)
    for part in parts:
        outcome.is_judged[part.index] = part.is_judged
    return _summarise(frame, outcome, refusals)


@dataclass(slots=True)
class _Outcome:
    log_seconds: NDArray[np.float64]
    half_width: NDArray[np.float64]
    is_judged: NDArray[np.bool_]

    @classmethod
    def empty(cls, rows: int) -> _Outcome:
        return cls(np.full(rows, np.nan), np.full(rows, np.nan), np.zeros(rows, dtype=bool))

    def store(self, index: NDArray[np.int64], prediction: Prediction) -> None:
        self.log_seconds[index] = prediction.log_seconds
        self.half_width[index] = prediction.half_width


def by_model(part: Checked) -> Iterator[tuple[str, Checked]]:
    """Split a part by the model that learns from it."""
    dtypes = part.rows.labels["dtype"]
    names = {d: model_name(part.family, d) for d in set(dtypes.tolist())}
    for name in sorted(set(names.values())):
        mine = np.isin(dtypes.astype(str), [d for d, n in names.items() if n == name])
        yield name, take(part, mine)


def _leave_out(part: Checked, protocol: str, outcome: _Outcome) -> None:
    """Predict every fold by a model that did not see it.

    The interval of a fold comes from how far the other folds, left out in their turn, lay off.
    """
    for name, mine in by_model(part):
        fold = folds(mine, protocol)
        names = sorted(set(fold.tolist()))
        log_seconds = np.empty(len(mine.index))
        for this in names:
            held = fold == this
            training = ~held & can_fit(mine)
            if training.any():
                model = train_model(name, take(mine, training), branches=_BRANCHES[protocol])
            else:
                model = untrained(name, mine)
            log_seconds[held] = predict(model, take(mine, held).rows).log_seconds
        half_width = np.empty(len(mine.index))
        for this in names:
            others = (fold != this) & can_fit(mine)
            half_width[fold == this] = width_from(
                mine, log_seconds, others, fold == this, by_gpu=protocol in ("shape", "group")
            )
        outcome.log_seconds[mine.index] = log_seconds
        outcome.half_width[mine.index] = half_width


def untrained(name: str, part: Checked) -> LearnedModel:
    """A model that knows physics only: for operators of which nothing else was measured."""
    from perfmodel.cost.kernels.kinds import KindTable
    from perfmodel.cost.kernels.learned import Branch, Spread
    from perfmodel.measure.kernels.train import WIDE

    empty = Branch(columns=(), encoders={}, trees=None)
    return LearnedModel(
        name=name, family=part.family, kinds=KindTable(()), known=empty, transfer=empty,
        spread=Spread(known={}, transfer=WIDE), defaults={},
    )  # fmt: skip


def _predict_with(
    bundle: KernelBundle, part: Checked, outcome: _Outcome, refusals: NDArray[np.object_]
) -> None:
    labels = part.rows.labels
    pairs = sorted(set(zip(labels["silicon"], labels["dtype"], strict=True)))
    for silicon, dtype in pairs:
        mine = np.flatnonzero((labels["silicon"] == silicon) & (labels["dtype"] == dtype))
        rows = take(part, mine)
        model, priced = choose_model(bundle, part.family, rows.rows)
        if model is None:
            refusals[rows.index] = f"the bundle has no model of {part.family.name} in {dtype}"
            continue
        outcome.store(rows.index, predict(model, priced))


def _summarise(
    frame: pd.DataFrame, outcome: _Outcome, refusals: NDArray[np.object_]
) -> KernelEvaluation:
    rows = frame.copy()
    predicted = np.exp(outcome.log_seconds) / US
    factor = np.exp(outcome.half_width)
    rows["predicted_us"] = predicted
    rows["lo_us"], rows["hi_us"] = predicted / factor, predicted * factor
    refused = (refusals != "") | ~np.isfinite(predicted)
    rows["refused"], rows["refusal"] = refused, refusals
    rows["is_judged"] = outcome.is_judged & ~refused
    judged = rows[rows["is_judged"]]
    return KernelEvaluation(
        rows=rows,
        refused=int(refused.sum()),
        by_op=error_table(judged, "op"),
        by_gpu=error_table(judged, "gpu"),
    )


def error_table(judged: pd.DataFrame, by: str | list[str]) -> dict[Any, dict[str, float]]:
    """Errors of judged rows by column(s); all errors are fractions, not per cent."""
    return {
        key: errors(group)
        for key, group in judged.groupby(by, sort=True, observed=True)
        if len(group)
    }


def errors(judged: pd.DataFrame) -> dict[str, float]:
    """rows, geomean_error, mape, median, p90, coverage of rows with `latency_us`."""
    measured = judged["latency_us"].to_numpy(dtype=float)
    ratio = judged["predicted_us"].to_numpy(dtype=float) / measured
    size = np.abs(ratio - 1.0)
    inside = (measured >= judged["lo_us"].to_numpy()) & (measured <= judged["hi_us"].to_numpy())
    return {
        "rows": float(len(judged)),
        "geomean_error": float(np.expm1(np.mean(np.abs(np.log(ratio))))),
        "mape": float(size.mean()),
        "median": float(np.median(size)),
        "p90": float(np.quantile(size, 0.9)),
        "coverage": float(inside.mean()),
    }
