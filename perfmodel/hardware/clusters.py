"""Clusters from names, and from what a published run says about its hardware.

What is not stated is taken from the usual platform of the GPU (its DGX or HGX node, a PCIe server
for a card) and every such assumption is written into `Cluster.notes`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perfmodel.errors import InputError, UnknownNameError
from perfmodel.hardware.aliases import (
    normalise,
    resolve_gpu,
    resolve_network_name,
    resolve_node_name,
)
from perfmodel.hardware.catalogue import Catalogue, catalogue
from perfmodel.hardware.entries import mesh_domain
from perfmodel.hardware.link_text import (
    InterNodeText,
    IntraNodeText,
    is_unstated,
    read_inter_node,
    read_intra_node,
)
from perfmodel.hardware.records import Cluster, FabricKind, Gpu, Network, NetworkKind, Node

PCIE_SERVER_GPUS = 8
"""Cards in the PCIe server assumed for a card without a node of its own: the common 4U chassis."""

_SAME_RATE = 0.05
"""Rates within 5 % are the same link (25 GB/s or 25.78 GB/s a NVLink3 lane group)."""


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
        record = usual_node(gpu, known)
        notes += [warning] if warning else []
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


def usual_node(gpu: Gpu, known: Catalogue | None = None) -> Node:
    """The node a GPU is usually sold in, with this GPU in it; a PCIe server where none is listed."""
    known = known or catalogue()
    name = known.usual_nodes.get(gpu.name)
    if name is not None:
        node = known.node(name)
        return node if node.gpu == gpu else replace(node, gpu=gpu)
    for name in known.nodes:
        if known.node(name).gpu == gpu:
            return known.node(name)
    return pcie_server(gpu, known)


def pcie_server(gpu: Gpu, known: Catalogue | None = None, num_gpus: int = PCIE_SERVER_GPUS) -> Node:
    """A server of `num_gpus` cards behind PCIe, one 100 Gb/s port, as assumed for unlisted cards."""
    known = known or catalogue()
    entry = known.gpus.get(gpu.name, {})
    port = known.network("tcp_100")
    return Node(
        name=f"pcie_{gpu.name}_{num_gpus}",
        title=f"{num_gpus} x {gpu.title}, PCIe",
        gpu=gpu,
        num_gpus=num_gpus,
        fabric=FabricKind.PCIE if entry.get("pcie_peer_to_peer", True) else FabricKind.PCIE_HOST,
        fabric_bytes_per_s=gpu.pcie_bytes_per_s,
        nvlink_domain_gpus=1,
        num_nics=1,
        nic_bytes_per_s=port.port_bytes_per_s,
        network=port.name,
    )


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
    node = _machine_named(f"{intra_text} {inter_text} {hardware.get('gpu')}", gpu, known)
    node = node or usual_node(gpu, known)
    per_node, nodes = _counts(hardware, node)
    node = _with_intra(node, read_intra_node(intra_text), per_node, notes)
    if is_unstated(intra_text) and per_node > 1:
        notes.append(_intra_note(node))
    if nodes > 1 or per_node > node.num_gpus:
        node = _whole_nodes(node, per_node, notes)
    node, network, rate = _with_inter(node, read_inter_node(inter_text), per_node, notes, known)
    if nodes > 1 and (is_unstated(inter_text) or read_inter_node(inter_text) == InterNodeText()):
        notes.append(
            f"links between nodes not stated: {node.num_nics} x {network.title} per node, "
            f"as in {node.title}"
        )
    return Cluster(
        node=node, network=network, num_nodes=nodes, gpus_per_node=per_node,
        node_bytes_per_s=rate, notes=tuple(notes),
    )  # fmt: skip


def _count(name: str, value: object) -> int:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and value == value
    if not ok or value < 1 or value != int(value) or value > 1e7:  # type: ignore[operator, call-overload]
        raise InputError(f"{name} {value!r} is not a positive whole number")
    return int(value)  # type: ignore[call-overload, no-any-return]


def _counts(hardware: Mapping[str, Any], node: Node) -> tuple[int, int]:
    """GPUs per node and nodes of the job; whatever is missing follows from the rest."""
    given = {
        key: _count(key, hardware[key])
        for key in ("num_gpus", "gpus_per_node", "nodes")
        if hardware.get(key) is not None
    }
    total, per_node, nodes = (given.get(k) for k in ("num_gpus", "gpus_per_node", "nodes"))
    if per_node is None:
        per_node = total // (nodes or 1) if total and nodes else min(total or 1, node.num_gpus)
    if nodes is None:
        nodes = -(-total // per_node) if total else 1
    if total is not None and total != per_node * nodes:
        raise InputError(
            f"num_gpus {total} is not gpus_per_node {per_node} x nodes {nodes}; correct one of them"
        )
    return max(per_node, 1), nodes


def _machine_named(text: str, gpu: Gpu, known: Catalogue) -> Node | None:
    """Node whose name or alias occurs in a text, if it holds GPUs of the same silicon."""
    squeezed = normalise(text)
    spelled = [(a, name) for name, texts in known.aliases.get("nodes", {}).items() for a in texts]
    for alias, name in sorted(spelled, key=lambda pair: -len(pair[0])):
        pattern = r"(?<![a-z0-9])" + re.escape(alias.lower()) + r"(?![a-z0-9])"
        if normalise(alias) in squeezed and re.search(pattern, text.lower()):
            node = known.node(name)
            if node.gpu.silicon_family == gpu.silicon_family:
                return replace(node, gpu=gpu)
    return None


def _intra_note(node: Node) -> str:
    if node.fabric is FabricKind.PCIE:
        return "links inside a node not stated: PCIe, peer-to-peer assumed to work"
    if node.fabric is FabricKind.PCIE_HOST:
        return "links inside a node not stated: PCIe, peer-to-peer assumed blocked as on this card"
    return f"links inside a node not stated: as in {node.title}"


def _with_intra(node: Node, said: IntraNodeText, per_node: int, notes: list[str]) -> Node:
    """The node with its fabric as stated."""
    gpu = node.gpu
    if said.has_infinity_fabric and node.fabric is not FabricKind.INFINITY_FABRIC:
        notes.append(f"Infinity Fabric stated, but {gpu.title} is taken as {node.title}")
        return node
    if said.has_nvlink or said.has_nvswitch:
        return _with_nvlink(node, said, per_node, notes)
    if not said.has_pcie and not said.blocks_peer_access:
        return node
    kind = FabricKind.PCIE_HOST if said.blocks_peer_access else FabricKind.PCIE
    if node.fabric is FabricKind.PCIE_HOST and not said.states_peer_access:
        kind = FabricKind.PCIE_HOST
    elif not (said.blocks_peer_access or said.states_peer_access):
        notes.append("peer-to-peer over PCIe not stated: assumed to work")
    return replace(
        node, fabric=kind, fabric_bytes_per_s=gpu.pcie_bytes_per_s, nvlink_domain_gpus=1,
        mesh_links=(),
    )  # fmt: skip


def _with_nvlink(node: Node, said: IntraNodeText, per_node: int, notes: list[str]) -> Node:
    gpu = node.gpu
    if gpu.nvlink_bytes_per_s == 0.0:
        notes.append(f"NVLink stated, but {gpu.title} has none: {node.title} taken")
        return node
    node = _with_stated_rate(node, said, notes)
    if said.domain_gpus:
        return replace(
            node, fabric=FabricKind.NVSWITCH, nvlink_domain_gpus=said.domain_gpus, mesh_links=()
        )
    if said.has_nvswitch:
        if node.fabric is not FabricKind.NVSWITCH:
            node = replace(
                node, fabric=FabricKind.NVSWITCH, fabric_bytes_per_s=gpu.nvlink_bytes_per_s,
                nvlink_domain_gpus=node.num_gpus, mesh_links=(),
            )  # fmt: skip
        return node
    is_card = node.fabric in (FabricKind.PCIE, FabricKind.PCIE_HOST)
    if said.is_pairwise or (is_card and said.links_per_pair is None):
        notes.append("NVLink on cards: bridges join GPUs in pairs")
        return _with_mesh(node, 2, _num_links(gpu), node.num_gpus)
    if said.links_per_pair is not None:
        return _with_links(node, said.links_per_pair, per_node, notes)
    return node


def _num_links(gpu: Gpu) -> int:
    """NVLinks of a GPU: one carries 20 GB/s each way in generation 1, 25 in 2 to 4, 50 in 5."""
    per_link = {1: 20e9, 5: 50e9}.get(gpu.nvlink_generation, 25e9)
    return max(1, round(gpu.nvlink_bytes_per_s / per_link))


def _with_links(node: Node, per_pair: int, per_node: int, notes: list[str]) -> Node:
    """Every pair has `per_pair` links: all links to every peer is a switch, else boards."""
    links = _num_links(node.gpu)
    if per_pair >= links:
        domain = node.num_gpus if per_node > 2 or node.fabric is FabricKind.NVSWITCH else 2
        if domain > 2:
            return replace(
                node, fabric=FabricKind.NVSWITCH, nvlink_domain_gpus=domain, mesh_links=(),
                fabric_bytes_per_s=node.gpu.nvlink_bytes_per_s,
            )  # fmt: skip
        return _with_mesh(node, 2, links, node.num_gpus)
    board = links // per_pair + 1
    if per_node > board:
        notes.append(
            f"{per_pair} NVLinks between GPUs of {links} each join boards of {board}: "
            f"{per_node} GPUs are taken as {-(-per_node // board)} such boards joined by PCIe"
        )
    return _with_mesh(node, board, per_pair, max(per_node, node.num_gpus))


def _with_mesh(node: Node, board: int, per_pair: int, num_gpus: int) -> Node:
    mesh = tuple(
        tuple(per_pair if i != j and i // board == j // board else 0 for j in range(num_gpus))
        for i in range(num_gpus)
    )
    return replace(
        node, fabric=FabricKind.NVLINK_MESH, mesh_links=mesh, num_gpus=num_gpus,
        nvlink_domain_gpus=mesh_domain(mesh), fabric_bytes_per_s=node.gpu.nvlink_bytes_per_s,
    )  # fmt: skip


def _with_stated_rate(node: Node, said: IntraNodeText, notes: list[str]) -> Node:
    """NVLink totals are sold as the sum of both directions, so X GB/s means X/2 one way.

    Unless the text says "per direction", or X is the one-way rate of this very GPU.
    """
    stated = said.rate_bytes_per_s
    if stated is None:
        return node
    signalled = node.gpu.nvlink_bytes_per_s
    one_way = (stated,) if said.rate_is_one_direction else (stated / 2, stated)
    if any(abs(rate / signalled - 1) <= _SAME_RATE for rate in one_way):
        return node
    notes.append(
        f"NVLink of {one_way[0] / 1e9:g} GB/s one way as stated, not {signalled / 1e9:g} as sold"
    )
    gpu = replace(node.gpu, nvlink_bytes_per_s=one_way[0])
    return replace(node, gpu=gpu, fabric_bytes_per_s=one_way[0])


def _whole_nodes(node: Node, per_node: int, notes: list[str]) -> Node:
    """A job of several nodes is taken to use whole nodes: the node shrinks or grows to fit."""
    if per_node == node.num_gpus:
        return node
    nics = node.num_nics and max(1, round(node.num_nics * per_node / node.num_gpus))
    notes.append(
        f"{per_node} GPUs a node where {node.title} has {node.num_gpus}: taken as a node of "
        f"{per_node} with {nics} NICs"
    )
    mesh = node.mesh_links
    if mesh:
        mesh = tuple(row[:per_node] for row in mesh[:per_node]) if per_node < len(mesh) else ()
    domain = node.nvlink_domain_gpus
    if domain == node.num_gpus:
        domain = per_node
    elif mesh:
        domain = mesh_domain(mesh)
    kind = node.fabric
    if kind is FabricKind.NVLINK_MESH and not mesh:
        kind = FabricKind.NVSWITCH  # more GPUs than a mesh joins directly
    return replace(
        node, num_gpus=per_node, num_nics=nics, mesh_links=mesh, nvlink_domain_gpus=domain,
        fabric=kind,
    )  # fmt: skip


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
        count = max(1, node.num_nics)
        notes.append(f"NICs per node not stated: {count} as in {node.title}")
    network = _network_like(node, said.kind, port, known)
    port = port or network.port_bytes_per_s
    node = replace(node, num_nics=count, nic_bytes_per_s=port, network=network.name)
    return node, network, count * port


def _ports(node: Node, total: float, per_node: int) -> int:
    """Ports behind a total: the platform's number if that gives a rate ports are sold with."""
    if node.num_nics and total / node.num_nics in _SOLD_PORTS:
        return node.num_nics
    fits = [n for n in (per_node, 1, 2, 4, 8, 16, 32) if total / n in _SOLD_PORTS]
    return fits[0] if fits else max(1, node.num_nics)


_SOLD_PORTS = frozenset(g * 1e9 / 8 for g in (10, 25, 40, 50, 56, 100, 200, 400, 800))


def _network_like(
    node: Node, kind: NetworkKind | None, port: float | None, known: Catalogue
) -> Network:
    """Catalogue network of a kind whose port rate is nearest; preferably one sold with this GPU."""
    own = known.network(node.network)
    kind = kind or (own.kind if own.kind is not NetworkKind.NONE else NetworkKind.TCP)
    siblings = [known.node(n) for n in known.nodes]
    beside = {n.network for n in siblings if n.gpu.architecture == node.gpu.architecture}
    candidates = [known.network(n) for n in known.networks]
    candidates = [n for n in candidates if n.kind is kind]
    wanted = port or (own.port_bytes_per_s if own.kind is kind else None)

    def distance(network: Network) -> tuple[float, bool, bool]:
        gap = 0.0 if wanted is None else abs(network.port_bytes_per_s / wanted - 1)
        return gap, network.name != own.name, network.name not in beside

    nearest = min(candidates, key=distance)
    if port and abs(nearest.port_bytes_per_s / port - 1) > _SAME_RATE:
        return replace(nearest, port_bytes_per_s=port)
    return nearest
