"""What `perfmodel catalogue` prints: a row for each entry with its headline numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfmodel.errors import InputError
from perfmodel.hardware.catalogue import Catalogue, catalogue
from perfmodel.hardware.records import Dtype
from perfmodel.units import GB, GIB, GIGABIT_BYTES, TERA, US

Row = dict[str, Any]


def gpu_rows(known: Catalogue | None = None) -> list[Row]:
    """One row a GPU; numbers in the units people use, named in the keys."""
    known = known or catalogue()
    rows = []
    for name, entry in known.gpus.items():
        gpu = known.gpu(name)
        peaks = gpu.peak_flop_per_s
        half = peaks.get(Dtype.BF16, peaks.get(Dtype.FP16))
        rows.append(
            {
                "name": name,
                "title": gpu.title,
                "memory_gib": round(gpu.memory_bytes / GIB, 1),
                "memory_gb_s": round(gpu.memory_bytes_per_s / GB),
                "fp32_tflops": _tera(peaks.get(Dtype.FP32)),
                "half_tflops": _tera(half),
                "fp8_tflops": _tera(peaks.get(Dtype.FP8)),
                "nvlink_gb_s": round(gpu.nvlink_bytes_per_s / GB),
                "power_w": round(gpu.power_w),
                "confidence": entry.get("confidence", "user"),
            }
        )
    return rows


def _tera(rate: float | None) -> float | None:
    return None if rate is None else round(rate / TERA, 1)


def node_rows(known: Catalogue | None = None) -> list[Row]:
    """One row a node."""
    known = known or catalogue()
    rows = []
    for name, entry in known.nodes.items():
        node = known.node(name)
        rows.append(
            {
                "name": name,
                "title": node.title,
                "gpus": node.num_gpus,
                "gpu": node.gpu.name,
                "fabric": str(node.fabric),
                "fabric_gb_s": round(node.fabric_bytes_per_s / GB, 1),
                "domain_gpus": node.nvlink_domain_gpus,
                "nics": node.num_nics,
                "nic_gbit_s": round(node.nic_bytes_per_s / GIGABIT_BYTES),
                "network": node.network,
                "confidence": entry.get("confidence", "user"),
            }
        )
    return rows


def network_rows(known: Catalogue | None = None) -> list[Row]:
    """One row a network."""
    known = known or catalogue()
    rows = []
    for name, entry in known.networks.items():
        network = known.network(name)
        rows.append(
            {
                "name": name,
                "title": network.title,
                "kind": str(network.kind),
                "port_gbit_s": round(network.port_bytes_per_s / GIGABIT_BYTES),
                "latency_us": round(network.latency_s / US, 2),
                "step_latency_us": round(network.step_latency_s / US, 1),
                "achieved_fraction": network.achieved_fraction,
                "confidence": entry.get("confidence", "user"),
            }
        )
    return rows


_SECTIONS: dict[str, Callable[[Catalogue | None], list[Row]]] = {
    "gpus": gpu_rows,
    "nodes": node_rows,
    "networks": network_rows,
}


def catalogue_rows(section: str, known: Catalogue | None = None) -> list[Row]:
    """Rows of "gpus", "nodes" or "networks". Raises InputError for another section."""
    if section not in _SECTIONS:
        raise InputError(f"catalogue section {section!r}; use one of {', '.join(_SECTIONS)}")
    return _SECTIONS[section](known)
