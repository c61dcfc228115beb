"""Interval widths from held-out residuals, and the execution bundle built from a whole fit."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from perfmodel.cost.execution import ExecutionBundle
from perfmodel.cost.parameters import ParameterSet
from perfmodel.cost.spread import SpreadFeatures, SpreadTable, fit_spread
from perfmodel.measure.calibrate import Calibration, Fit, fit, outcomes
from perfmodel.measure.fanout import Pool, Progress
from perfmodel.measure.scoring import KEYS, group_of, score, score_by, source_of
from perfmodel.measure.sensitivity import Answer, Question, answer
from perfmodel.measure.validate import held_out_values

Row = Mapping[str, Any]

_HELD_OUT = ("leave_source_out", "stack_unknown")


def spread_from(parts: Sequence[tuple[Sequence[Row], Sequence[Answer]]]) -> SpreadTable:
    """Interval widths from held-out predictions; every answer says which kind of row it is."""
    residuals: list[float] = []
    features: list[SpreadFeatures] = []
    for rows, answers in parts:
        for row, found in zip(rows, answers, strict=True):
            if found.error is None and found.features is not None:
                measured = float(row["iteration_time_ms"]) / 1e3
                residuals.append(math.log(measured / found.seconds))
                features.append(found.features)
    return fit_spread(residuals, features)


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A fit of all rows, the bundle made of it, and the predictions behind the bundle.

    `protocols` maps priors, in_sample, leave_group_out, leave_source_out and stack_unknown (source
    out, and the stack's name taken away) to one answer for each of `rows`.
    """

    fitted: Calibration
    bundle: ExecutionBundle
    rows: tuple[Row, ...]
    protocols: Mapping[str, Sequence[Answer]]


def build_execution(
    rows: Sequence[Row],
    *,
    data: Sequence[str],
    command: str,
    pool: Pool,
    progress: Progress | None = None,
) -> Build:
    """Fit `rows` and make a bundle: parameters, calibrated widths, and a manifest.

    Parameters
    ----------
    rows : sequence of mapping
        Measured rows, published-run schema.
    data, command : sequence of str, str
        Names of the data files and the command that rebuilds the bundle, for the manifest.
    pool : Pool
        Worker processes.

    Notes
    -----
    Known stacks take their widths from predictions with the row's source held out, the wider of
    the two: whether a user's run resembles a published group cannot be told. Unknown stacks take
    them with the stack's name taken away too.
    """
    found = fit(rows, {}, pool, progress)
    predicted = found.line.rows
    protocols = _protocols(found, pool, progress)
    fitted = found.calibration(protocols["in_sample"])
    manifest = {
        "data": list(data),
        "rows": len(predicted),
        "groups": len({group_of(r) for r in predicted}),
        "sources": len({source_of(r) for r in predicted}),
        "not_predicted": [f["id"] for f in found.failed],
        "command": command,
        "versions": _versions(),
        "errors": {name: _scores(predicted, a) for name, a in protocols.items()},
        "information": {p["name"]: p["information"] for p in fitted.parameters},
    }
    spread = spread_from([(predicted, protocols[name]) for name in _HELD_OUT])
    bundle = ExecutionBundle(
        parameters=ParameterSet(values=dict(fitted.values)), spread=spread, manifest=manifest
    )
    return Build(fitted=fitted, bundle=bundle, rows=predicted, protocols=protocols)


def _protocols(found: Fit, pool: Pool, progress: Progress | None) -> dict[str, Sequence[Answer]]:
    """Answers of every predicted row under each protocol of `Build`."""
    line, rows = found.line, found.line.rows
    by_group = held_out_values(line, rows, "group")
    by_source = held_out_values(line, rows, "source")
    questions = [
        Question(
            row=r,
            values=found.values,
            alternatives=(by_group[group_of(r)], by_source[source_of(r)]),
        )
        for r in rows
    ]
    nameless = [Question(row=r, values=by_source[source_of(r)], is_anonymous=True) for r in rows]
    final = list(pool.map(answer, questions, progress))
    start = {id(r): a for r, a in zip(found.rows, found.start, strict=True)}
    return {
        "priors": [start[id(r)] for r in rows],
        "in_sample": final,
        "leave_group_out": [replace(a, seconds=a.alternatives[0]) for a in final],
        "leave_source_out": [replace(a, seconds=a.alternatives[1]) for a in final],
        "stack_unknown": list(pool.map(answer, nameless, progress)),
    }


def _scores(rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, Any]:
    found = outcomes(rows, answers)
    every = {"all": score(found), **score_by(found, KEYS["family"])}
    return {
        name: {k: round(v, 4) if isinstance(v, float) else v for k, v in values.items()}
        for name, values in every.items()
    }


def _versions() -> dict[str, str]:
    try:
        own = version("perfmodel")
    except PackageNotFoundError:
        own = "source tree"
    return {"perfmodel": own, "python": platform.python_version(), "numpy": np.__version__}
