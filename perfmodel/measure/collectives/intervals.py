"""Intervals from held-out errors: a share of truths, not a formula, sets the spread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.collectives.regimes import closed_form_seconds
from perfmodel.cost.collectives.residual import (
    KNOTS,
    PRIOR_SIGMA,
    Residual,
    abscissa,
    case_of,
)
from perfmodel.measure.collectives.frame import Curve

Z80 = 1.2816
"""Half-width of the central 80 % of a normal distribution, in standard deviations."""

# Leaving out one of about twelve sources thins the tail: aim a little above 80 %.
_TARGET_SHARE = 0.84
# Latency, transition and bandwidth are calibrated apart; bounds in z.
_BOUNDS = (-1.5, 1.5)
_MIN_SOURCES = 3
_MIN_SIGMA = 0.05


class HeldOutErrors:
    """Absolute log errors by case, zone and source."""

    def __init__(self) -> None:
        self._errors: dict[tuple[str, int, str], list[NDArray[np.float64]]] = defaultdict(list)

    def add(self, curve: Curve, residual: Residual) -> None:
        """Errors of a residual that never saw the curve's source."""
        closed = closed_form_seconds(curve.kind, curve.num_bytes, curve.path, curve.dtype)
        ratio = residual.log_ratio(curve.kind, curve.num_bytes, curve.path, curve.dtype)
        error = np.abs(np.log(curve.seconds / closed) - ratio)
        zone = np.digitize(
            abscissa(curve.kind, curve.num_bytes, curve.path, curve.dtype), list(_BOUNDS)
        )
        for index in range(len(_BOUNDS) + 1):
            if (zone == index).any():
                key = case_of(curve.path), index, curve.source
                self._errors[key].append(error[zone == index])

    def sigma(self, without: str | None = None) -> dict[str, NDArray[np.float64]]:
        """Spread per knot of each case from all sources but one; none for cases of few sources."""
        zones = np.digitize(np.array(KNOTS), list(_BOUNDS))
        out = {}
        for case in PRIOR_SIGMA:
            sources = {s for c, _, s in self._errors if c == case and s != without}
            if len(sources) < _MIN_SOURCES:
                continue
            by_zone = [self._zone_sigma(case, i, without) for i in range(len(_BOUNDS) + 1)]
            out[case] = np.array([by_zone[zone] for zone in zones])
        return out

    def summary(self) -> dict[str, dict[str, float]]:
        """Error factor - 1 by case: mean by source, and how many sources."""
        out = {}
        for case in PRIOR_SIGMA:
            by_source: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
            for (name, _, source), pieces in self._errors.items():
                if name == case:
                    by_source[source] += pieces
            means = [float(np.concatenate(p).mean()) for p in by_source.values()]
            if means:
                out[case] = {
                    "sources": len(means),
                    "geomean_error": round(float(np.expm1(np.mean(means))), 4),
                    "median_source": round(float(np.expm1(np.median(means))), 4),
                    "worst_source": round(float(np.expm1(max(means))), 4),
                }
        return out

    def _zone_sigma(self, case: str, zone: int, without: str | None) -> float:
        values, weights, sources = [], [], 0
        for (a, b, source), pieces in self._errors.items():
            if (a, b) != (case, zone) or source == without:
                continue
            sources += 1
            # Every source counts alike, and within it every curve.
            values += pieces
            weights += [np.full(len(e), 1 / len(e) / len(pieces)) for e in pieces]
        if sources < _MIN_SOURCES:
            return PRIOR_SIGMA[case]
        quantile = weighted_quantile(np.concatenate(values), np.concatenate(weights), _TARGET_SHARE)
        return max(_MIN_SIGMA, quantile / Z80)


def weighted_quantile(
    values: NDArray[np.float64], weights: NDArray[np.float64], share: float
) -> float:
    """Smallest value below which `share` of the weight lies."""
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    index = int(np.searchsorted(cumulative, share * cumulative[-1]))
    return float(values[order][min(index, len(values) - 1)])


def hold_out_sources(curves: Sequence[Curve], fits: Mapping[str, Residual]) -> HeldOutErrors:
    """Errors of each source under the fit that left it out."""
    errors = HeldOutErrors()
    for curve in curves:
        errors.add(curve, fits[curve.source])
    return errors
