"""Fields that catalogue entries may have: what a user's file is checked against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from perfmodel.hardware.entries import FABRIC_NAMES
from perfmodel.hardware.records import NetworkKind


class Form(StrEnum):
    """Kind of a value."""

    POSITIVE = "a positive number"
    NON_NEGATIVE = "a number >= 0"
    FRACTION = "a number above 0, at most 1.2"  # in-switch reduction can exceed the port rate
    COUNT = "a positive whole number"
    COUNT_OR_ZERO = "a whole number >= 0"
    TEXT = "text"
    TRUTH = "true or false"
    MATRIX = "a square matrix of link counts"
    IGNORED = "anything"  # for people


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    allowed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A nested mapping; `required` keys must be there, null stands for an absent section."""

    fields: Mapping[str, FieldForm]
    required: tuple[str, ...] = ()


FieldForm: TypeAlias = Form | Choice | Section

_PEAK_KEYS = (
    "fp64", "fp64_tensor", "fp32", "fp32_matrix", "tf32", "fp16", "fp16_tensor",
    "fp16_tensor_fp16_accumulate", "bf16_tensor", "fp8", "fp4", "int8",
)  # fmt: skip
_N, _P, _T, _I = Form.COUNT, Form.POSITIVE, Form.TEXT, Form.IGNORED

GPU = Section(
    fields={
        "name": _T, "vendor": _T, "architecture": _T, "silicon_family": _T,
        "compute_capability": _T, "devices_per_package": _N, "memory_gib": _P,
        "memory_reported_mib": _P, "memory_bandwidth_gb_s": _P, "sm_count": _N,
        "base_clock_mhz": _P, "boost_clock_mhz": _P, "l2_mib": _P, "l3_mib": _P, "tdp_w": _P,
        "smem_per_sm_kib": _P, "pcie_peer_to_peer": Form.TRUTH,
        "peak_tflops_dense": Section(dict.fromkeys(_PEAK_KEYS, _P), ("fp32",)),
        "nvlink": Section(
            {
                "generation": _N, "links": _N, "gb_s_one_direction": _P,
                "nccl_planning_gb_s_one_direction": _P,
            },
            ("generation", "gb_s_one_direction"),
        ),
        "infinity_fabric": Section(
            {"links": _N, "gb_s_one_direction_total": _P}, ("gb_s_one_direction_total",)
        ),
        "pcie": Section(
            {"generation": _N, "lanes": _N, "gb_s_one_direction": _P}, ("gb_s_one_direction",)
        ),
        "silicon_siblings": _I, "techpowerup_page": _I, "unsupported": _I, "notes": _I,
        "flop_per_clock_per_sm": _I,
    },
    required=(
        "memory_gib", "memory_bandwidth_gb_s", "sm_count", "boost_clock_mhz", "l2_mib", "tdp_w",
        "peak_tflops_dense",
    ),
)  # fmt: skip

_Z = Form.NON_NEGATIVE
NODE = Section(
    fields={
        "name": _T,
        "gpus": Section(
            {"count": _N, "gpu": _T, "trays": _N, "gpus_per_os_node": _N}, ("count", "gpu")
        ),
        "fabric": Section(
            {
                "type": Choice(FABRIC_NAMES), "topology": _T, "nvlink_matrix_links": Form.MATRIX,
                "per_gpu_gb_s_one_direction": _Z, "per_pair_gb_s_one_direction": _Z,
                "per_link_gb_s_one_direction": _Z, "nvswitch_count": Form.COUNT_OR_ZERO,
                "nvswitch_trays": _N, "p2p": Form.TRUTH, "aggregate_tb_s_both_directions": _P,
                "host_link_gb_s_one_direction": _P, "measured_h2d_gb_s": _P,
                "measured_d2h_gb_s": _P, "measured_p2p_gb_s_one_direction": _P,
            },
            ("type",),
        ),
        "nics": Section(
            {
                "count": Form.COUNT_OR_ZERO, "count_per_tray": _N, "gb_per_s_each_bits": _P,
                "type": _T, "rail": _T, "node_gb_s_one_direction": _P,
                "tray_gb_s_one_direction": _P,
            },
            ("gb_per_s_each_bits", "type"),
        ),
        "host": Section(
            {
                "cpu": _T, "host_memory_gib": _P, "host_memory_gb_s": _P,
                "pcie_switches": Form.COUNT_OR_ZERO, "gpus_per_pcie_switch": Form.COUNT_OR_ZERO,
                "nics_per_pcie_switch": Form.COUNT_OR_ZERO, "vcpus": _N, "nodes": _N,
                "gpudirect_rdma": Form.TRUTH, "host_pcie_gt_s": _P, "gpu_pcie_total_gb_s": _P,
                "host_link": _T, "host_link_gb_s_one_direction_per_cpu": _P,
            }
        ),
        "notes": _I,
    },
    required=("gpus", "fabric"),
)  # fmt: skip

NETWORK = Section(
    fields={
        "name": _T, "kind": Choice(tuple(k for k in NetworkKind if k is not NetworkKind.NONE)),
        "rate_gb_per_s_bits": _P, "rate_gb_s_one_direction": _P, "latency_us_one_way": _Z,
        "collective_step_latency_us": _Z, "achieved_fraction": Form.FRACTION,
        "gpudirect_rdma": Form.TRUTH, "notes": _I,
    },
    required=(
        "kind", "rate_gb_per_s_bits", "latency_us_one_way", "collective_step_latency_us",
        "achieved_fraction", "gpudirect_rdma",
    ),
)  # fmt: skip

SECTIONS: dict[str, Section] = {"gpus": GPU, "nodes": NODE, "networks": NETWORK}
