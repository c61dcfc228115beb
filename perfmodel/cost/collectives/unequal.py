"""Unequal all_to_all: from the bytes every rank sends every other to the time of the slowest link.

Each rank sends its row and receives its column at once, so a link is busy for the larger of what it
carries in either direction. Inside a node that is a rank's traffic with its neighbours, between
nodes a rank's traffic through its NIC. The equal all_to_all whose busiest link is as busy stands
for the unequal one: same latency, same curve.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.cost.collectives.paths import CommPath
from perfmodel.errors import InputError


def equivalent_bytes(matrix: ArrayLike, path: CommPath) -> float:
    """Bytes per rank of the equal all_to_all that keeps its busiest link as busy as `matrix` does.

    Parameters
    ----------
    matrix : array_like of float, shape (n, n)
        `matrix[i, j]`: bytes rank i sends to rank j, its own part on the diagonal. Ranks are
        numbered node by node: rank r lies on node r // ranks_per_node.
    path : CommPath
        Links of the n ranks.

    Returns
    -------
    float
        For `Collective.max_rank_bytes`; equals the row sum where all entries are equal. Never falls
        when an entry grows.

    Raises
    ------
    InputError
        If the matrix is not n x n, or an entry is negative or not finite.

    Notes
    -----
    No public measurements of unequal all_to_all exist in this form; the argument is that NCCL
    runs it as grouped sends and receives, which end with the busiest rank.

    Examples
    --------
    Two ranks that send each other 3 and 1 MB (own parts aside): the busier direction decides.

    >>> from perfmodel.hardware.clusters import cluster_from_names
    >>> from perfmodel.hardware.records import GroupShape
    >>> from perfmodel.cost.collectives.paths import comm_path
    >>> path = comm_path(cluster_from_names("dgx_a100_80"),
    ...                  GroupShape(ranks_per_node=2, num_nodes=1))
    >>> equivalent_bytes([[0.0, 3e6], [1e6, 0.0]], path)
    6000000.0
    """
    sent = _checked(matrix, path.num_ranks)
    if path.num_ranks == 1:
        return float(sent[0, 0])
    node = np.arange(path.num_ranks) // path.ranks_per_node
    same = node[:, None] == node[None, :]
    off_diagonal = ~np.eye(path.num_ranks, dtype=bool)
    near = _busiest(np.where(same & off_diagonal, sent, 0.0))
    far = _busiest(np.where(same, 0.0, sent))
    unit_near, unit_far = link_shares(path)
    busy_s = max(near / path.p2p_bytes_per_s, far / path.net_rank_bytes_per_s)
    unit_s = max(unit_near / path.p2p_bytes_per_s, unit_far / path.net_rank_bytes_per_s)
    return float(busy_s / unit_s)


def link_shares(path: CommPath) -> tuple[float, float]:
    """Share of an equal all_to_all's bytes that stays in the node, and that leaves it."""
    n, local = path.num_ranks, path.ranks_per_node
    return (local - 1) / n, (n - local) / n


def _busiest(traffic: NDArray[np.float64]) -> float:
    """The most any rank sends or receives."""
    return float(max(traffic.sum(axis=1).max(), traffic.sum(axis=0).max()))


def _checked(matrix: ArrayLike, num_ranks: int) -> NDArray[np.float64]:
    sent = np.asarray(matrix, dtype=float)
    if sent.shape != (num_ranks, num_ranks):
        raise InputError(
            f"byte matrix of shape {sent.shape} does not fit {num_ranks} ranks;"
            f" give {num_ranks} rows of {num_ranks} entries"
        )
    if not np.isfinite(sent).all() or (sent < 0).any():
        raise InputError("byte matrix holds an entry that is negative or not a number")
    return sent
