"""From a plain catalogue entry (numbers, units in the keys) to a record in SI units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from perfmodel.errors import InputError
from perfmodel.hardware.records import Dtype, FabricKind, Gpu, Network, NetworkKind, Node
from perfmodel.units import GB, GIB, GIGABIT_BYTES, MIB, TERA, US

Entry: TypeAlias = Mapping[str, Any]

MHZ = 1e6

# Keys of `peak_tflops_dense` that can feed a dtype; the fastest of them counts. `fp16` without
# tensor cores is the packed rate of Pascal; where it is slower than fp32 libraries compute in fp32.
_PEAK_KEYS: dict[Dtype, tuple[str, ...]] = {
    Dtype.FP64: ("fp64", "fp64_tensor"),
    Dtype.FP32: ("fp32", "fp32_matrix"),
    Dtype.TF32: ("tf32",),
    Dtype.FP16: ("fp16_tensor", "fp16"),
    Dtype.BF16: ("bf16_tensor",),
    Dtype.FP8: ("fp8",),
    Dtype.NVFP4: ("fp4",),
    Dtype.INT8: ("int8",),
}

_FABRICS: dict[str, FabricKind] = {
    "nvlink_direct": FabricKind.NVLINK_MESH,
    "nvswitch": FabricKind.NVSWITCH,
    "nvswitch_rack": FabricKind.NVSWITCH,
    "infinity_fabric_direct": FabricKind.INFINITY_FABRIC,
    "pcie": FabricKind.PCIE,
    "pcie_via_host": FabricKind.PCIE_HOST,
    "none": FabricKind.NONE,
}
FABRIC_NAMES: tuple[str, ...] = tuple(_FABRICS)
_SWITCHED = (FabricKind.NVSWITCH, FabricKind.INFINITY_FABRIC)


def gpu_from_entry(name: str, entry: Entry) -> Gpu:
    """Record of a GPU entry.

    Parameters
    ----------
    name : str
        Canonical id.
    entry : mapping
        Plain values under the keys of the catalogue's `gpus.yaml`. Where `devices_per_package` is
        given (MI250X: 2) the record is one device as software sees it, a share of the package.

    Returns
    -------
    Gpu
        `memory_bytes` is what the device reports where that is known, else what it is sold with.

    Raises
    ------
    KeyError
        If a required key is absent (readers check this before).
    """
    share = 1.0 / entry.get("devices_per_package", 1)
    reported = entry.get("memory_reported_mib")
    memory = reported * MIB if reported else entry["memory_gib"] * GIB
    peaks = entry["peak_tflops_dense"]
    nvlink = entry.get("nvlink") or {}
    return Gpu(
        name=name,
        title=entry.get("name", name),
        vendor=entry.get("vendor", "unknown"),
        architecture=str(entry.get("architecture", "unknown")).lower(),
        silicon_family=entry.get("silicon_family", name),
        peak_flop_per_s={d: v * TERA * share for d, v in _fastest(peaks).items()},
        vector_flop_per_s=peaks["fp32"] * TERA * share,
        memory_bytes=memory * share,
        memory_bytes_per_s=entry["memory_bandwidth_gb_s"] * GB * share,
        l2_bytes=entry["l2_mib"] * MIB * share,
        num_sms=round(entry["sm_count"] * share),
        clock_hz=entry["boost_clock_mhz"] * MHZ,
        power_w=entry["tdp_w"] * share,
        nvlink_bytes_per_s=nvlink.get("gb_s_one_direction", 0.0) * GB,
        nvlink_generation=int(nvlink.get("generation", 0)),
        pcie_bytes_per_s=(entry.get("pcie") or {}).get("gb_s_one_direction", 0.0) * GB,
        compute_capability=str(entry.get("compute_capability", "")),
    )


def _fastest(peaks: Mapping[str, float]) -> dict[Dtype, float]:
    """Fastest dense rate of each dtype; reduced precision slower than fp32 is left out."""
    out: dict[Dtype, float] = {}
    for dtype, keys in _PEAK_KEYS.items():
        rates = [peaks[k] for k in keys if k in peaks]
        if rates:
            out[dtype] = max(rates)
    if out.get(Dtype.FP16, 0.0) < out[Dtype.FP32]:
        out.pop(Dtype.FP16, None)
    return out


def node_from_entry(name: str, entry: Entry, find_gpu: Callable[[str], Gpu]) -> Node:
    """Record of a node entry; `find_gpu` resolves the GPU it names.

    A rack whose NVLink domain spans trays becomes a node of one tray, the part an operating
    system sees, with the domain beside it.
    """
    gpus, fabric = entry["gpus"], entry["fabric"]
    nics, host = entry.get("nics") or {}, entry.get("host") or {}
    gpu = find_gpu(gpus["gpu"])
    kind = _FABRICS[fabric["type"]]
    num_gpus = int(gpus.get("gpus_per_os_node", gpus["count"]))
    mesh = tuple(tuple(int(v) for v in row) for row in fabric.get("nvlink_matrix_links", ()))
    domain = int(gpus["count"]) if kind in _SWITCHED else mesh_domain(mesh)
    return Node(
        name=name,
        title=entry.get("name", name),
        gpu=gpu,
        num_gpus=num_gpus,
        fabric=kind,
        fabric_bytes_per_s=fabric.get("per_gpu_gb_s_one_direction", 0.0) * GB,
        nvlink_domain_gpus=domain,
        mesh_links=mesh,
        num_nics=int(nics.get("count", nics.get("count_per_tray", 0))),
        nic_bytes_per_s=nics.get("gb_per_s_each_bits", 0.0) * GIGABIT_BYTES,
        network=nics.get("type", "none"),
        gpus_per_pcie_switch=int(host.get("gpus_per_pcie_switch", 0)),
        host_memory_bytes=host.get("host_memory_gib", 0.0) * GIB,
        host_memory_bytes_per_s=host.get("host_memory_gb_s", 0.0) * GB,
        cpu=str(host.get("cpu", "")),
    )


def mesh_domain(mesh: tuple[tuple[int, ...], ...]) -> int:
    """GPUs that GPU 0 reaches over NVLink, directly or through others; 1 without a mesh."""
    if not mesh:
        return 1
    seen, todo = {0}, [0]
    while todo:
        row = mesh[todo.pop()]
        new = [j for j, links in enumerate(row) if links and j not in seen]
        seen.update(new)
        todo.extend(new)
    return len(seen)


def check_mesh(mesh: object, num_gpus: int) -> None:
    """Raise InputError unless `mesh` is a symmetric num_gpus x num_gpus matrix of link counts."""
    ok = (
        isinstance(mesh, list)
        and len(mesh) == num_gpus
        and all(isinstance(row, list) and len(row) == num_gpus for row in mesh)
        and all(
            isinstance(mesh[i][j], int) and mesh[i][j] >= 0 and mesh[i][j] == mesh[j][i]
            for i in range(num_gpus)
            for j in range(num_gpus)
        )
        and all(mesh[i][i] == 0 for i in range(num_gpus))
    )
    if not ok:
        raise InputError(
            f"nvlink_matrix_links is not a symmetric {num_gpus} x {num_gpus} matrix of link counts "
            "with a zero diagonal"
        )


def network_from_entry(name: str, entry: Entry) -> Network:
    """Record of a network entry."""
    return Network(
        name=name,
        title=entry.get("name", name),
        kind=NetworkKind(entry["kind"]),
        port_bytes_per_s=entry["rate_gb_per_s_bits"] * GIGABIT_BYTES,
        latency_s=entry["latency_us_one_way"] * US,
        step_latency_s=entry["collective_step_latency_us"] * US,
        achieved_fraction=entry["achieved_fraction"],
        has_gpudirect=entry["gpudirect_rdma"],
    )
