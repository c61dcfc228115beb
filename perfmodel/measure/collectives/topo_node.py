"""A node record from its topology matrix: what the cost model needs of the graph."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from perfmodel.errors import InputError
from perfmodel.hardware.platforms import usual_node
from perfmodel.hardware.records import FabricKind, Gpu, Node
from perfmodel.measure.collectives.topo import Topology

_SWITCH_LINKS = ("PIX", "PXB")  # below one PCIe host bridge
_NVLINKS_OF_GENERATION = {1: 4, 2: 6, 3: 12, 4: 18, 5: 18}  # links of a data-centre GPU


def node_from_topology(topology: Topology, gpu: Gpu) -> Node:
    """Node of `gpu`s wired as the matrix says.

    NVLink counts give switch or mesh; PIX and PXB give PCIe switches; SYS gives sockets; a peer
    matrix that is not all OK means traffic is staged in host memory. NIC rates are those of the
    node the GPU is usually sold in, as the matrix does not tell them.

    Raises
    ------
    InputError
        If the matrix names no GPU.
    """
    gpus = topology.gpus
    if not gpus:
        raise InputError("the topology matrix names no GPU")
    usual = usual_node(gpu)
    base = replace(
        usual,
        name=f"{gpu.name}_topology",
        title=f"{len(gpus)} x {gpu.title}, links as in the topology matrix",
        num_gpus=len(gpus),
        num_nics=len(topology.nics) or usual.num_nics,
        gpus_per_pcie_switch=_largest_group(topology, _SWITCH_LINKS),
        gpus_per_socket=_per_socket(topology),
        mesh_links=(),
        nvlink_domain_gpus=1,
    )
    if len(gpus) == 1:
        return replace(base, fabric=FabricKind.NONE, fabric_bytes_per_s=0.0)
    mesh = tuple(tuple(topology.nvlinks(a, b) if a != b else 0 for b in gpus) for a in gpus)
    if any(any(row) for row in mesh):
        return _with_nvlink(base, mesh)
    blocked = topology.peer_access and not all(topology.peer_access.values())
    is_blocked = blocked or (not topology.peer_access and usual.fabric is FabricKind.PCIE_HOST)
    return replace(
        base,
        fabric=FabricKind.PCIE_HOST if is_blocked else FabricKind.PCIE,
        fabric_bytes_per_s=gpu.pcie_bytes_per_s,
    )


def _with_nvlink(base: Node, mesh: tuple[tuple[int, ...], ...]) -> Node:
    """Through a switch every pair shows all links of a GPU; in a mesh they add up to them."""
    gpu = base.gpu
    links = _NVLINKS_OF_GENERATION.get(gpu.nvlink_generation, max(map(max, mesh)))
    if len(mesh) > 2 and min(sum(row) for row in mesh) > links:
        return replace(
            base, fabric=FabricKind.NVSWITCH, fabric_bytes_per_s=gpu.nvlink_bytes_per_s,
            nvlink_domain_gpus=len(mesh),
        )  # fmt: skip
    used = max(sum(row) for row in mesh)
    rate = gpu.nvlink_bytes_per_s * min(1.0, used / links)
    return replace(
        base, fabric=FabricKind.NVLINK_MESH, fabric_bytes_per_s=rate, mesh_links=mesh,
        nvlink_domain_gpus=len(mesh) if all(any(row) for row in mesh) else 1,
    )  # fmt: skip


def _largest_group(topology: Topology, links: tuple[str, ...]) -> int:
    """Size of the largest set of GPUs joined by `links`; 1 where there is none."""
    return max(
        1 + sum(topology.link(a, b) in links for b in topology.gpus if b != a)
        for a in topology.gpus
    )


def _per_socket(topology: Topology) -> int:
    """GPUs per socket: by NUMA node where listed, else by SYS links; 0 where neither tells."""
    if len(topology.numa) >= len(topology.gpus):
        return max(Counter(topology.numa[gpu] for gpu in topology.gpus).values())
    known = [topology.link(topology.gpus[0], b) for b in topology.gpus[1:]]
    if not known or any(link is None or link.startswith("NV") for link in known):
        return 0
    return 1 + sum(link != "SYS" for link in known)
