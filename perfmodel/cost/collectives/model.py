"""The cost model of collectives: groups works by communicator, prices each group at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.collectives.paths import CommPath, LinkClass, comm_path
from perfmodel.cost.collectives.regimes import closed_form_seconds
from perfmodel.cost.protocol import Estimate
from perfmodel.hardware.records import Cluster, Dtype, GroupShape
from perfmodel.program.work import Amount, Collective, CollectiveKind, Work

_Key = tuple[CollectiveKind, GroupShape, Dtype]

# Standard deviation of ln(true / closed form) before any residual is fitted: the level of
# unseen platforms in notes/collectives.md section 5 D, smaller on NVLink.
_SIGMA_NVLINK, _SIGMA_NETWORK, _SIGMA_PCIE = 0.30, 0.45, 0.80


class CollectiveModel:
    """Prices `Collective` works in closed form from link specifications."""

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
        for key, rows in _by_group(collectives).items():
            kind, group, dtype = key
            path = comm_path(cluster, group)
            seconds[rows] = closed_form_seconds(kind, _stack(amounts, rows, scenarios), path, dtype)
            sigma[rows] = _prior_sigma(path)
        return Estimate(seconds=seconds, log_sigma=sigma)


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


def _prior_sigma(path: CommPath) -> float:
    if path.num_ranks == 1:
        return 0.0
    if path.num_nodes > 1:
        return _SIGMA_NETWORK
    pcie = path.link in (LinkClass.PCIE, LinkClass.PCIE_HOST)
    return _SIGMA_PCIE if pcie else _SIGMA_NVLINK
