"""A node with its fabric as a text states it: switch, mesh, bridges, PCIe, stated rates."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.hardware.entries import mesh_domain
from perfmodel.hardware.link_text import IntraNodeText
from perfmodel.hardware.records import FabricKind, Gpu, Node

SAME_RATE = 0.05
"""Rates within 5 % are the same link (25 or 25.78 GB/s of an NVLink)."""


def unstated_fabric(node: Node) -> str:
    """Sentence for a run that does not state the links inside a node."""
    if node.fabric is FabricKind.PCIE:
        return "links inside a node not stated: PCIe, peer-to-peer assumed to work"
    if node.fabric is FabricKind.PCIE_HOST:
        return "links inside a node not stated: PCIe, peer-to-peer assumed blocked as on this card"
    return f"links inside a node not stated: as in {node.title}"


def with_stated_fabric(node: Node, said: IntraNodeText, per_node: int, notes: list[str]) -> Node:
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

    Unless the text says "per direction", or X is the one-way rate of this very GPU. More than the
    GPU signals is the sum over several GPUs and changes nothing.
    """
    stated = said.rate_bytes_per_s
    if stated is None:
        return node
    signalled = node.gpu.nvlink_bytes_per_s
    one_way = (stated,) if said.rate_is_one_direction else (stated / 2, stated)
    if any(abs(rate / signalled - 1) <= SAME_RATE for rate in one_way):
        return node
    if one_way[0] > signalled:
        return node  # a total of several GPUs
    notes.append(
        f"NVLink of {one_way[0] / 1e9:g} GB/s one way as stated, not {signalled / 1e9:g} as sold"
    )
    gpu = replace(node.gpu, nvlink_bytes_per_s=one_way[0])
    return replace(node, gpu=gpu, fabric_bytes_per_s=one_way[0])


def whole_nodes(node: Node, per_node: int, notes: list[str]) -> Node:
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
