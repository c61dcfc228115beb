"""Bus bandwidth: derivations are in BUSBW.md beside this file."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.errors import InputError
from perfmodel.program.work import CollectiveKind


def busbw_factor(kind: CollectiveKind, num_ranks: int) -> float:
    """Bytes that cross the busiest rank's link in one direction, per byte of the `size` column.

    Parameters
    ----------
    kind : CollectiveKind
    num_ranks : int
        Ranks of the communicator, >= 1.

    Returns
    -------
    float
        2(n-1)/n for all_reduce; (n-1)/n for all_gather, reduce_scatter and all_to_all; 1 for
        broadcast, reduce and send_recv. 0 for one rank where the factor has (n-1).

    Raises
    ------
    InputError
        If `num_ranks` < 1.

    Examples
    --------
    >>> busbw_factor(CollectiveKind.ALL_REDUCE, 8)
    1.75
    """
    if num_ranks < 1:
        raise InputError(f"num_ranks {num_ranks} is not positive")
    if kind is CollectiveKind.ALL_REDUCE:
        return 2 * (num_ranks - 1) / num_ranks
    if kind in (
        CollectiveKind.ALL_GATHER,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_TO_ALL,
    ):
        return (num_ranks - 1) / num_ranks
    return 1.0


def algbw_bytes_per_s(num_bytes: ArrayLike, seconds: ArrayLike) -> NDArray[np.float64]:
    """Algorithm bandwidth: bytes of the size column over the time of one call."""
    rate: NDArray[np.float64] = np.asarray(num_bytes, dtype=float) / np.asarray(
        seconds, dtype=float
    )
    return rate


def busbw_bytes_per_s(
    kind: CollectiveKind, num_ranks: int, num_bytes: ArrayLike, seconds: ArrayLike
) -> NDArray[np.float64]:
    """Bus bandwidth: what the busiest link carries; comparable with its rate at any rank count."""
    return busbw_factor(kind, num_ranks) * algbw_bytes_per_s(num_bytes, seconds)


def seconds_from_busbw(
    kind: CollectiveKind, num_ranks: int, num_bytes: ArrayLike, busbw: ArrayLike
) -> NDArray[np.float64]:
    """Time of one call at bus bandwidth `busbw` (bytes/s)."""
    wire = busbw_factor(kind, num_ranks) * np.asarray(num_bytes, dtype=float)
    seconds: NDArray[np.float64] = wire / np.asarray(busbw, dtype=float)
    return seconds
