"""Own measurements: how far a measured curve is from the model, carried to other sizes and ranks.

The ratio measured / modelled varies far less with size than the time itself, so it is what is
interpolated: through all own points within the measured sizes, constant outside them. Beyond the
largest size the modelled bandwidth, scaled, goes on; below the smallest the modelled latency does.
The model here is the closed form alone: what other people's machines have in common does not help
once a machine has been measured (three points a curve: 14.8 % so, 16.6 % with the residual).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.collectives.paths import CommPath
from perfmodel.cost.collectives.regimes import closed_form_seconds
from perfmodel.cost.collectives.residual import abscissa, case_of
from perfmodel.hardware.records import Dtype
from perfmodel.program.work import CollectiveKind
from perfmodel.units import KIB, MIB

SWITCH_ZONE_BYTES = (256 * KIB, 16 * MIB)
"""Where NCCL changes protocol and time may fall as size grows (notes/collectives.md section 3)."""

_SIGMA_FLOOR = 0.02  # repeats of one setting
_SIGMA_SWITCH = 1.5  # times, inside the switch zone
_SIGMA_BEYOND = 1.1  # times, beyond the largest measured size


@dataclass(frozen=True, slots=True)
class Spread:
    """Spread of ln(true / predicted) of own-curve predictions.

    80 % quantiles of held-out errors over 1.28, sources left out (experiments/collective_accuracy):
    per octave to the nearest measured size, at most, and for curves of other ranks or collectives.
    """

    octave: float
    most: float
    carried: float


SPREADS = {
    "nvlink": Spread(0.040, 0.15, 0.32),
    "pcie": Spread(0.065, 0.20, 0.38),
    "network": Spread(0.10, 0.35, 0.85),
}

# How much of a ratio carries over: all of it on the same communicator, less the more differs.
_CARRY_RANKS = 0.9  # per doubling of ranks
_CARRY_KIND = 0.7
_CARRY_NODES = 0.8  # per doubling of nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCurve:
    """One collective on one communicator of the user's machine, measured over sizes.

    num_bytes, seconds : float64, shape (k,), sizes rising.
    """

    kind: CollectiveKind
    dtype: Dtype
    path: CommPath
    num_bytes: NDArray[np.float64]
    seconds: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Correction:
    """Shift of the model towards own measurements at each size."""

    log_ratio: NDArray[np.float64]
    log_sigma: NDArray[np.float64]
    is_same_curve: bool


def correction(
    own: Sequence[OwnCurve],
    kind: CollectiveKind,
    path: CommPath,
    dtype: Dtype,
    num_bytes: NDArray[np.float64],
) -> Correction | None:
    """Correction of the closed form from the own curves nearest to the communicator; None without.

    Curves inside a node say nothing about several nodes, and the reverse.
    """
    scored = [(_carry(curve, kind, path), curve) for curve in own]
    usable = [(share, curve) for share, curve in scored if share > 0]
    if not usable:
        return None
    best = max(share for share, _ in usable)
    nearest = [curve for share, curve in usable if share >= best - 1e-9]
    same_dtype = [curve for curve in nearest if curve.dtype == dtype]
    is_same = best >= 1
    shift = _shift_same if is_same else _shift_carried
    pieces = [shift(curve, kind, path, dtype, num_bytes) for curve in same_dtype or nearest]
    ratio = best * np.mean([piece[0] for piece in pieces], axis=0)
    octaves = np.min([piece[1] for piece in pieces], axis=0)
    spread = SPREADS[case_of(path)]
    largest = max(float(curve.num_bytes[-1]) for curve in nearest)
    sigma = _sigma(num_bytes, octaves, spread, largest)
    if not is_same:
        sigma = np.hypot(sigma, spread.carried)
    return Correction(log_ratio=ratio, log_sigma=sigma, is_same_curve=is_same)


def _sigma(
    num_bytes: NDArray[np.float64], octaves: NDArray[np.float64], spread: Spread, largest: float
) -> NDArray[np.float64]:
    low, high = SWITCH_ZONE_BYTES
    sigma = np.clip(spread.octave * octaves, _SIGMA_FLOOR, spread.most)
    sigma = np.where((num_bytes > low) & (num_bytes < high), sigma * _SIGMA_SWITCH, sigma)
    widened: NDArray[np.float64] = np.where(num_bytes > largest, sigma * _SIGMA_BEYOND, sigma)
    return widened


def _carry(curve: OwnCurve, kind: CollectiveKind, path: CommPath) -> float:
    """Share of the curve's ratio that applies to another communicator, 0 to 1."""
    if (curve.path.num_nodes > 1) != (path.num_nodes > 1):
        return 0.0
    ranks = abs(math.log2(curve.path.num_ranks / path.num_ranks))
    nodes = abs(math.log2(curve.path.num_nodes / path.num_nodes))
    share = _CARRY_RANKS**ranks * _CARRY_NODES**nodes
    return float(share if curve.kind is kind else share * _CARRY_KIND)


def _log_ratio(curve: OwnCurve) -> NDArray[np.float64]:
    modelled = closed_form_seconds(curve.kind, curve.num_bytes, curve.path, curve.dtype)
    ratio: NDArray[np.float64] = np.log(curve.seconds / modelled)
    return ratio


Shift: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Log ratio at each size, and its distance to the nearest measured one in octaves."""


def _shift_same(
    curve: OwnCurve,
    kind: CollectiveKind,
    path: CommPath,
    dtype: Dtype,
    num_bytes: NDArray[np.float64],
) -> Shift:
    """On the same communicator sizes are compared."""
    at, known = np.log(num_bytes), np.log(curve.num_bytes)
    return np.interp(at, known, _log_ratio(curve)), _octaves(at, known)


def _shift_carried(
    curve: OwnCurve,
    kind: CollectiveKind,
    path: CommPath,
    dtype: Dtype,
    num_bytes: NDArray[np.float64],
) -> Shift:
    """Between communicators: mean of the ratio at equal size and at equal position.

    Ranks move the position between latency and bandwidth, but protocols switch by size: held-out
    rank counts inside a node are predicted best by the mean.
    """
    ratio = _log_ratio(curve)
    by_size, distance = _shift_same(curve, kind, path, dtype, num_bytes)
    at = abscissa(kind, num_bytes, path, dtype, clip=False)
    known = abscissa(curve.kind, curve.num_bytes, curve.path, curve.dtype, clip=False)
    nearest = np.minimum(distance, _octaves(at, known))
    return (by_size + np.interp(at, known, ratio)) / 2, nearest


def _octaves(at: NDArray[np.float64], known: NDArray[np.float64]) -> NDArray[np.float64]:
    distance: NDArray[np.float64] = np.abs(at[:, None] - known[None, :]).min(axis=1) / math.log(2)
    return distance
