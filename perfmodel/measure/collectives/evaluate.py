"""Accuracy on measured tables: held-out predictions for every row, and what they amount to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.collectives.bundle import default_residual, fitted_sources, load_residual
from perfmodel.cost.collectives.model import CollectiveModel
from perfmodel.cost.collectives.residual import Residual, case_of
from perfmodel.errors import InputError
from perfmodel.measure.collectives.fitting import fit_residual
from perfmodel.measure.collectives.frame import (
    MIXED_SOURCES,
    Curve,
    Setting,
    curves_of,
    settings_of_rows,
)
from perfmodel.measure.collectives.intervals import Z80, hold_out_sources
from perfmodel.measure.collectives.protocols import LeaveOut, Protocol, Split, group_of, splits

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class EvaluateResult:
    """Predictions for a table.

    rows : DataFrame
        The input with `predicted_us`, `lo_us`, `hi_us` (80 % interval), `refused`, `reason` (of a
        refusal), `held_out` (whether the prediction knew nothing of the row) and `case`.
    refused : int
        Rows without a prediction.
    summary, by_op, by_gpu, by_case, by_source : mapping
        `rows, curves, sources, geomean_error, mape, median, p90, worst, coverage` of held-out rows;
        `geomean_error` is exp of the mean |ln| error by curve, then by source, minus 1.
    """

    rows: pd.DataFrame
    refused: int
    summary: Mapping[str, float]
    by_op: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    by_gpu: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    by_case: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    by_source: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def evaluate_collectives(
    table: pd.DataFrame,
    *,
    bundle: str | PathLike[str] | None = None,
    leave_out: str | None = None,
    protocol: str | None = None,
) -> EvaluateResult:
    """Predict every row of a collective table and compare.

    Parameters
    ----------
    table : DataFrame
        Columns of `table.COLUMNS`; `bytes`, `time_us`, `collective`, `n_ranks` must exist.
    bundle : path, optional
        Bundle to test; the shipped one by default. Not used with `leave_out`.
    leave_out : {"shape", "group", "gpu", "source"}, optional
        Refit without the row's shape, platform, silicon family or source.
    protocol : {"sizes", "larger", "ranks", "three-points"}, optional
        Own points of the same platform the prediction may use. Without `leave_out` and `bundle`
        the base is refitted without the row's source.

    Raises
    ------
    InputError
        If a column is missing, or a choice is not one of the above.
    """
    chosen = None if protocol is None else _choice(Protocol, protocol, "protocol")
    left = None if leave_out is None else _choice(LeaveOut, leave_out, "leave-out")
    if chosen is not None and left is None and bundle is None:
        left = LeaveOut.SOURCE
    table = table.reset_index(drop=True)
    settings = settings_of_rows(table)
    curves = list(curves_of(table, settings))
    residuals = _residuals(curves, left, bundle)
    rows = _predict_rows(table, settings, splits(curves, chosen), residuals, left)
    return _result(rows, curves)


def _choice(kind: type[Any], value: str, name: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(str(member) for member in kind)
        raise InputError(f"{name} {value!r} is not one of {allowed}") from None


def trusted(curves: Iterable[Curve]) -> list[Curve]:
    """Curves to learn from and to score: sources that mix settings are left out."""
    return [c for c in curves if not any(name in c.source for name in MIXED_SOURCES)]


def leave_one_out(curves: Sequence[Curve], left: LeaveOut) -> dict[str, Residual]:
    """A fit without each group, for every group among `curves`.

    Cases that the rest of the table says nothing about come from the shipped bundle, unless that
    has seen the group.
    """
    known = trusted(curves)
    whole: Residual | None = None
    fits = {}
    for name in sorted({group_of(curve, left) for curve in curves}):
        rest = [curve for curve in known if group_of(curve, left) != name]
        if len(rest) == len(known):
            whole = whole or fit_residual(known)
            fits[name] = whole
        else:
            fits[name] = _completed(fit_residual(rest), rest, name, left)
    return fits


def _completed(fit: Residual, rest: Sequence[Curve], name: str, left: LeaveOut) -> Residual:
    shipped = default_residual()
    if shipped is None or left is not LeaveOut.SOURCE or name in fitted_sources():
        return fit
    known = {case_of(curve.path) for curve in rest}
    missing = {
        term: values
        for term, values in shipped.coefficients.items()
        if term.partition(".")[0] not in known
    }
    return replace(fit, coefficients={**fit.coefficients, **missing})


def _residuals(
    curves: Sequence[Curve], left: LeaveOut | None, bundle: str | PathLike[str] | None
) -> dict[str, Residual]:
    """Residual for each group; the key "" where nothing is left out."""
    if left is None:
        loaded = load_residual(Path(bundle)) if bundle is not None else default_residual()
        return {"": loaded or Residual()}
    fits = leave_one_out(curves, left)
    by_source = fits if left is LeaveOut.SOURCE else leave_one_out(curves, LeaveOut.SOURCE)
    errors = hold_out_sources(trusted(curves), by_source)
    out = {}
    for name, fit in fits.items():
        sigma = errors.sigma(name if left is LeaveOut.SOURCE else None)
        out[name] = replace(fit, sigma={**_shipped_sigma(name, left), **sigma})
    return out


def _shipped_sigma(name: str, left: LeaveOut) -> Mapping[str, NDArray[np.float64]]:
    """Spread of the shipped bundle, where it has not seen the source."""
    shipped = default_residual()
    unseen = left is LeaveOut.SOURCE and name not in fitted_sources()
    return shipped.sigma if shipped is not None and unseen else {}


def _predict_rows(
    table: pd.DataFrame,
    settings: Sequence[Setting | str],
    parts: Iterable[Split],
    residuals: Mapping[str, Residual],
    left: LeaveOut | None,
) -> pd.DataFrame:
    """The table with a prediction for every row; a split's rows are overwritten, held out."""
    count = len(table)
    predicted, spread = np.full(count, np.nan), np.full(count, np.nan)
    held_out = np.zeros(count, bool)
    models: dict[str, CollectiveModel] = {}
    for split in parts:
        curve = split.curve
        key = "" if left is None else group_of(curve, left)
        if split.own:
            model = CollectiveModel(residuals[key], split.own)
        else:
            model = models.setdefault(key, CollectiveModel(residuals[key]))
        sizes = curve.num_bytes[split.targets]
        seconds, sigma = model.predict(curve.kind, sizes, curve.path, curve.dtype)
        for index, time, width in zip(split.targets, seconds, sigma, strict=True):
            positions = curve.positions[index]
            predicted[positions], spread[positions] = time * 1e6, width
            held_out[positions] = True
    reasons = [setting if isinstance(setting, str) else "" for setting in settings]
    return table.assign(
        predicted_us=predicted,
        lo_us=predicted * np.exp(-Z80 * spread),
        hi_us=predicted * np.exp(Z80 * spread),
        refused=[bool(reason) for reason in reasons],
        reason=reasons,
        held_out=held_out,
        case=["" if isinstance(s, str) else case_of(s.path) for s in settings],
    )


def _result(rows: pd.DataFrame, curves: Sequence[Curve]) -> EvaluateResult:
    curve_of = np.full(len(rows), -1)
    for number, curve in enumerate(curves):
        for positions in curve.positions:
            curve_of[positions] = number
    source = rows["source"].astype(str) if "source" in rows else "unknown"
    scored = rows.assign(_curve=curve_of, _source=source)
    scored = scored[scored["held_out"] & ~_is_mixed(scored["_source"])]
    scored = scored.assign(_error=np.log(scored["time_us"] / scored["predicted_us"]))
    return EvaluateResult(
        rows=rows,
        refused=int(rows["refused"].sum()),
        summary=figures(scored),
        by_op={str(k): figures(g) for k, g in scored.groupby("collective")},
        by_gpu={str(k): figures(g) for k, g in scored.groupby("gpu")},
        by_case={str(k): figures(g) for k, g in scored.groupby("case")},
        by_source={str(k): figures(g) for k, g in scored.groupby("_source")},
    )


def _is_mixed(source: pd.Series) -> pd.Series:
    return source.str.contains("|".join(MIXED_SOURCES), regex=True)


def figures(scored: pd.DataFrame) -> dict[str, float]:
    """Error figures of scored rows; averages by curve, then by source."""
    if len(scored) == 0:
        return {"rows": 0}
    error = scored["_error"]
    inside = (scored["time_us"] >= scored["lo_us"]) & (scored["time_us"] <= scored["hi_us"])
    relative = (scored["predicted_us"] / scored["time_us"] - 1).abs()

    def averaged(values: pd.Series) -> float:
        by_curve = values.groupby([scored["_source"], scored["_curve"]]).mean()
        return float(by_curve.groupby(level=0).mean().mean())

    return {
        "rows": len(scored),
        "curves": int(scored["_curve"].nunique()),
        "sources": int(scored["_source"].nunique()),
        "geomean_error": float(np.expm1(averaged(error.abs()))),
        "bias": float(np.expm1(averaged(error))),
        "mape": float(relative.mean()),
        "median": float(relative.median()),
        "p90": float(relative.quantile(0.9)),
        "worst": float(relative.max()),
        "coverage": averaged(inside.astype(float)),
        "coverage_rows": float(inside.mean()),
    }
