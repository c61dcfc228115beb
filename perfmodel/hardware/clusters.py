"""Clusters from names, and from what a published run says about its hardware.

What is not stated is taken from the usual platform of the GPU (its DGX or HGX node, a PCIe server
for a card) and every such assumption is written into `Cluster.notes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perfmodel.errors import InputError, UnknownNameError
from perfmodel.hardware.aliases import resolve_gpu, resolve_network_name, resolve_node_name
from perfmodel.hardware.catalogue import Catalogue, catalogue
from perfmodel.hardware.fabrics import SAME_RATE, unstated_fabric, whole_nodes, with_stated_fabric
from perfmodel.hardware.link_text import (
    InterNodeText,
    is_unstated,
    read_inter_node,
    read_intra_node,
)
from perfmodel.hardware.platforms import machine_named, usual_node
from perfmodel.hardware.records import Cluster, Network, NetworkKind, Node


def resolve_cluster(
    spec: str | Mapping[str, Any],
    num_nodes: int = 1,
    *,
    network: str | None = None,
    gpus_per_node: int | None = None,
    known: Catalogue | None = None,
) -> Cluster:
    """Cluster from a node name, a GPU name, or the `hardware` object of a published run.

    Parameters
    ----------
    spec : str or mapping
        A node ("dgx_a100_80", "DGX A100"), a GPU (its usual node is taken), a mapping with a key
        `gpu` (see `cluster_from_run`), or a mapping with `node` and optionally `num_nodes`,
        `network`, `gpus_per_node`.
    num_nodes, network, gpus_per_node
        For names: size, and what differs from the node as sold.

    Raises
    ------
    UnknownNameError
        If the GPU, node or network is not known.
    InputError
        If a count is not a positive integer.
    """
    known = known or catalogue()
    if isinstance(spec, Mapping):
        if "node" not in spec:
            return cluster_from_run(spec, known)
        return cluster_from_names(
            str(spec["node"]),
            spec.get("num_nodes", num_nodes),
            network=spec.get("network", network),
            gpus_per_node=spec.get("gpus_per_node", gpus_per_node),
            known=known,
        )
    return cluster_from_names(
        spec, num_nodes, network=network, gpus_per_node=gpus_per_node, known=known
    )


def cluster_from_names(
    node: str,
    num_nodes: int = 1,
    *,
    network: str | None = None,
    gpus_per_node: int | None = None,
    known: Catalogue | None = None,
) -> Cluster:
    """`num_nodes` nodes of one kind; a node name or the name of a GPU whose usual node is meant.

    A `network` other than the node's own replaces it, with as many ports as the node has NICs.
    A job on a part of each node uses that part of its NICs, at least one.
    """
    known = known or catalogue()
    num_nodes = _count("num_nodes", num_nodes)
    notes: list[str] = []
    try:
        record = known.node(resolve_node_name(node, known))
    except UnknownNameError as unknown:
        try:
            gpu, warning = resolve_gpu(node, known)
        except UnknownNameError:
            raise unknown from None
        if warning:  # near some GPU, the name of none: more likely a misspelt node
            raise unknown from None
        record = usual_node(gpu, known)
        notes.append(f"node not stated: {record.title}")
    used = record.num_gpus if gpus_per_node is None else _count("gpus_per_node", gpus_per_node)
    if used > record.num_gpus:
        raise InputError(
            f"gpus_per_node {used} is more than {record.title} has; use 1 to {record.num_gpus}"
        )
    link = known.network(record.network)
    if network is not None:
        link = known.network(resolve_network_name(network, known))
        record = replace(
            record, network=link.name, num_nics=record.num_nics or 1,
            nic_bytes_per_s=link.port_bytes_per_s,
        )  # fmt: skip
    return Cluster(
        node=record, network=link, num_nodes=num_nodes, gpus_per_node=used,
        node_bytes_per_s=_job_rate(record, used), notes=tuple(notes),
    )  # fmt: skip


def _job_rate(node: Node, used: int) -> float:
    """Bytes/s of the NICs that `used` GPUs of a node drive: their share, whole NICs, at least one.

    NCCL gives every GPU the NIC nearest to it, so idle GPUs leave theirs idle (nccl, graph search).
    """
    if node.num_nics == 0:
        return 0.0
    nics = max(1, -(-node.num_nics * used // node.num_gpus))
    return nics * node.nic_bytes_per_s


def cluster_from_run(hardware: Mapping[str, Any], known: Catalogue | None = None) -> Cluster:
    """Cluster of a published run.

    Parameters
    ----------
    hardware : mapping
        `gpu`, `num_gpus`, `gpus_per_node` (of the job), `nodes`, `intra_node`, `inter_node`; the
        last two are free text or None, read by the rules of `link_text`. Of the three counts any
        one that is missing follows from the others.

    Raises
    ------
    UnknownNameError
        If the GPU is unknown.
    InputError
        If a count is not a positive integer or the three disagree.
    """
    known = known or catalogue()
    gpu, warning = resolve_gpu(hardware.get("gpu", ""), known)
    notes = [warning] if warning else []
    inter_text, intra_text = hardware.get("inter_node"), hardware.get("intra_node")
    named = machine_named(f"{intra_text} {inter_text} {hardware.get('gpu')}", gpu, known)
    node = named or usual_node(gpu, known)
    per_node, nodes = _counts(hardware, node)
    node = with_stated_fabric(node, read_intra_node(intra_text), per_node, notes)
    if is_unstated(intra_text) and per_node > 1:
        notes.append(unstated_fabric(node))
    if nodes > 1 or per_node > node.num_gpus:
        node = whole_nodes(node, per_node, notes)
    node, network, rate = _with_inter(node, read_inter_node(inter_text), per_node, notes, known)
    if nodes > 1 and named is None and read_inter_node(inter_text) == InterNodeText():
        notes.append(
            f"links between nodes not stated: {node.num_nics} x {network.title} per node, "
            f"as in {node.title}"
        )
    return Cluster(
        node=node, network=network, num_nodes=nodes, gpus_per_node=per_node,
        node_bytes_per_s=rate, notes=tuple(notes),
    )  # fmt: skip


MAX_COUNT = 10**7
"""More GPUs than exist: a slip of the finger."""


def _count(name: str, value: object) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 1 <= float(str(value)) <= MAX_COUNT or float(str(value)) % 1:
        raise InputError(f"{name} {value!r} is not a positive whole number up to {MAX_COUNT:,}")
    return int(float(str(value)))


def _counts(hardware: Mapping[str, Any], node: Node) -> tuple[int, int]:
    """GPUs per node and nodes of the job; whatever is missing follows from the rest."""
    given = {
        key: _count(key, hardware[key])
        for key in ("num_gpus", "gpus_per_node", "nodes")
        if hardware.get(key) is not None
    }
    total, per_node, nodes = (given.get(k) for k in ("num_gpus", "gpus_per_node", "nodes"))
    if total is None:
        nodes = nodes or 1
        per_node = per_node or (node.num_gpus if "nodes" in given else 1)
        return per_node, nodes
    per_node = per_node or (total // nodes if nodes else min(total, node.num_gpus)) or 1
    nodes = nodes or -(-total // per_node)
    if total != per_node * nodes:
        raise InputError(
            f"num_gpus {total} is not gpus_per_node {per_node} x nodes {nodes}; correct one of them"
        )
    return per_node, nodes


def _with_inter(
    node: Node, said: InterNodeText, per_node: int, notes: list[str], known: Catalogue
) -> tuple[Node, Network, float]:
    """The node with NICs as stated, its network, and bytes/s of one node."""
    if said == InterNodeText():
        return node, known.network(node.network), _job_rate(node, per_node)
    total = said.node_bytes_per_s
    if said.per_gpu_bytes_per_s is not None:
        total = said.per_gpu_bytes_per_s * per_node
    port, count = said.port_bytes_per_s, said.count
    if total is not None:
        count = count or (round(total / port) if port else _ports(node, total, per_node))
        port = total / count
    elif count is None:
        like = node if port else _sold_with(node, said.kind, known)
        count = max(1, round(like.num_nics * node.num_gpus / like.num_gpus))
        port = port or like.nic_bytes_per_s or None
        notes.append(f"NICs per node not stated: {count} as in {like.title}")
    network = _network_like(node, said.kind, port, known)
    port = port or network.port_bytes_per_s
    node = replace(node, num_nics=count, nic_bytes_per_s=port, network=network.name)
    return node, network, count * port


def _sold_with(node: Node, kind: NetworkKind | None, known: Catalogue) -> Node:
    """A node of the same silicon whose network is of `kind`; the platform itself where none is."""
    for other in (node, *(known.node(name) for name in known.nodes)):
        same = other.gpu.silicon_family == node.gpu.silicon_family
        if same and other.num_nics and known.network(other.network).kind is kind:
            return other
    return replace(node, nic_bytes_per_s=0.0)


def _ports(node: Node, total: float, per_node: int) -> int:
    """Ports behind a total: the platform's number if that gives a rate ports are sold with."""
    if node.num_nics and total / node.num_nics in _SOLD_PORTS:
        return node.num_nics
    fits = [n for n in (per_node, 1, 2, 4, 8, 16, 32) if total / n in _SOLD_PORTS]
    return fits[0] if fits else max(1, node.num_nics)


RDMA_ETHERNET_BYTES_PER_S = 200e9 / 8
"""Ethernet ports from 200 Gb/s on are taken as RoCE: sockets cannot fill them (networks.yaml)."""

_SOLD_PORTS = frozenset(g * 1e9 / 8 for g in (10, 25, 40, 50, 56, 100, 200, 400, 800))


def _network_like(
    node: Node, kind: NetworkKind | None, port: float | None, known: Catalogue
) -> Network:
    """Catalogue network of a kind whose port rate is nearest; preferably one sold with this GPU."""
    own = known.network(node.network)
    kind = kind or (own.kind if own.kind is not NetworkKind.NONE else NetworkKind.TCP)
    if kind is NetworkKind.TCP and port is not None and port >= RDMA_ETHERNET_BYTES_PER_S:
        kind = NetworkKind.ROCE
    siblings = [known.node(n) for n in known.nodes]
    beside = {n.network for n in siblings if n.gpu.architecture == node.gpu.architecture}
    candidates = [known.network(n) for n in known.networks]
    candidates = [n for n in candidates if n.kind is kind]
    wanted = port or own.port_bytes_per_s

    def distance(network: Network) -> tuple[float, bool, bool]:
        gap = abs(network.port_bytes_per_s / wanted - 1) if wanted else 0.0
        return gap, network.name != own.name, network.name not in beside

    nearest = min(candidates, key=distance)
    if port and abs(nearest.port_bytes_per_s / port - 1) > SAME_RATE:
        return replace(nearest, port_bytes_per_s=port)
    return nearest
