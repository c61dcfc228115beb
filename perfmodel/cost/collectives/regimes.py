"""NCCL in closed form: the least of latency + bytes / rate over algorithm and protocol.

Constants are NCCL's tuning tables as quoted in notes/collectives.md section 3. The minimum of
straight lines is continuous, rising and concave in bytes, whatever the path.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.cost.collectives.busbw import busbw_factor
from perfmodel.cost.collectives.paths import CommPath
from perfmodel.hardware.records import Dtype
from perfmodel.program.work import CollectiveKind
from perfmodel.units import US

_BASE_RING = (6.6 * US, 14.0 * US, 8.4 * US)  # LL, LL128, Simple
_BASE_TREE = (6.8 * US, 14.0 * US, 8.4 * US)
_HOP_TREE_LL128 = 1.25 / 1.9  # tree steps inside a node, relative to ring steps
_HOP_TREE_SIMPLE = 4.0 / 3.4
_NVLS_LATENCY = 25.0 * US
_NVLS_TREE_STEP = 20.9 / 14  # of the network's Simple step
_LL_SHARE, _LL128_SHARE = 0.5, 0.92  # of the ring rate
_TREE_SHARE = 0.92 * 0.85  # tree against ring, times the tree pattern
# Kernel of grouped sends and receives: base latency, and what each further peer adds.
_P2P_BASE = 7.0 * US
_P2P_PEER = 0.3 * US
_P2P_PEER_NETWORK = 0.7 * US
_P2P_SIMPLE = 9.0 * US  # large messages: rendezvous of buffers
_P2P_LL_RATE = 0.25  # small messages through the latency protocol, of the p2p rate
# One pair of peers drives a port by few queue pairs: measured 25-40 of 50 GB/s (NDR, two to ten
# nodes), where all_to_all and rings reach 48.
_P2P_PAIR_NETWORK = 0.7

# Formats that the switch can add up; int8 and 64-bit integers are reduced in rings.
_SWITCH_DTYPES = frozenset({Dtype.FP32, Dtype.FP16, Dtype.BF16, Dtype.FP64})


@dataclass(frozen=True, slots=True)
class Line:
    """One algorithm and protocol: seconds = latency_s + bytes x s_per_byte."""

    name: str
    latency_s: float
    s_per_byte: float


def closed_form_seconds(
    kind: CollectiveKind, num_bytes: ArrayLike, path: CommPath, dtype: Dtype = Dtype.BF16
) -> NDArray[np.float64]:
    """Time of one collective in isolation, from specifications alone.

    Parameters
    ----------
    kind : CollectiveKind
    num_bytes : array_like of float
        Size column of nccl-tests (see BUSBW.md); any shape, >= 0.
    path : CommPath
        Links of the communicator.
    dtype : Dtype
        Formats a switch cannot add keep to rings and trees.

    Returns
    -------
    ndarray of float64
        Seconds, of the shape of `num_bytes`; 0 for a communicator of one rank.

    Notes
    -----
    Source: NCCL's tuning model (notes/collectives.md section 3), rates of `paths`.
    """
    size = np.maximum(np.asarray(num_bytes, dtype=float), 0.0)
    if path.num_ranks == 1:
        return np.zeros_like(size)
    lines = lines_of(kind, path, dtype)
    times = [line.latency_s + size * line.s_per_byte for line in lines]
    fastest: NDArray[np.float64] = np.minimum.reduce(times)
    return fastest


def lines_of(kind: CollectiveKind, path: CommPath, dtype: Dtype) -> list[Line]:
    """All algorithms and protocols that can serve `kind` on `path`."""
    if kind is CollectiveKind.BARRIER:
        return [Line(x.name, x.latency_s, 0.0) for x in _all_reduce(path, dtype)]
    if kind is CollectiveKind.ALL_REDUCE:
        return _all_reduce(path, dtype)
    if kind in (CollectiveKind.ALL_TO_ALL, CollectiveKind.SEND_RECV):
        return _point_to_point(kind, path)
    return _ring(kind, path)


def _bus_rate(path: CommPath) -> float:
    return min(path.ring_bytes_per_s, path.net_ring_bytes_per_s)


def _protocols(path: CommPath, rate: float) -> list[tuple[int, str, float]]:
    """Index, name and bus rate of each protocol."""
    protocols = [(0, "ll", min(rate * _LL_SHARE, path.ll_cap_bytes_per_s)), (2, "simple", rate)]
    if path.has_ll128:
        protocols.append((1, "ll128", rate * _LL128_SHARE))
    return protocols


def _ring(kind: CollectiveKind, path: CommPath) -> list[Line]:
    n, nodes = path.num_ranks, path.num_nodes
    rounds = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    net_steps = rounds * (nodes - 1)
    steps = rounds * (n - 1) - net_steps
    wire = busbw_factor(kind, n)
    lines = []
    for index, name, rate in _protocols(path, _bus_rate(path)):
        latency = (
            _BASE_RING[index]
            + steps * path.hop_s[index]
            + (net_steps * path.net_ring_hop_s[index] if nodes > 1 else 0.0)
        )
        lines.append(Line(f"ring/{name}", latency, wire / rate))
    return lines


def _all_reduce(path: CommPath, dtype: Dtype) -> list[Line]:
    lines = _ring(CollectiveKind.ALL_REDUCE, path) + _tree(path)
    if path.nvls_bytes_per_s > 0 and dtype in _SWITCH_DTYPES:
        lines.append(_nvls(path))
    return lines


def _tree(path: CommPath) -> list[Line]:
    """Chains inside a node, a double binary tree across nodes.

    NCCL rates a tree at half the bus rate whatever the number of nodes and so keeps to rings for
    large messages: on two A100 nodes bus bandwidth stays at 0.92 of the NICs.
    """
    nodes, local = path.num_nodes, path.ranks_per_node
    ratio = (1.0, _HOP_TREE_LL128, _HOP_TREE_SIMPLE)
    lines = []
    for index, name, _ in _protocols(path, 1.0):
        hops = 2 * (local - 1) * path.hop_s[index] * ratio[index]
        across = 2 * math.log2(nodes) * path.net_tree_hop_s[index] if nodes > 1 else 0.0
        share = _TREE_SHARE * (_LL_SHARE if index == 0 else 1.0)
        inside = 2.0 / path.ring_bytes_per_s if local > 1 else 0.0
        net = 2.0 / path.net_ring_bytes_per_s if nodes > 1 else 0.0
        lines.append(
            Line(f"tree/{name}", _BASE_TREE[index] + hops + across, max(inside, net) / share)
        )
    return lines


def _nvls(path: CommPath) -> Line:
    nodes = path.num_nodes
    inside = 1.0 / path.nvls_bytes_per_s
    if nodes == 1:
        return Line("nvls", _BASE_RING[2] + _NVLS_LATENCY, inside)
    latency = (
        _BASE_RING[2]
        + _NVLS_LATENCY
        + 2 * math.log2(nodes) * _NVLS_TREE_STEP * path.net_tree_hop_s[2]
    )
    net = 2.0 * (nodes - 1) / nodes / path.net_ring_bytes_per_s / _TREE_SHARE
    return Line("nvls_tree", latency, max(inside, net))


def _point_to_point(kind: CollectiveKind, path: CommPath) -> list[Line]:
    n, local, nodes = path.num_ranks, path.ranks_per_node, path.num_nodes
    if kind is CollectiveKind.SEND_RECV:
        inside, across, near, far = 1.0, 1.0, 1, int(nodes > 1)
        net_rate = path.net_ring_bytes_per_s / local if local > 1 else path.net_ring_bytes_per_s
        net_rate = max(net_rate, path.net_rank_bytes_per_s) * _P2P_PAIR_NETWORK
    else:
        near, far = local - 1, n - local
        inside, across = near / n, far / n
        net_rate = path.net_rank_bytes_per_s
    wire = max(
        inside / path.p2p_bytes_per_s if local > 1 else 0.0,
        across / net_rate if nodes > 1 else 0.0,
    )
    peers = _P2P_PEER * max(near - 1, 0) + _P2P_PEER_NETWORK * max(far - 1, 0)
    net = path.net_ring_hop_s
    small = _P2P_BASE + peers + (net[0] if nodes > 1 else path.hop_s[0])
    large = small + _P2P_SIMPLE + (net[2] if nodes > 1 else path.hop_s[2])
    return [Line("p2p/ll", small, wire / _P2P_LL_RATE), Line("p2p/simple", large, wire)]
