"""What a communicator sees of the hardware: rates and hop latencies of its links.

A `CommPath` reduces cluster and group shape to the few numbers that the closed form needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from perfmodel.errors import InputError
from perfmodel.hardware.records import Cluster, FabricKind, GroupShape, Network, NetworkKind, Node
from perfmodel.units import US

# Share of the signalled NVLink rate that a ring reaches: NCCL plans 20, 20, 20, 20.6 and 40.1 GB/s
# per link of 20, 25, 25, 25 and 50 signalled (notes/collectives.md section 3), of which measured
# large rings reach 0.95 (A100 235 of 240, V100 123 of 120, H100 365 of 371, B200 641 of 722).
_NVLINK_RING_FRACTION = {1: 0.80, 2: 0.80, 3: 0.785, 4: 0.81, 5: 0.75}
# Send/receive on NVLink, of the signalled rate (measured 225 of 300, 350 of 450, 610 of 900).
_NVLINK_P2P_FRACTION = {1: 0.75, 2: 0.75, 3: 0.75, 4: 0.79, 5: 0.70}
# In-switch reduction: algorithm bandwidth of a large all_reduce over the signalled rate
# (measured 275 of 450 on H100, 483 of 900 on B200).
_NVLS_FRACTION = {4: 0.61, 5: 0.535}
# Measured: two and four ranks of H100 and B200 nodes show ring rates, eight the switch.
_NVLS_MIN_RANKS = 5
# NCCL's caps of the LL protocol on one node, bytes/s of bus (notes/collectives.md section 3).
_LL_CAP = {1: 39e9, 2: 39e9, 3: 87.7e9, 4: 141e9, 5: 282e9}
_LL_CAP_PCIE = 39e9
# xGMI: RCCL all_reduce on 8 MI300X reaches 310-330 GB/s of 448 signalled (data sheet).
_XGMI_FRACTION = 0.70
# PCIe with peer-to-peer: NCCL plans 12 of 15.75 GB/s on gen 3 x16; measured 20 of 31.5 on gen 4.
_PCIE_FRACTION = 0.65
# Peer traffic that leaves a switch or root port shares it: four GPUs measure 5.5 to 26 GB/s on
# gen 4, where two reach 20; the geometric mean of three machines.
_PCIE_CROSS_FRACTION = 0.45
# More than half of a node's GPUs span both sockets: eight gen-4 GPUs measure 1.6-2 GB/s on one
# machine; NCCL plans 6-40 GB/s for socket links. Every ring crosses the link twice.
_PCIE_SOCKET_FRACTION = 0.15
_PCIE_SOCKET_GPUS = 4  # cards that one socket usually carries
# Staging in host memory: every byte is written and read once; rates fall with the ranks that
# share memory and socket link.
_HOST_FRACTION = 0.35
# A cube mesh lacks links between some pairs; their traffic is relayed. Ratio of all_to_all to ring
# rate 45/121 (notes/recommender_model.md section 4).
_MESH_RELAY_FRACTION = 45 / 121
_HOPS_NVLINK = (0.6 * US, 1.9 * US, 3.4 * US)  # ring, LL / LL128 / Simple: NCCL tuning table
_HOPS_PCIE = (1.0 * US, 2.5 * US, 5.7 * US)
_NET_RING_SHARE = (2.7 / 14, 4 / 14, 1.0)  # of the Simple step, NCCL tuning table
_NET_TREE_SHARE = (5 / 14, 8.5 / 14, 1.0)


class LinkClass(StrEnum):
    """Families of links that behave alike; what residuals are pooled by."""

    NVSWITCH = "nvswitch"
    NVLINK_MESH = "nvlink_mesh"
    XGMI = "xgmi"
    PCIE = "pcie"
    PCIE_HOST = "pcie_host"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommPath:
    """A communicator on its links. Rates are bytes/s, one direction, achieved at large sizes.

    `num_nodes` counts NVLink domains: the trays of an NVL72 rack are one.
    """

    num_ranks: int
    num_nodes: int
    ranks_per_node: int
    link: LinkClass
    generation: int  # NVLink generation, 0 without
    architecture: str
    ring_bytes_per_s: float  # bus rate of a ring inside a node; inf for one rank a node
    p2p_bytes_per_s: float  # what one rank sends to its peers in a node, all_to_all
    nvls_bytes_per_s: float  # algorithm rate of in-switch all_reduce; 0 without
    ll_cap_bytes_per_s: float
    has_ll128: bool
    hop_s: tuple[float, float, float]  # LL, LL128, Simple
    network: NetworkKind
    net_ring_bytes_per_s: float  # the group's share of a node's NICs; inf on one node
    net_rank_bytes_per_s: float  # NIC share of one rank, all_to_all
    net_ring_hop_s: tuple[float, float, float]
    net_tree_hop_s: tuple[float, float, float]
    net_latency_s: float


def comm_path(cluster: Cluster, group: GroupShape) -> CommPath:
    """Links that `group` uses on `cluster`.

    Raises
    ------
    InputError
        If the group is empty or larger than the cluster, or spans nodes without a network.
    """
    _check(cluster, group)
    node = cluster.node
    per_domain = _nodes_per_domain(node)
    local = group.ranks_per_node * min(group.num_nodes, per_domain)
    num_nodes = math.ceil(group.num_nodes / per_domain)
    link = _link_class(node, group, local)
    ring, p2p = _local_rates(node, group, local, link)
    generation = cluster.gpu.nvlink_generation if link in _NVLINKS else 0
    net_ring, net_rank = _network_rates(cluster, group, local) if num_nodes > 1 else (math.inf,) * 2
    step = cluster.network.step_latency_s
    return CommPath(
        num_ranks=group.num_ranks,
        num_nodes=num_nodes,
        ranks_per_node=local,
        link=link,
        generation=generation,
        architecture=cluster.gpu.architecture,
        ring_bytes_per_s=ring,
        p2p_bytes_per_s=p2p,
        nvls_bytes_per_s=_nvls_rate(node, local, link, generation),
        ll_cap_bytes_per_s=_LL_CAP.get(generation, _LL_CAP_PCIE),
        has_ll128=link is LinkClass.NVSWITCH or link is LinkClass.NVLINK_MESH,
        hop_s=_HOPS_NVLINK if link in _NVLINKS or link is LinkClass.XGMI else _HOPS_PCIE,
        network=cluster.network.kind if num_nodes > 1 else NetworkKind.NONE,
        net_ring_bytes_per_s=net_ring,
        net_rank_bytes_per_s=net_rank,
        net_ring_hop_s=_scaled(_NET_RING_SHARE, step),
        net_tree_hop_s=_scaled(_NET_TREE_SHARE, step),
        net_latency_s=cluster.network.latency_s,
    )


_NVLINKS = (LinkClass.NVSWITCH, LinkClass.NVLINK_MESH)


def _check(cluster: Cluster, group: GroupShape) -> None:
    if group.ranks_per_node < 1 or group.num_nodes < 1 or group.concurrent < 1:
        raise InputError(
            f"group of {group.ranks_per_node} ranks on {group.num_nodes} nodes,"
            f" {group.concurrent} at once: all three must be at least 1"
        )
    if group.ranks_per_node > cluster.node.num_gpus or group.num_nodes > cluster.num_nodes:
        raise InputError(
            f"group of {group.ranks_per_node} ranks on each of {group.num_nodes} nodes does not"
            f" fit {cluster.num_nodes} nodes of {cluster.node.num_gpus} GPUs"
        )
    spans = group.num_nodes > _nodes_per_domain(cluster.node)
    if spans and (cluster.network.kind is NetworkKind.NONE or cluster.node_bytes_per_s <= 0):
        raise InputError(
            f"group on {group.num_nodes} nodes, but {cluster.node.title} has no network; name one"
        )


def _scaled(shares: tuple[float, float, float], step: float) -> tuple[float, float, float]:
    return (shares[0] * step, shares[1] * step, shares[2] * step)


def _nodes_per_domain(node: Node) -> int:
    return max(1, node.nvlink_domain_gpus // max(node.num_gpus, 1))


def _link_class(node: Node, group: GroupShape, local: int) -> LinkClass:
    if local == 1 or node.fabric is FabricKind.NONE:
        return _NATIVE_LINK.get(node.fabric, LinkClass.NONE)
    if node.fabric is FabricKind.NVLINK_MESH and not _mesh_connected(node, group):
        return LinkClass.PCIE
    return _NATIVE_LINK[node.fabric]


_NATIVE_LINK = {
    FabricKind.NVSWITCH: LinkClass.NVSWITCH,
    FabricKind.NVLINK_MESH: LinkClass.NVLINK_MESH,
    FabricKind.INFINITY_FABRIC: LinkClass.XGMI,
    FabricKind.PCIE: LinkClass.PCIE,
    FabricKind.PCIE_HOST: LinkClass.PCIE_HOST,
}


def _members(node: Node, group: GroupShape) -> list[int]:
    """GPU indices of the first group of its kind in a node."""
    return [(i * group.stride) % node.num_gpus for i in range(group.ranks_per_node)]


def _mesh_connected(node: Node, group: GroupShape) -> bool:
    """Whether every member has an NVLink to some other member; True where the mesh is unknown."""
    if not node.mesh_links:
        return True
    members = _members(node, group)
    return all(sum(node.mesh_links[i][j] for j in members) > 0 for i in members)


def _local_rates(node: Node, group: GroupShape, local: int, link: LinkClass) -> tuple[float, float]:
    """Ring and send/receive rates inside a node."""
    if local == 1:
        return math.inf, math.inf
    if link is LinkClass.NVSWITCH:
        generation = node.gpu.nvlink_generation
        return (
            node.fabric_bytes_per_s * _NVLINK_RING_FRACTION.get(generation, 0.75),
            node.fabric_bytes_per_s * _NVLINK_P2P_FRACTION.get(generation, 0.70),
        )
    if link is LinkClass.NVLINK_MESH:
        return _mesh_rates(node, group)
    if link is LinkClass.XGMI:
        # Fully connected: a group of r uses r-1 of the links.
        share = (local - 1) / max(node.num_gpus - 1, 1) * _XGMI_FRACTION
        return node.fabric_bytes_per_s * share, node.fabric_bytes_per_s * share
    return _pcie_rates(node, group, local, link)


def _mesh_rates(node: Node, group: GroupShape) -> tuple[float, float]:
    """Rings use the links among the members; all_to_all is bound by the thinnest or absent pair."""
    full = node.fabric_bytes_per_s * _NVLINK_RING_FRACTION.get(node.gpu.nvlink_generation, 0.75)
    members = _members(node, group)
    if not node.mesh_links:
        return full, full * _MESH_RELAY_FRACTION
    total = max(sum(row) for row in node.mesh_links)
    inside = [[node.mesh_links[i][j] for j in members if j != i] for i in members]
    ring = full * min(sum(row) for row in inside) / total
    thinnest = min(min(row) for row in inside)
    if thinnest == 0:
        return ring, ring * _MESH_RELAY_FRACTION
    return ring, full * thinnest / total * (len(members) - 1)


def _pcie_rates(node: Node, group: GroupShape, local: int, link: LinkClass) -> tuple[float, float]:
    port = node.gpu.pcie_bytes_per_s or node.fabric_bytes_per_s
    span = (local - 1) * group.stride + 1
    socket = node.gpus_per_socket or max(node.num_gpus // 2, _PCIE_SOCKET_GPUS)
    if link is LinkClass.PCIE_HOST:
        rate = port * _HOST_FRACTION * math.sqrt(2 / local)
        if span > socket:
            # written and read: every byte crosses memory and socket link twice
            rate = min(rate, port * _PCIE_SOCKET_FRACTION / 2)
        return rate, rate
    if local == 2 and span <= max(node.gpus_per_pcie_switch, 2) and socket > 1:
        rate = port * _PCIE_FRACTION
    elif span > socket:
        rate = port * _PCIE_SOCKET_FRACTION
    else:
        rate = port * _PCIE_CROSS_FRACTION
    return rate, rate


def _nvls_rate(node: Node, local: int, link: LinkClass, generation: int) -> float:
    """NVLS needs an NVSwitch of Hopper or later."""
    if link is not LinkClass.NVSWITCH or local < _NVLS_MIN_RANKS:
        return 0.0
    return node.fabric_bytes_per_s * _NVLS_FRACTION.get(generation, 0.0)


def _network_rates(cluster: Cluster, group: GroupShape, local: int) -> tuple[float, float]:
    """Achieved rates across nodes: of the whole group on one node, and of one of its ranks.

    A group reaches the NICs near its GPUs; groups that run at once split all NICs of the node.
    """
    node, network = cluster.node, cluster.network
    total = cluster.node_bytes_per_s * min(group.num_nodes, _nodes_per_domain(node))
    nic = min(node.nic_bytes_per_s or total, total)
    domain_gpus = node.num_gpus * min(group.num_nodes, _nodes_per_domain(node))
    near_ring = max(nic, total * local / domain_gpus)
    near_rank = max(nic, total / domain_gpus)
    efficiency = _efficiency(network)
    return (
        efficiency * min(near_ring, total / group.concurrent),
        efficiency * min(near_rank, total / (group.concurrent * local)),
    )


def _efficiency(network: Network) -> float:
    return network.achieved_fraction or 1.0
