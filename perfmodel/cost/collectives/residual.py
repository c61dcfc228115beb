"""What the closed form misses: ln(measured / closed form) as a sum of smooth, pooled terms.

The abscissa is dimensionless: z = ln(bytes x s_per_byte / latency) of the path, negative where
latency rules, positive where bandwidth does. Each term is piecewise linear in z between fixed
knots and constant outside them, so bandwidth never extrapolates; ranks enter as clipped logarithms.
Terms are shrunken towards 0 (ridge), so an unseen fabric or network gets what all have in common.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.cost.collectives.paths import CommPath, LinkClass
from perfmodel.cost.collectives.regimes import lines_of
from perfmodel.hardware.records import Dtype
from perfmodel.program.work import CollectiveKind

KNOTS = (-7.0, -3.0, -1.5, -0.5, 0.5, 1.5, 3.0, 5.0)
"""Positions in z; denser where protocols switch."""

_LOCAL_RANGE = (1.0, 3.0)  # log2 of ranks in a node: fitted on 2 to 8
_NODES_RANGE = (1.0, 4.0)  # log2 of nodes: fitted on 2 to 16
FITTED_NODES = 16
"""Most nodes of a measured communicator (data/collectives, trusted sources)."""

Term = tuple[str, float]


def abscissa(
    kind: CollectiveKind,
    num_bytes: ArrayLike,
    path: CommPath,
    dtype: Dtype,
    *,
    clip: bool = True,
) -> NDArray[np.float64]:
    """Position z of each size, clipped to the knots unless told otherwise."""
    lines = lines_of(kind, path, dtype)
    latency = min(line.latency_s for line in lines)
    slope = min(line.s_per_byte for line in lines)
    if slope <= 0:
        return np.full(np.shape(num_bytes), KNOTS[0])
    size = np.maximum(np.asarray(num_bytes, dtype=float), 1.0)
    z: NDArray[np.float64] = np.log(size * slope / latency)
    return np.clip(z, KNOTS[0], KNOTS[-1]) if clip else z


def hats(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Piecewise-linear basis, shape (len(z), len(KNOTS)); rows sum to 1."""
    knots = np.array(KNOTS)
    return np.stack([np.interp(z, knots, row) for row in np.eye(len(knots))], axis=-1)


def terms(kind: CollectiveKind, path: CommPath, dtype: Dtype) -> list[Term]:
    """Terms that act on a communicator, each with its weight.

    Networks, NVLink and PCIe share nothing: what slows one says little about the others.
    """
    case = case_of(path)
    family = "p2p" if kind in _POINT_TO_POINT else "ring"
    out: list[Term] = [(case, 1.0), (f"{case}.{family}", 1.0), (f"{case}.{kind}", 1.0)]
    if case == "network":
        out += [
            (f"network.{path.network}", 1.0),
            (f"network.{path.network}.{family}", 1.0),
            (f"network.{family}.nodes", _log2(path.num_nodes, _NODES_RANGE) - 2.0),
            ("network.local", _log2(path.ranks_per_node, (0.0, 3.0)) - 1.5),
        ]
    else:
        platform = f"{case}.gen{path.generation}" if path.generation else f"{case}.{path.link}"
        local = _log2(path.ranks_per_node, _LOCAL_RANGE) - 2.0
        out += [
            (platform, 1.0),
            (f"{platform}.{kind}", 1.0),
            (f"{case}.local", local),
            (f"{case}.{family}.local", local),
            (f"{platform}.local", local),
            (f"{platform}.{family}.local", local),
        ]
    if dtype is Dtype.INT8 and family == "ring":
        out.append((f"{case}.int8", 1.0))
    return out


_POINT_TO_POINT = (CollectiveKind.ALL_TO_ALL, CollectiveKind.SEND_RECV)


def _log2(count: int, bounds: tuple[float, float]) -> float:
    return min(max(math.log2(max(count, 1)), bounds[0]), bounds[1])


def case_of(path: CommPath) -> str:
    """Cases whose errors are reported and whose intervals are calibrated apart."""
    if path.num_nodes > 1:
        return "network"
    if path.link in (LinkClass.PCIE, LinkClass.PCIE_HOST, LinkClass.NONE):
        return "pcie"
    return "nvlink"


@dataclass(frozen=True, slots=True)
class Residual:
    """Fitted terms, each a value per knot, and the spread of held-out errors.

    `sigma[case]` holds the standard deviation of ln(true / predicted) per knot.
    """

    coefficients: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    sigma: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def log_ratio(
        self, kind: CollectiveKind, num_bytes: ArrayLike, path: CommPath, dtype: Dtype
    ) -> NDArray[np.float64]:
        """ln(expected / closed form) at each size."""
        z = abscissa(kind, num_bytes, path, dtype)
        total = np.zeros(len(KNOTS))
        for name, weight in terms(kind, path, dtype):
            if name in self.coefficients:
                total = total + weight * self.coefficients[name]
        ratio: NDArray[np.float64] = np.interp(z, KNOTS, total)
        return ratio

    def log_sigma(
        self, kind: CollectiveKind, num_bytes: ArrayLike, path: CommPath, dtype: Dtype
    ) -> NDArray[np.float64]:
        """Standard deviation of ln(true / predicted) at each size."""
        spread = self.sigma.get(case_of(path), np.array(PRIOR_SIGMA[case_of(path)]))
        z = abscissa(kind, num_bytes, path, dtype)
        sigma: NDArray[np.float64] = np.interp(z, KNOTS, np.broadcast_to(spread, len(KNOTS)))
        return sigma


PRIOR_SIGMA = {"nvlink": 0.30, "network": 0.45, "pcie": 0.65}
"""Where too few sources were measured: what unseen platforms of the kind usually show."""
