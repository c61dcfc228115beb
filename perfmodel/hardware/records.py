"""What a cluster is made of: GPU, node, network, and the shape of a group of ranks on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from perfmodel.errors import InputError


class Dtype(StrEnum):
    """Number formats, by their canonical names."""

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    MXFP8 = "mxfp8"
    NVFP4 = "nvfp4"
    INT8 = "int8"
    INT32 = "int32"
    INT64 = "int64"

    @property
    def num_bytes(self) -> float:
        """Bytes of one element in memory (block scales of mxfp8 and nvfp4 included)."""
        return _DTYPE_BYTES[self]


# OCP microscaling formats: one 8-bit scale per 32 elements (mxfp8); nvfp4: one per 16.
_DTYPE_BYTES: dict[Dtype, float] = {
    Dtype.FP64: 8, Dtype.INT64: 8, Dtype.FP32: 4, Dtype.TF32: 4, Dtype.INT32: 4,
    Dtype.BF16: 2, Dtype.FP16: 2, Dtype.FP8: 1, Dtype.INT8: 1,
    Dtype.MXFP8: 1 + 1 / 32, Dtype.NVFP4: 0.5 + 1 / 16,
}  # fmt: skip


class FabricKind(StrEnum):
    """How the GPUs of one node reach each other."""

    NVSWITCH = "nvswitch"
    NVLINK_MESH = "nvlink_mesh"  # point-to-point links, e.g. the DGX-1 hybrid cube mesh
    PCIE = "pcie"  # peer-to-peer works
    PCIE_HOST = "pcie_host"  # peer-to-peer blocked: traffic is staged in host memory
    INFINITY_FABRIC = "infinity_fabric"
    NONE = "none"  # one GPU


class NetworkKind(StrEnum):
    """How nodes reach each other."""

    INFINIBAND = "infiniband"
    ROCE = "roce"
    EFA = "efa"
    OMNI_PATH = "omni_path"
    SLINGSHOT = "slingshot"
    TCPX = "tcpx"
    TCP = "tcp"
    NONE = "none"  # one node


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator. All rates are dense peaks of the data sheet, never sparse ones.

    `peak_flop_per_s` maps a dtype to its fastest dense unit (tensor cores where they exist, fp32
    accumulation); `vector_flop_per_s` is the fp32 rate of the vector units.
    """

    name: str  # canonical id, e.g. "a100_sxm4_80"
    title: str
    vendor: str
    architecture: str  # lower case: pascal, volta, turing, ampere, ada, hopper, blackwell, cdna2 …
    silicon_family: str
    peak_flop_per_s: Mapping[Dtype, float]
    vector_flop_per_s: float
    memory_bytes: float
    memory_bytes_per_s: float
    l2_bytes: float
    num_sms: int
    clock_hz: float
    power_w: float
    nvlink_bytes_per_s: float = 0.0  # one direction, all links of the GPU
    nvlink_generation: int = 0
    pcie_bytes_per_s: float = 0.0  # one direction
    compute_capability: str = ""

    def peak(self, dtype: Dtype) -> float:
        """Dense peak in FLOP/s for `dtype`; formats the GPU lacks fall back to what emulates them.

        Raises
        ------
        InputError
            If the GPU has neither the format nor a fallback (e.g. fp8 on Volta).
        """
        for candidate in (dtype, *_PEAK_FALLBACK.get(dtype, ())):
            if candidate in self.peak_flop_per_s:
                return self.peak_flop_per_s[candidate]
        have = ", ".join(sorted(self.peak_flop_per_s))
        raise InputError(f"{self.title} has no {dtype} arithmetic; it has {have}")


# The same unit, or what libraries use instead; bf16 on parts without it runs as fp32.
_PEAK_FALLBACK: dict[Dtype, tuple[Dtype, ...]] = {
    Dtype.TF32: (Dtype.FP32,),
    Dtype.BF16: (Dtype.FP32,),
    Dtype.FP16: (Dtype.FP32,),
    Dtype.MXFP8: (Dtype.FP8,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One server (or one tray of a rack whose NVLink domain spans trays)."""

    name: str
    title: str
    gpu: Gpu
    num_gpus: int
    fabric: FabricKind
    fabric_bytes_per_s: float  # signalled rate per GPU, one direction
    nvlink_domain_gpus: int  # GPUs that reach each other over NVLink; > num_gpus in NVL72 racks
    mesh_links: tuple[tuple[int, ...], ...] = ()  # NVLink count between GPU i and j, meshes only
    num_nics: int = 0
    nic_bytes_per_s: float = 0.0  # per NIC, one direction
    network: str = "none"  # canonical id of the network its NICs speak
    gpus_per_pcie_switch: int = 0
    gpus_per_socket: int = 0  # 0: not known
    host_memory_bytes: float = 0.0
    host_memory_bytes_per_s: float = 0.0
    cpu: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What joins nodes. Port rates live on the node; this holds latency and what is achieved."""

    name: str
    title: str
    kind: NetworkKind
    port_bytes_per_s: float
    latency_s: float  # one way, one message
    step_latency_s: float  # one hop of a collective, Simple protocol
    achieved_fraction: float  # large-message bandwidth over the port rate
    has_gpudirect: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """`num_nodes` equal nodes, of which `gpus_per_node` GPUs each take part in the job."""

    node: Node
    network: Network
    num_nodes: int
    gpus_per_node: int
    node_bytes_per_s: float  # all NICs a node uses for the job, one direction, port rate
    notes: tuple[str, ...] = field(default=())  # assumptions made while resolving names

    @property
    def gpu(self) -> Gpu:
        """The accelerator of every node."""
        return self.node.gpu

    @property
    def num_gpus(self) -> int:
        """GPUs of the job."""
        return self.num_nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShape:
    """How the ranks of one communicator lie on the nodes.

    `ranks_per_node` ranks on each of `num_nodes` nodes; `concurrent` such groups run the same
    collective at the same time on the same nodes and share their NICs (e.g. the 8 data-parallel
    groups of 8 tensor-parallel ranks). `stride` is the distance of neighbours in GPU index within
    a node (a tensor-parallel group is 1, a data-parallel group beside tp 2 is 2).
    """

    ranks_per_node: int
    num_nodes: int
    concurrent: int = 1
    stride: int = 1

    @property
    def num_ranks(self) -> int:
        """Ranks of the communicator."""
        return self.ranks_per_node * self.num_nodes
