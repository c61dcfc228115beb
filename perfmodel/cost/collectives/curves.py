"""Own measurements: how far a measured curve is from the model, carried to other sizes and ranks.

The ratio measured / modelled varies far less with size than the time itself, so it is what is
interpolated: through all own points within the measured sizes, constant outside them. Beyond the
largest size the modelled bandwidth, scaled, goes on; below the smallest the modelled latency does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.collectives.paths import CommPath
from perfmodel.cost.collectives.regimes import closed_form_seconds
from perfmodel.cost.collectives.residual import Residual, abscissa
from perfmodel.hardware.records import Dtype
from perfmodel.program.work import CollectiveKind
from perfmodel.units import KIB, MIB

SWITCH_ZONE_BYTES = (256 * KIB, 16 * MIB)
"""Where NCCL changes protocol and time may fall as size grows (notes/collectives.md section 3)."""

# ln spread of own-curve predictions, from held-out sizes, larger sizes, ranks and three points
# (experiments/collective_accuracy): at a measured size, per octave of distance, and for a curve
# carried over from other ranks or another collective.
_SIGMA_POINT = 0.05
_SIGMA_OCTAVE = 0.025
_SIGMA_CARRIED = 0.20
_SIGMA_SWITCH = 1.6  # times, inside the switch zone
_MAX_OCTAVES = 5.0

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
    residual: Residual,
    kind: CollectiveKind,
    path: CommPath,
    dtype: Dtype,
    num_bytes: NDArray[np.float64],
) -> Correction | None:
    """Correction for `num_bytes`, from the own curves nearest to the communicator; None without.

    Curves inside a node say nothing about several nodes, and the reverse.
    """
    scored = [(_carry(curve, kind, path), curve) for curve in own]
    usable = [(share, curve) for share, curve in scored if share > 0]
    if not usable:
        return None
    best = max(share for share, _ in usable)
    nearest = [curve for share, curve in usable if share >= best - 1e-9]
    same_dtype = [curve for curve in nearest if curve.dtype == dtype]
    pieces = [
        _shift(curve, residual, kind, path, dtype, num_bytes, is_same=best >= 1)
        for curve in same_dtype or nearest
    ]
    ratio = best * np.mean([piece[0] for piece in pieces], axis=0)
    octaves = np.min([piece[1] for piece in pieces], axis=0)
    sigma = _SIGMA_POINT + _SIGMA_OCTAVE * np.minimum(octaves, _MAX_OCTAVES)
    low, high = SWITCH_ZONE_BYTES
    inside = (num_bytes > low) & (num_bytes < high) & (octaves > 0)
    sigma = np.where(inside, sigma * _SIGMA_SWITCH, sigma)
    if best < 1:
        sigma = np.hypot(sigma, _SIGMA_CARRIED)
    return Correction(log_ratio=ratio, log_sigma=sigma, is_same_curve=best >= 1)


def _carry(curve: OwnCurve, kind: CollectiveKind, path: CommPath) -> float:
    """Share of the curve's ratio that applies to another communicator, 0 to 1."""
    if (curve.path.num_nodes > 1) != (path.num_nodes > 1):
        return 0.0
    ranks = abs(math.log2(curve.path.num_ranks / path.num_ranks))
    nodes = abs(math.log2(curve.path.num_nodes / path.num_nodes))
    share = _CARRY_RANKS**ranks * _CARRY_NODES**nodes
    return float(share if curve.kind is kind else share * _CARRY_KIND)


def _shift(
    curve: OwnCurve,
    residual: Residual,
    kind: CollectiveKind,
    path: CommPath,
    dtype: Dtype,
    num_bytes: NDArray[np.float64],
    *,
    is_same: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log ratio at each size and distance to the nearest measured one in octaves.

    On the same communicator sizes are compared; between communicators the position between
    latency and bandwidth is, because that is what ranks move.
    """
    modelled = closed_form_seconds(curve.kind, curve.num_bytes, curve.path, curve.dtype)
    ratio = np.log(curve.seconds / modelled) - residual.log_ratio(
        curve.kind, curve.num_bytes, curve.path, curve.dtype
    )
    if is_same:
        at, known = np.log(num_bytes), np.log(curve.num_bytes)
    else:
        at = abscissa(kind, num_bytes, path, dtype, clip=False)
        known = abscissa(curve.kind, curve.num_bytes, curve.path, curve.dtype, clip=False)
    distance = np.abs(at[:, None] - known[None, :]).min(axis=1) / math.log(2)
    return np.interp(at, known, ratio), distance
