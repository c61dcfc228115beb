"""The platform a GPU is usually sold in, and the machine a text names."""

from __future__ import annotations

import re
from dataclasses import replace

from perfmodel.hardware.aliases import normalise
from perfmodel.hardware.catalogue import Catalogue, catalogue
from perfmodel.hardware.records import FabricKind, Gpu, Node

PCIE_SERVER_GPUS = 8
"""Cards in the PCIe server assumed for a card without a node of its own: the common 4U chassis."""
PCIE4_BYTES_PER_S = 31.5e9
"""16 lanes of 16 GT/s with 128b/130b coding: for a card that does not state its own."""


def usual_node(gpu: Gpu, known: Catalogue | None = None) -> Node:
    """The node a GPU is usually sold in, with this GPU in it; else a PCIe server of it."""
    known = known or catalogue()
    entry = known.gpus.get(gpu.name, {})
    name = known.usual_nodes.get(gpu.name) or known.usual_nodes.get(entry.get("like", ""))
    if name is None:
        holds = (n for n, e in known.nodes.items() if e["gpus"]["gpu"] == gpu.name)
        name = next(holds, None)
    return pcie_server(gpu, known) if name is None else replace(known.node(name), gpu=gpu)


def pcie_server(gpu: Gpu, known: Catalogue | None = None, num_gpus: int = PCIE_SERVER_GPUS) -> Node:
    """A server of `num_gpus` cards behind PCIe and one 100 Gb/s port, for unlisted cards."""
    known = known or catalogue()
    entry = known.gpus.get(gpu.name, {})
    port = known.network("tcp_100")
    return Node(
        name=f"pcie_{gpu.name}_{num_gpus}",
        title=f"{num_gpus} x {gpu.title}, PCIe",
        gpu=gpu,
        num_gpus=num_gpus,
        fabric=FabricKind.PCIE if entry.get("pcie_peer_to_peer", True) else FabricKind.PCIE_HOST,
        fabric_bytes_per_s=gpu.pcie_bytes_per_s or PCIE4_BYTES_PER_S,
        nvlink_domain_gpus=1,
        num_nics=1,
        nic_bytes_per_s=port.port_bytes_per_s,
        network=port.name,
    )


def machine_named(text: str, gpu: Gpu, known: Catalogue) -> Node | None:
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
