"""Scores of predictions against measured runs, as published with every result.

The error of a row is r = ln(predicted / measured). A group is (source, model, GPU); the headline is
exp(mean over groups of the mean |r| of a group), so that a source with many rows counts no more
than one with few.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A sweep is the same model, batch, GPUs and precision under different plans: at least 4 of them,
# whose slowest takes at least 5 % longer than the fastest (repeatability is 1-5 %).
_SWEEP_ROWS = 4
_SWEEP_SPREAD = 1.05
_HIT_REGRET = 0.05
_TAIL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One predicted row: `row` is the published run, times in milliseconds."""

    row: Mapping[str, Any]
    measured_ms: float
    predicted_ms: float
    interval_ms: tuple[float, float] | None = None

    @property
    def log_ratio(self) -> float:
        """ln(predicted / measured)."""
        return math.log(self.predicted_ms / self.measured_ms)

    @property
    def group(self) -> str:
        """Source, model and GPU."""
        return group_of(self.row)

    @property
    def is_covered(self) -> bool | None:
        """Whether the measured time lies inside the interval."""
        if self.interval_ms is None:
            return None
        return self.interval_ms[0] <= self.measured_ms <= self.interval_ms[1]


def group_of(row: Mapping[str, Any]) -> str:
    """`group` of a row, or what it is made of where a user's own row has none."""
    if row.get("group"):
        return str(row["group"])
    gpu = (row.get("hardware") or {}).get("gpu")
    return f"{row.get('source') or 'own'}|{row.get('model_name')}|{gpu}"


def source_of(row: Mapping[str, Any]) -> str:
    """First part of the group."""
    return group_of(row).split("|")[0]


KEYS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "family": lambda row: str(row.get("family")),
    "gpu": lambda row: str((row.get("hardware") or {}).get("gpu")).split("-")[0],
    "source": source_of,
    "scale": lambda row: str(row.get("scale_class")),
    "confidence": lambda row: str(row.get("confidence")),
}
"""What results may be broken down by."""


_FIGURES = (
    "geomean_error_factor", "row_factor", "bias", "mape", "median_ape", "p90_ape", "worst",
    "interval_coverage",
)  # fmt: skip


def score(outcomes: Sequence[Outcome]) -> dict[str, float | int | None]:
    """Headline, bias, spread and coverage of `outcomes`; None for each where there are none."""
    if not outcomes:
        return {"rows": 0, "groups": 0, **dict.fromkeys(_FIGURES)}
    logs = np.array([o.log_ratio for o in outcomes])
    errors = np.abs(np.expm1(logs))
    by_group: dict[str, list[float]] = defaultdict(list)
    for outcome, log in zip(outcomes, logs, strict=True):
        by_group[outcome.group].append(abs(float(log)))
    means = [float(np.mean(values)) for values in by_group.values()]
    inside = [c for o in outcomes if (c := o.is_covered) is not None]
    return {
        "rows": len(outcomes),
        "groups": len(by_group),
        "geomean_error_factor": math.exp(float(np.mean(means))),
        "row_factor": math.exp(float(np.mean(np.abs(logs)))),
        "bias": math.exp(float(np.mean(logs))),
        "mape": float(np.mean(errors)),
        "median_ape": float(np.median(errors)),
        "p90_ape": _upper(errors, _TAIL),
        "worst": float(errors.max()),
        "interval_coverage": sum(inside) / len(inside) if inside else None,
    }


def _upper(values: NDArray[np.float64], share: float) -> float:
    """The smallest value that more than `share` of all do not exceed."""
    return float(np.sort(values)[min(len(values) - 1, int(share * len(values)))])


def score_by(
    outcomes: Iterable[Outcome], key: Callable[[Mapping[str, Any]], str]
) -> dict[str, dict[str, float | int | None]]:
    """`score` of every value of `key`, sorted by it."""
    parts: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        parts[key(outcome.row)].append(outcome)
    return {name: score(parts[name]) for name in sorted(parts)}


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Rank correlation, ties sharing their mean rank; 0 where one side is constant."""
    a, b = _ranks(first), _ranks(second)
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 0 else 0.0


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=float)
    less = (array[None, :] < array[:, None]).sum(axis=1)
    equal = (array[None, :] == array[:, None]).sum(axis=1)
    ranks: NDArray[np.float64] = less + (equal - 1) / 2
    return ranks


def sweep_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What rows of one sweep have in common: all but the plan."""
    hardware = row.get("hardware") or {}
    return (
        str(row.get("source")).split(" line")[0],
        row.get("model_name"),
        json.dumps(row.get("model"), sort_keys=True),
        row.get("global_batch"),
        hardware.get("gpu"),
        hardware.get("num_gpus"),
        row.get("precision"),
    )


def score_sweeps(outcomes: Iterable[Outcome]) -> dict[str, float | int]:
    """How well plans of one workload are ordered.

    `top1_regret` is how much longer than the best plan the one predicted fastest really takes,
    `random_regret` the same of a plan drawn at random, `top1_hits` the share of sweeps with a
    regret of at most 5 %.
    """
    parts: dict[tuple[Any, ...], list[tuple[float, float]]] = defaultdict(list)
    for o in outcomes:
        parts[sweep_key(o.row)].append((o.measured_ms, o.predicted_ms))
    rows = [_sweep(points) for points in parts.values() if _is_sweep(points)]
    if not rows:
        return {"sweeps": 0}
    correlation, regret, chance = np.array(rows).T
    return {
        "sweeps": len(rows),
        "spearman": float(correlation.mean()),
        "top1_regret": float(regret.mean()),
        "random_regret": float(chance.mean()),
        "top1_hits": float((regret <= _HIT_REGRET).mean()),
    }


def _is_sweep(points: Sequence[tuple[float, float]]) -> bool:
    times = [m for m, _ in points]
    return len(times) >= _SWEEP_ROWS and max(times) / min(times) >= _SWEEP_SPREAD


def _sweep(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    measured = [m for m, _ in points]
    best = min(measured)
    chosen = min(points, key=lambda p: p[1])[0]
    return (
        spearman(measured, [p for _, p in points]),
        chosen / best - 1,
        float(np.mean(measured)) / best - 1,
    )


def summarize(outcomes: Sequence[Outcome], *, failed: int = 0) -> dict[str, Any]:
    """The `summary` of a validation: scores in all and by family, GPU, source, scale; sweeps."""
    return {
        **score(outcomes),
        "failed": failed,
        **{f"by_{name}": score_by(outcomes, key) for name, key in KEYS.items()},
        "sweeps": score_sweeps(outcomes),
    }
