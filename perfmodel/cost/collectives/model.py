"""The cost model of collectives: groups works by communicator, prices each group at once.

Order of trust: the user's own measurements of this communicator; own measurements of others on
the same machine; the fitted residual over the closed form; the closed form alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.collectives.bundle import default_residual
from perfmodel.cost.collectives.curves import SWITCH_ZONE_BYTES, OwnCurve, correction
from perfmodel.cost.collectives.paths import CommPath, LinkClass, comm_path
from perfmodel.cost.collectives.regimes import closed_form_seconds
from perfmodel.cost.collectives.residual import FITTED_NODES, Residual
from perfmodel.cost.protocol import Estimate
from perfmodel.hardware.records import Cluster, Dtype, GroupShape
from perfmodel.program.work import Amount, Collective, CollectiveKind, Work

_Key = tuple[CollectiveKind, GroupShape, Dtype]

# Times are tabulated on sizes from 1 B to 8 TiB, four an octave, and interpolated in log-log:
# 0.2 % from the closed form, and monotone by construction.
_LOG_SIZES: NDArray[np.float64] = np.arange(0, 43 * 4 + 1) / 4 * np.log(2)


class CollectiveModel:
    """Prices `Collective` works.

    Parameters
    ----------
    residual : Residual, optional
        Correction of the closed form; the shipped bundle by default. `Residual()` for none.
    own : sequence of OwnCurve
        Measurements on the very machine (`perfmodel.measure.collectives.own_curves`).
    """

    def __init__(self, residual: Residual | None = None, own: Sequence[OwnCurve] = ()) -> None:
        self._residual = residual
        self._own = tuple(own)
        self._tables: dict[object, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    @property
    def residual(self) -> Residual:
        """The correction in use."""
        if self._residual is None:
            self._residual = default_residual() or Residual()
        return self._residual

    def handles(self, work: Work) -> bool:
        """Whether `work` is a collective."""
        return isinstance(work, Collective)

    def estimate(self, works: Sequence[Work], cluster: Cluster) -> Estimate:
        """Seconds of each collective on `cluster` in isolation.

        Raises
        ------
        InputError
            If a group does not fit the cluster.
        """
        collectives = [work for work in works if isinstance(work, Collective)]
        amounts = [_priced_bytes(work) for work in collectives]
        scenarios = max((np.size(a) for a in amounts), default=1)
        seconds = np.zeros((len(collectives), scenarios))
        sigma = np.zeros(len(collectives))
        paths: dict[GroupShape, CommPath] = {}
        for (kind, group, dtype), rows in _by_group(collectives).items():
            path = paths.setdefault(group, comm_path(cluster, group))
            times, spread = self.predict(kind, _stack(amounts, rows, scenarios), path, dtype)
            seconds[rows] = times
            sigma[rows] = spread.mean(axis=1)
        return Estimate(seconds=seconds, log_sigma=sigma, warnings=self._warnings(paths))

    def predict(
        self, kind: CollectiveKind, num_bytes: NDArray[np.float64], path: CommPath, dtype: Dtype
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Seconds and standard deviation of ln(true / predicted), of the shape of `num_bytes`."""
        if path.num_ranks == 1:
            return np.zeros_like(num_bytes), np.zeros_like(num_bytes)
        log_seconds, sigma = self._table(kind, path, dtype)
        at = np.log(np.maximum(num_bytes, 1.0))
        beyond = np.maximum(at - _LOG_SIZES[-1], 0.0)  # bandwidth goes on past the last size
        times: NDArray[np.float64] = np.exp(np.interp(at, _LOG_SIZES, log_seconds) + beyond)
        spread: NDArray[np.float64] = np.interp(at, _LOG_SIZES, sigma)
        return times, spread

    def _table(
        self, kind: CollectiveKind, path: CommPath, dtype: Dtype
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        key = (kind, path, dtype)
        if key not in self._tables:
            self._tables[key] = self._tabulate(kind, path, dtype)
        return self._tables[key]

    def _tabulate(
        self, kind: CollectiveKind, path: CommPath, dtype: Dtype
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        size = np.exp(_LOG_SIZES)
        closed = np.log(closed_form_seconds(kind, size, path, dtype))
        own = correction(self._own, kind, path, dtype, size)
        if own is not None:
            return _rising(closed + own.log_ratio, size), own.log_sigma
        fitted = closed + self.residual.log_ratio(kind, size, path, dtype)
        return np.maximum.accumulate(fitted), self.residual.log_sigma(kind, size, path, dtype)

    def _warnings(self, paths: dict[GroupShape, CommPath]) -> tuple[str, ...]:
        busy = [path for path in paths.values() if path.num_ranks > 1]
        if not busy:
            return ()
        out = []
        if not self.residual.coefficients:
            out.append("collectives priced from specifications alone: no fitted correction found")
        nodes = max(path.num_nodes for path in busy)
        if nodes > FITTED_NODES:
            out.append(
                f"collectives over {nodes} nodes: measured on up to {FITTED_NODES},"
                " beyond by closed form"
            )
        links = {path.link for path in busy if path.ranks_per_node > 1}
        if links & {LinkClass.PCIE, LinkClass.PCIE_HOST} and not self._own:
            out.append(
                "collectives over PCIe differ up to tenfold between machines: a log of your own"
                " nccl-tests (--comm) narrows the interval"
            )
        return tuple(out)


def _rising(log_seconds: NDArray[np.float64], size: NDArray[np.float64]) -> NDArray[np.float64]:
    """Time that never falls with size, except where measured inside the switch zone."""
    low, high = SWITCH_ZONE_BYTES
    free = (size > low) & (size < high)
    below = size <= low
    out = log_seconds.copy()
    out[below] = np.maximum.accumulate(out[below])
    above = ~below & ~free
    out[above] = np.maximum.accumulate(out[above])
    return out


def _priced_bytes(work: Collective) -> Amount:
    return work.num_bytes if work.max_rank_bytes is None else work.max_rank_bytes


def _by_group(works: Sequence[Collective]) -> dict[_Key, list[int]]:
    rows: dict[_Key, list[int]] = defaultdict(list)
    for row, work in enumerate(works):
        rows[work.kind, work.group, work.dtype].append(row)
    return rows


def _stack(amounts: Sequence[Amount], rows: Sequence[int], scenarios: int) -> NDArray[np.float64]:
    if scenarios == 1:
        return np.array([float(np.ravel(amounts[r])[0]) for r in rows])[:, None]
    return np.stack([np.broadcast_to(np.ravel(amounts[r]), (scenarios,)) for r in rows])
