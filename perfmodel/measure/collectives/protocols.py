"""Protocols of `evaluate`: which points of a curve are known, which are predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.collectives.curves import OwnCurve
from perfmodel.measure.collectives.frame import Curve
from perfmodel.units import KIB, MIB

THREE_POINTS = (8 * KIB, 1 * MIB, 256 * MIB)
"""Sizes a user would measure: latency, protocol switch, bandwidth."""

_LARGER_SHARE = 8  # sizes above max/8 are predicted
_MIN_SIZES = 5  # shorter curves have nothing to predict from


class Protocol(StrEnum):
    """What is known of the platform that is predicted."""

    SIZES = "sizes"  # every second size of the same curve
    LARGER = "larger"  # sizes up to max/8 of the same curve
    RANKS = "ranks"  # the other rank counts of the same platform
    THREE_POINTS = "three-points"  # three sizes of the same curve


class LeaveOut(StrEnum):
    """What the fit must not have seen."""

    SHAPE = "shape"
    GROUP = "group"
    GPU = "gpu"
    SOURCE = "source"


@dataclass(frozen=True, slots=True)
class Split:
    """Predict the sizes `targets` (indices) of `curve` from `own`."""

    curve: Curve
    targets: NDArray[np.int64]
    own: tuple[OwnCurve, ...] = ()


def splits(curves: Sequence[Curve], protocol: Protocol | None) -> Iterator[Split]:
    """Splits of a protocol; without one, whole curves predicted from nothing."""
    if protocol is None:
        for curve in curves:
            yield Split(curve, np.arange(len(curve.num_bytes)))
    elif protocol is Protocol.RANKS:
        yield from _by_ranks(curves)
    else:
        for curve in curves:
            if len(curve.num_bytes) >= _MIN_SIZES:
                yield from _by_size(curve, protocol)


def _by_size(curve: Curve, protocol: Protocol) -> Iterator[Split]:
    index = np.arange(len(curve.num_bytes))
    if protocol is Protocol.SIZES:
        for parity in (0, 1):
            known = index % 2 == parity
            yield Split(curve, index[~known], (own_part(curve, known),))
        return
    if protocol is Protocol.LARGER:
        known = curve.num_bytes <= curve.num_bytes[-1] / _LARGER_SHARE
    else:
        logs = np.log(curve.num_bytes)
        known = np.isin(index, [int(np.abs(logs - np.log(s)).argmin()) for s in THREE_POINTS])
    if known.any() and not known.all():
        yield Split(curve, index[~known], (own_part(curve, known),))


def _by_ranks(curves: Sequence[Curve]) -> Iterator[Split]:
    """The largest rank count of a platform and collective from its smaller ones."""
    groups: dict[tuple[object, ...], list[Curve]] = {}
    for curve in curves:
        groups.setdefault((*curve.platform, curve.kind, curve.dtype), []).append(curve)
    for group in groups.values():
        most = max(curve.path.num_ranks for curve in group)
        own = tuple(
            own_part(c, np.ones(len(c.num_bytes), bool)) for c in group if c.path.num_ranks < most
        )
        if own:
            for curve in group:
                if curve.path.num_ranks == most:
                    yield Split(curve, np.arange(len(curve.num_bytes)), own)


def own_part(curve: Curve, known: NDArray[np.bool_]) -> OwnCurve:
    """The known points of a curve as the user's own measurements."""
    return OwnCurve(
        kind=curve.kind, dtype=curve.dtype, path=curve.path,
        num_bytes=curve.num_bytes[known], seconds=curve.seconds[known],
    )  # fmt: skip


def group_of(curve: Curve, leave_out: LeaveOut) -> str:
    """What a curve is left out with."""
    if leave_out is LeaveOut.SOURCE:
        return curve.source
    if leave_out is LeaveOut.GPU:
        return curve.family
    if leave_out is LeaveOut.GROUP:
        return "/".join(curve.platform)
    return f"{curve.family}/{curve.kind}/{curve.nodes}x{curve.gpus_per_node}"
