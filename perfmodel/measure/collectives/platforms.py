"""From the names in a collective table to a cluster and the shape of its communicator."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from perfmodel.errors import InputError
from perfmodel.hardware.catalogue import catalogue
from perfmodel.hardware.clusters import cluster_from_run
from perfmodel.hardware.link_text import read_inter_node
from perfmodel.hardware.records import Cluster, GroupShape, NetworkKind, Node


@lru_cache(maxsize=4096)
def cluster_of(gpu: str, link: str, nodes: int, gpus_per_node: int) -> Cluster:
    """Cluster of a row.

    Parameters
    ----------
    gpu : str
        Any spelling of a GPU.
    link : str
        "NVLink4", "PCIe4+RoCE", "+EFA", …: fabric inside a node, `+`, network. What is not said is
        taken from the node the GPU is usually sold in.
    nodes, gpus_per_node : int
        Shape of the communicator.

    Raises
    ------
    InputError
        If the GPU is unknown or the counts are not positive.
    """
    inside, plus, between = link.partition("+")
    if not plus and nodes > 1:
        between = link
    cluster = cluster_from_run(
        {
            "gpu": gpu,
            "nodes": nodes,
            "gpus_per_node": gpus_per_node,
            "intra_node": inside or None,
            "inter_node": between or None,
        }
    )
    said = read_inter_node(between)
    if nodes == 1 or said.kind is None or said.port_bytes_per_s or said.node_bytes_per_s:
        return cluster
    return _with_usual_nics(cluster, said.kind)


def _with_usual_nics(cluster: Cluster, kind: NetworkKind) -> Cluster:
    """A network named without rates: the NICs of a machine sold with this GPU and this network."""
    machine = _machine(cluster.node, kind)
    if machine is None:
        return cluster
    used = max(1, -(-machine.num_nics * cluster.gpus_per_node // machine.num_gpus))
    node = replace(
        cluster.node,
        num_nics=max(1, round(machine.num_nics * cluster.node.num_gpus / machine.num_gpus)),
        nic_bytes_per_s=machine.nic_bytes_per_s,
        network=machine.network,
    )
    return replace(
        cluster,
        node=node,
        network=catalogue().network(machine.network),
        node_bytes_per_s=used * machine.nic_bytes_per_s,
        notes=(*cluster.notes, f"NICs not stated: as in {machine.title}"),
    )


def _machine(node: Node, kind: NetworkKind) -> Node | None:
    """Node of the catalogue with the same silicon and this network: same GPU, then most NICs."""
    known = catalogue()
    nodes = [known.node(name) for name in known.nodes]
    fitting = [
        n
        for n in nodes
        if n.gpu.silicon_family == node.gpu.silicon_family
        and known.network(n.network).kind is kind
        and n.num_nics > 0
    ]
    fitting.sort(key=lambda n: (n.gpu.name != node.gpu.name, -n.num_nics * n.nic_bytes_per_s))
    return fitting[0] if fitting else None


def group_of(nodes: int, gpus_per_node: int) -> GroupShape:
    """The communicator of a benchmark: all ranks of all nodes, alone on the machine."""
    if nodes < 1 or gpus_per_node < 1:
        raise InputError(f"{nodes} nodes of {gpus_per_node} ranks: both must be at least 1")
    return GroupShape(ranks_per_node=gpus_per_node, num_nodes=nodes)
