"""Fits the residual: robust ridge on curves, sources weighted equally and as random effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.collectives.regimes import closed_form_seconds
from perfmodel.cost.collectives.residual import KNOTS, Residual, abscissa, case_of, hats, terms
from perfmodel.measure.collectives.frame import Curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a case is fitted. Weights are in units of one curve's worth of points.

    Chosen by the error of left-out sources (experiments/collective_accuracy). Ridges shrink terms
    to 0: little where sources agree, much where they hardly do.
    """

    quantile: float  # what is aimed at: 0.5 is the middle of the points
    source_power: float  # a source counts as this power of its number of curves
    case: float  # ridge of the term that all curves of a case share
    term: float
    ranks: float
    smooth: float  # penalty on steps between neighbouring knots of a term
    source: float  # ridge of a source's own offset, which is fitted and then dropped
    slower: float  # the same where the source is slower than the others


RECIPES = {
    # Overheads of dispatch, profilers and old libraries only add: the fast sources set the level.
    "nvlink": Recipe(
        quantile=0.5, source_power=0.5, case=0.01, term=0.1, ranks=0.2, smooth=0.02, source=0.3,
        slower=0.02,
    ),
    # Settings differ more than platforms: sources count nearly alike, the middle is aimed at.
    "network": Recipe(
        quantile=0.5, source_power=0.3, case=0.02, term=1.0, ranks=3.0, smooth=0.1, source=0.3,
        slower=0.3,
    ),
    # Three machines that disagree by ten: the closed form with its wide interval stands.
    "pcie": Recipe(
        quantile=0.4, source_power=0.3, case=3.0, term=3.0, ranks=10.0, smooth=0.1, source=0.3,
        slower=0.3,
    ),
}  # fmt: skip
_HUBER = 0.25  # errors beyond 25 % count linearly
_ROUNDS = 8
_MAX_POINTS = 24  # a curve's sizes are thinned to about one per factor of two


def thin(curve: Curve) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """At most `_MAX_POINTS` sizes of a curve, spread evenly in log size."""
    count = len(curve.num_bytes)
    if count <= _MAX_POINTS:
        return curve.num_bytes, curve.seconds
    logs = np.log(curve.num_bytes)
    wanted = np.linspace(logs[0], logs[-1], _MAX_POINTS)
    picked = np.unique(np.abs(logs[:, None] - wanted[None, :]).argmin(axis=0))
    return curve.num_bytes[picked], curve.seconds[picked]


def merge(curves: Sequence[Curve]) -> list[Curve]:
    """Runs of one setting of one source as one curve: medians by size."""
    groups: dict[tuple[object, ...], list[Curve]] = {}
    for curve in curves:
        key = (curve.source, curve.gpu, curve.kind, curve.dtype, curve.path)
        groups.setdefault(key, []).append(curve)
    return [group[0] if len(group) == 1 else _merged(group) for group in groups.values()]


def _merged(group: list[Curve]) -> Curve:
    sizes = np.concatenate([c.num_bytes for c in group])
    times = np.concatenate([c.seconds for c in group])
    unique, inverse = np.unique(sizes, return_inverse=True)
    medians = np.array([np.median(times[inverse == i]) for i in range(len(unique))])
    return replace(group[0], run="", num_bytes=unique, seconds=medians, positions=())


def fit_residual(curves: Sequence[Curve]) -> Residual:
    """Residual of the closed form on `curves` (merged by setting first), each case apart.

    Returns
    -------
    Residual
        Coefficients per term; `sigma` is left to `calibrate_sigma`, which needs held-out errors.
    """
    coefficients: dict[str, NDArray[np.float64]] = {}
    merged = merge(curves)
    for case, recipe in RECIPES.items():
        part = [curve for curve in merged if case_of(curve.path) == case]
        if part:
            coefficients |= _fit_case(part, recipe)
    return Residual(coefficients=coefficients)


def _fit_case(curves: Sequence[Curve], recipe: Recipe) -> dict[str, NDArray[np.float64]]:
    names, design, target, weight = _design(curves, recipe.source_power)
    robust = np.ones(len(target))
    solution: NDArray[np.float64] = np.zeros(design.shape[1])
    for _ in range(_ROUNDS):
        penalty = _penalty(names, solution, recipe)
        w = weight * robust
        gram = design.T @ (design * w[:, None]) + penalty
        solution = np.linalg.solve(gram, design.T @ (w * target)).astype(np.float64)
        error = target - design @ solution
        side = np.where(error > 0, recipe.quantile, 1 - recipe.quantile)
        robust[:] = 2 * side * np.minimum(1.0, _HUBER / np.maximum(np.abs(error), 1e-9))
    width = len(KNOTS)
    return {
        name: solution[i * width : (i + 1) * width]
        for i, name in enumerate(names)
        if not name.startswith("source:")
    }


def _design(
    curves: Sequence[Curve], source_power: float
) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Names of terms, design matrix, ln(measured / closed form) and weight of each point."""
    per_source = Counter(curve.source for curve in curves)
    pieces = []
    for curve in curves:
        size, seconds = thin(curve)
        closed = closed_form_seconds(curve.kind, size, curve.path, curve.dtype)
        basis = hats(abscissa(curve.kind, size, curve.path, curve.dtype))
        active = [*terms(curve.kind, curve.path, curve.dtype), (_source_term(curve), 1.0)]
        weight = 1.0 / len(size) / per_source[curve.source] ** (1 - source_power)
        pieces.append((active, basis, np.log(seconds / closed), np.full(len(size), weight)))
    names = sorted({name for active, *_ in pieces for name, _ in active})
    index = {name: i for i, name in enumerate(names)}
    width = len(KNOTS)
    design = np.zeros((sum(len(piece[2]) for piece in pieces), len(names) * width))
    start = 0
    for active, basis, target, _ in pieces:
        for name, factor in active:
            column = index[name] * width
            design[start : start + len(target), column : column + width] += factor * basis
        start += len(target)
    target = np.concatenate([piece[2] for piece in pieces])
    return names, design, target, np.concatenate([piece[3] for piece in pieces])


def _source_term(curve: Curve) -> str:
    return f"source:{curve.source}"


def _penalty(
    names: Sequence[str], solution: NDArray[np.float64], recipe: Recipe
) -> NDArray[np.float64]:
    """Ridge and smoothness. A source may be slower than the rest at little cost, not faster."""
    width = len(KNOTS)
    steps = np.diff(np.eye(width), axis=0)
    penalty = np.zeros((len(names) * width,) * 2)
    for i, name in enumerate(names):
        block = slice(i * width, (i + 1) * width)
        strength = np.full(width, _ridge_of(name, recipe))
        if name.startswith("source:"):
            strength[solution[block] > 0] = recipe.slower
        penalty[block, block] = np.diag(strength) + recipe.smooth * steps.T @ steps
    return penalty


def _ridge_of(name: str, recipe: Recipe) -> float:
    if name.startswith("source:"):
        return recipe.source
    if name.endswith((".local", ".nodes")):
        return recipe.ranks
    return recipe.term if "." in name else recipe.case
