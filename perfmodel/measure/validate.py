"""Predicts every measured run and compares: the figures that are quoted."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfmodel.cost.execution import ExecutionBundle, load_execution
from perfmodel.cost.spread import SpreadTable, interval
from perfmodel.errors import InputError
from perfmodel.measure.calibrate import Linearisation, fit, plain_values
from perfmodel.measure.fanout import DEFAULT_WORKERS, Pool, Progress, print_progress
from perfmodel.measure.scoring import KEYS, Outcome, group_of, score_by, source_of, summarize
from perfmodel.measure.sensitivity import Answer, Question, answer

Row = Mapping[str, Any]

_CONFIDENCES = {
    "low": {"low", "medium", "high"}, "medium": {"medium", "high"}, "high": {"high"},
}  # fmt: skip
LEAVE_OUT: Mapping[str, Callable[[Row], str]] = {"group": group_of, "source": source_of}
"""What may be held out of the fit, and how to tell which part a row belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateResult:
    """Every row with its prediction, and the scores.

    `rows` {id, group, family, gpu, confidence, measured_ms, predicted_ms, interval_ms, error,
    refused}: `error` is predicted / measured - 1, `refused` the sentence where there is none.
    `summary` scores them; `is_complete` is false after an interruption. `answers` are the
    predictions behind `rows`, in their order.
    """

    rows: tuple[dict[str, Any], ...]
    summary: dict[str, Any]
    is_complete: bool = True
    answers: tuple[Answer, ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """JSON of the contract."""
        return {"rows": list(self.rows), "summary": self.summary}


def validate(
    rows: Sequence[Row],
    *,
    where: str | None = None,
    min_confidence: str = "medium",
    leave_out: str | None = None,
    bundle: ExecutionBundle | None = None,
    by: str | None = None,
    progress: Progress | None = print_progress,
    workers: int = DEFAULT_WORKERS,
) -> ValidateResult:
    """Predict measured runs and score the predictions.

    Parameters
    ----------
    rows : sequence of mapping
        Published-run schema. Rows without a measured time are left out.
    where : str, optional
        Comma-separated `key=pattern` (family, gpu, source, scale, confidence, group, id, model …),
        all of which must hold; a pattern is a part of the value, or shell-like with `*`; `|`
        separates alternatives.
    min_confidence : str
        low, medium or high.
    leave_out : str, optional
        group or source: every fitted parameter is refitted on the rows of the other groups or
        sources (all of `rows` that `min_confidence` admits, whatever `where` selects).
    bundle : ExecutionBundle, optional
        Parameters and interval widths; default: the shipped ones. With `leave_out` only the widths
        are used.
    by : str, optional
        One more breakdown, by any key of `where`; added to the summary as `by_<key>`.
    progress : callable, optional
        Called with (done, total); default: a count on stderr.
    workers : int
        Processes.

    Returns
    -------
    ValidateResult
        Equal for equal input, whatever the number of workers.

    Raises
    ------
    InputError
        If an option is not one of the above.
    """
    check_options(where, min_confidence, leave_out, by)
    bundle = bundle if bundle is not None else load_execution()
    admitted = [r for r in rows if _is_measured(r, min_confidence)]
    chosen = [i for i, row in enumerate(admitted) if matches(row, where)]
    answers: list[Answer] = []
    complete = True
    with Pool(workers) as pool:
        try:
            for found in _answers(admitted, chosen, leave_out, bundle, pool, progress):
                answers.append(found)
        except KeyboardInterrupt:
            complete = False
    done = [admitted[i] for i in chosen[: len(answers)]]
    return result_of(done, answers, bundle.spread, by=by, complete=complete)


def check_options(
    where: str | None, min_confidence: str, leave_out: str | None, by: str | None
) -> None:
    """Raise InputError for an option that `validate` does not have."""
    if min_confidence not in _CONFIDENCES:
        raise InputError(f"min_confidence {min_confidence!r} is not low, medium or high")
    if leave_out is not None and leave_out not in LEAVE_OUT:
        raise InputError(f"leave_out {leave_out!r} is not group or source")
    if by is not None and by not in _WHERE:
        raise InputError(f"by {by!r} is not one of {', '.join(_WHERE)}")
    list(_conditions(where))


_WHERE: Mapping[str, Callable[[Row], str]] = {
    **KEYS,
    "gpu": lambda row: str((row.get("hardware") or {}).get("gpu")),
    "group": group_of,
    "id": lambda row: str(row.get("id")),
    "model": lambda row: str(row.get("model_name")),
    "software": lambda row: str(row.get("software")),
    "precision": lambda row: str(row.get("precision")),
}


def matches(row: Row, where: str | None) -> bool:
    """Whether a row meets every `key=pattern` of `where`, upper and lower case alike."""
    return all(
        any(_meets(_WHERE[key](row).lower(), p.strip().lower()) for p in patterns)
        for key, patterns in _conditions(where)
    )


def _meets(value: str, pattern: str) -> bool:
    """A pattern without wildcards may be any part of the value."""
    return pattern in value if not set(pattern) & set("*?[") else fnmatch.fnmatch(value, pattern)


def _conditions(where: str | None) -> Iterator[tuple[str, list[str]]]:
    for part in (where or "").split(","):
        if not part.strip():
            continue
        key, equals, pattern = part.partition("=")
        if not equals or key.strip() not in _WHERE:
            raise InputError(
                f"where {part.strip()!r} is not key=pattern with a key of {', '.join(_WHERE)}"
            )
        yield key.strip(), pattern.split("|")


def _is_measured(row: Row, min_confidence: str) -> bool:
    # A user's own rows need not grade themselves.
    return bool(row.get("iteration_time_ms")) and (
        str(row.get("confidence") or "high") in _CONFIDENCES[min_confidence]
    )


def _answers(
    admitted: Sequence[Row],
    chosen: Sequence[int],
    leave_out: str | None,
    bundle: ExecutionBundle,
    pool: Pool,
    progress: Progress | None,
) -> Iterator[Answer]:
    if leave_out is None:
        values = plain_values(bundle)
        questions = [Question(row=admitted[i], values=values) for i in chosen]
    else:
        line = fit(admitted, {}, pool, progress).line
        fitted = held_out_values(line, admitted, leave_out)
        part = LEAVE_OUT[leave_out]
        questions = [Question(row=admitted[i], values=fitted[part(admitted[i])]) for i in chosen]
    return pool.map(answer, questions, progress)


def held_out_values(
    line: Linearisation, rows: Sequence[Row], leave_out: str
) -> dict[str, dict[str, float]]:
    """Parameter values for every part of `rows` (group or source), fitted without that part.

    The response of the time to its parameters is linearised once, at the fit of all rows; each
    part is then left out of the residuals and the regression solved again from the priors.
    """
    part = LEAVE_OUT[leave_out]
    parts = np.array([part(r) for r in line.rows])
    return {name: line.fit_without(parts == name) for name in sorted({part(r) for r in rows})}


def result_of(
    rows: Sequence[Row],
    answers: Sequence[Answer],
    table: SpreadTable,
    *,
    by: str | None = None,
    complete: bool = True,
) -> ValidateResult:
    """Rows and summary of answers that were got one way or another, with intervals of `table`."""
    outcomes: list[Outcome] = []
    listed = []
    for row, found in zip(rows, answers, strict=True):
        measured = float(row["iteration_time_ms"])
        entry: dict[str, Any] = {
            "id": row.get("id"),
            "group": group_of(row),
            "family": row.get("family"),
            "gpu": (row.get("hardware") or {}).get("gpu"),
            "confidence": row.get("confidence"),
            "measured_ms": measured,
            "predicted_ms": None,
            "interval_ms": None,
            "error": None,
            "refused": found.error,
        }
        if found.error is None and found.features is not None:
            low, high = interval(found.seconds * 1e3, found.features, table)
            entry["predicted_ms"] = found.seconds * 1e3
            entry["interval_ms"] = [low, high]
            entry["error"] = found.seconds * 1e3 / measured - 1.0
            outcomes.append(
                Outcome(
                    row=row,
                    measured_ms=measured,
                    predicted_ms=found.seconds * 1e3,
                    interval_ms=(low, high),
                )
            )
        listed.append(entry)
    summary = summarize(outcomes, failed=len(rows) - len(outcomes))
    if by is not None and by not in KEYS:
        summary[f"by_{by}"] = score_by(outcomes, _WHERE[by])
    if not complete:
        summary["interrupted"] = True
    return ValidateResult(
        rows=tuple(listed), summary=summary, is_complete=complete, answers=tuple(answers)
    )
