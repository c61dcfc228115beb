"""The 80 % interval of a prediction, from how far calibrated predictions were off when held out.

A table holds, by stratum, the 80 % quantile of |ln(measured / predicted)| over held-out rows. Small
strata are drawn towards the stratum they are part of, which keeps an interval honest where only a
few runs of a kind were ever published.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

PROBABILITY = 0.8
"""Share of true times that intervals are to hold."""
# Half-widths (ln) before any calibration: known stacks held out by group scatter by 8-10 % on
# average, unknown ones by 15 % (study of published runs); 80 % quantiles are 1.6 times the mean.
_PRIOR = {"known": 0.16, "unknown": 0.26}
# A stratum of this many rows counts as much as its parent.
_SHRINKAGE_ROWS = 20.0
# An unlisted GPU or an extrapolation widens by the spread between GPUs left out: about 10 %.
_UNKNOWN_GPU_LOG = 0.10
_PER_ASSUMPTION_LOG = 0.02
_MAX_ASSUMPTIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadFeatures:
    """What decides how wide an interval is."""

    family: str
    is_known_stack: bool
    is_known_gpu: bool = True
    num_gpus: int = 1
    num_nodes: int = 1
    num_assumptions: int = 0

    @property
    def scale(self) -> str:
        """1, intra-node or multi-node, as published runs spell it."""
        if self.num_gpus == 1:
            return "1"
        return "intra-node" if self.num_nodes == 1 else "multi-node"

    def strata(self) -> tuple[str, ...]:
        """Keys from the widest stratum to the narrowest."""
        known = "known" if self.is_known_stack else "unknown"
        return (known, f"{known}.{self.family}", f"{known}.{self.family}.{self.scale}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadTable:
    """`quantiles[stratum]` is (half-width in ln, rows behind it)."""

    quantiles: Mapping[str, tuple[float, int]] = field(default_factory=dict)

    def half_width(self, features: SpreadFeatures) -> float:
        """Half-width in ln of the 80 % interval."""
        strata = features.strata()
        width = _PRIOR[strata[0]]
        for stratum in strata:
            quantile, rows = self.quantiles.get(stratum, (width, 0))
            width = (rows * quantile + _SHRINKAGE_ROWS * width) / (rows + _SHRINKAGE_ROWS)
        return math.hypot(width, _extra(features))


def _extra(features: SpreadFeatures) -> float:
    """Half-width in ln that assumptions and an unlisted GPU add to that of the stratum."""
    extra = _PER_ASSUMPTION_LOG * min(features.num_assumptions, _MAX_ASSUMPTIONS)
    return extra if features.is_known_gpu else math.hypot(extra, _UNKNOWN_GPU_LOG)


def interval(
    iteration_s: float, features: SpreadFeatures, table: SpreadTable
) -> tuple[float, float]:
    """Bounds in seconds that hold the true iteration time with 80 % probability."""
    factor = math.exp(table.half_width(features))
    return iteration_s / factor, iteration_s * factor


def fit_spread(residuals: Sequence[float], features: Sequence[SpreadFeatures]) -> SpreadTable:
    """Table of quantiles from held-out residuals ln(measured / predicted).

    The quantile is the split-conformal one: rank ceil((n + 1) x 0.8) of the absolute residuals,
    which covers a new row of the same kind with at least 80 %.
    """
    parts: dict[str, list[float]] = {}
    for residual, feature in zip(residuals, features, strict=True):
        # What the stratum must cover beyond the widening that this row gets anyway.
        needed = math.sqrt(max(residual**2 - _extra(feature) ** 2, 0.0))
        for stratum in feature.strata():
            parts.setdefault(stratum, []).append(needed)
    return SpreadTable(quantiles={k: (_conformal(parts[k]), len(parts[k])) for k in sorted(parts)})


def _conformal(values: Sequence[float]) -> float:
    ordered = sorted(values)
    rank = math.ceil((len(ordered) + 1) * PROBABILITY)
    return ordered[min(rank, len(ordered)) - 1]
