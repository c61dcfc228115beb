"""Constants of the analytic kernel model, each with where it comes from.

"fit" = fitted on published training runs (74 groups; transformers unless said otherwise) with
group-wise cross-validation; the second number in a comment is how much the data narrowed the
prior (0 none, 1 all). "tables" = median share of the nominal peak that measured GEMMs above
200 GFLOP reach in the kernel tables (NeuSight, aiconfigurator, vidur), times 0.93: what the two
parts that have both (A100 0.78 / 0.77, H100 0.70 / 0.76) show on average for whole runs.
"""

from __future__ import annotations

from typing import Final

from perfmodel.hardware.records import Dtype, Gpu

# GEMM: flops / (peak * ceiling) * (1 + m0/m)(1 + n0/n)(1 + k0/k). Fit; the kernel tables alone
# give 80, 50, 100 on A100 and 7-10 % error on bf16 shapes above 4 GFLOP.
GEMM_M0: Final = 90.0
GEMM_N0: Final = 45.0
GEMM_K0: Final = 55.0
# Batched products keep this share of m0, n0, k0: 1 overestimates unfused attention in nine of ten
# sources of published runs by 2-5 %; fp32 tables (V100, bmm): 0.67 of peak at k = 48-128, 0.54 at
# n = 48-128, 0.78 for large ones.
BATCHED_FILL: Final = 0.5
# Vector units take a step of k about ten times longer, so that filling the pipeline costs fewer
# steps: fp32 tables alone give 10 on A100 and 31 on V100, launch time included.
GEMM_K0_VECTOR: Final = 15.0
GEMM_BANDWIDTH_FRACTION: Final = 0.75  # floor by bytes; fit
GEMM_FLOOR_S: Final = 4e-6  # launch to finish of an empty problem; fit

GEMM_CEILING: Final[dict[str, dict[Dtype, float]]] = {
    "pascal": {Dtype.FP32: 0.79, Dtype.FP16: 0.65},  # tables (P100); fp16 as volta
    "volta": {Dtype.FP16: 0.65, Dtype.FP32: 0.96},  # fit 0.7, weak
    "turing": {Dtype.FP16: 0.45, Dtype.FP32: 0.37},  # fp32 tables (T4, 70 W); fp16 same throttling
    "ampere": {
        Dtype.BF16: 0.78, Dtype.FP16: 0.78, Dtype.TF32: 0.76, Dtype.FP32: 0.91, Dtype.INT8: 0.60,
    },  # fit 0.8, 0.8, 0.55, weak; int8 as fp8 of hopper
    "ada": {
        Dtype.BF16: 0.65, Dtype.FP16: 0.65, Dtype.TF32: 0.65, Dtype.FP32: 0.55, Dtype.FP8: 0.55,
    },  # no training runs: between ampere and the power-capped L4 of the tables (fp32 0.27)
    "hopper": {
        Dtype.BF16: 0.70, Dtype.FP16: 0.70, Dtype.TF32: 0.68, Dtype.FP32: 0.72, Dtype.FP8: 0.58,
    },  # fit 0.7; tf32 = bf16 x the ratio of ampere; fp32 0.56; fp8 0.58
    "blackwell": {
        Dtype.BF16: 0.58, Dtype.FP16: 0.58, Dtype.TF32: 0.56, Dtype.FP32: 0.72, Dtype.FP8: 0.58,
    },  # bf16 fit on GB200 (B200 0.48; both weak: expert models), tables 0.60; fp8 fit 0.57-0.59
    "blackwell_workstation": {
        Dtype.BF16: 0.76, Dtype.FP16: 0.76, Dtype.TF32: 0.74, Dtype.FP32: 0.72, Dtype.FP8: 0.65,
    },  # tables (RTX PRO 6000)
    "cdna2": {Dtype.BF16: 0.50, Dtype.FP16: 0.50, Dtype.FP32: 0.55},  # tables fp32 (MI100, MI210)
}  # fmt: skip
MXFP8_OF_FP8: Final = 0.98  # rate against plain fp8; fit
NVFP4_OF_FP8: Final = 1.36  # rate against plain fp8; fit
GROUPED_GEMM_FRACTION: Final = 0.38  # of a dense GEMM of one expert's size; fit 0.75

# Fused attention: share of the half-precision peak, causal work counted half, times (1 + S0/s).
# The kernel generation sets the rate, not the GPU.
ATTENTION_S0: Final = 500.0
ATTENTION_BACKWARD: Final = 3.0  # time of backward over forward, recomputation included
ATTENTION_RATE: Final[dict[str, dict[str, float]]] = {
    "flash1": {"ampere": 0.37, "hopper": 0.20},  # fit 0.84, 0.8 (Triton kernels of 2023)
    "flash2": {"ampere": 0.50, "hopper": 0.34, "blackwell": 0.25},
    # ampere fit (weak); hopper: the FlashAttention-3 paper measures flash2 at 35-40 % of an H100
    # forward; blackwell: the same FLOP/s per SM as hopper
    "flash3": {"hopper": 0.57, "blackwell": 0.41},  # fit on 2025 stacks, weak
}
ATTENTION_GENERATION: Final[dict[str, str]] = {
    "flash1": "flash1", "triton_flash": "flash1", "triton": "flash1", "xformers": "flash1",
    "flash2": "flash2", "sdpa": "flash2", "flash3": "flash3", "flash4": "flash3",
    "cudnn": "flash3", "flex": "flash2",
}  # fmt: skip
DEFAULT_ATTENTION_GENERATION: Final = "flash2"
# Generations that an architecture lacks run as the best earlier one.
ATTENTION_FALLBACK: Final[dict[str, str]] = {"flash3": "flash2", "flash2": "flash1"}
ATTENTION_FLOOR_S: Final = 5e-6  # the shortest fused attention of the tables: 5 us in a CUDA graph

# Memory-bound kernels, share of nominal bandwidth. Elementwise 0.81: fit on recommenders (largest
# shift 0.02 when a group is left out).
BANDWIDTH_FRACTION: Final = 0.81
KERNEL_FLOOR_S: Final = 2e-6  # shortest kernel in a CUDA graph; recommender prior

# Convolution: share of peak on ResNet-50 training (fit: A100 fp16 0.61, V100 fp16 0.56, A100 tf32
# 0.52, fp32 0.91); other architectures keep their ratio to the GEMM ceiling (0.80 of it).
CONV_CEILING: Final[dict[tuple[str, Dtype], float]] = {
    ("ampere", Dtype.FP16): 0.61, ("ampere", Dtype.BF16): 0.61, ("ampere", Dtype.TF32): 0.52,
    ("volta", Dtype.FP16): 0.56, ("ampere", Dtype.FP32): 0.91, ("volta", Dtype.FP32): 0.91,
}  # fmt: skip
CONV_OF_GEMM: Final = 0.80
NCHW_SLOWDOWN: Final[dict[Dtype, float]] = {
    Dtype.FP16: 1.44, Dtype.BF16: 1.44, Dtype.TF32: 1.40,
}  # fit; fp32 runs NCHW natively  # fmt: skip

# Embedding rows: share of bandwidth, fit on recommenders (shift 0.03).
EMBEDDING_BANDWIDTH_FRACTION: Final = 0.61
SECTOR_BYTES: Final = 32.0  # DRAM access granularity of NVIDIA GPUs: narrow rows cost a whole one
INDEX_BYTES: Final = 8.0  # int64 indices
# A row that L2 holds, relative to one from DRAM: V100 reads L2 at 2.16 TB/s (Jia et al.,
# arXiv:1804.06826) against 0.9; A100 at 2.3 times V100's L2 (its white paper) against 2.0.
L2_ROW_COST: Final = 0.42
# Sorting and de-duplicating ids before an exact update: radix sort of (row, position) pairs,
# 8 passes of 8 bits over 12 bytes, read and written.
SORT_BYTES_PER_LOOKUP: Final = 8 * 12 * 2.0
# Optimizer state read and written with each distinct row, in multiples of the row.
ROW_STATE: Final[dict[str, float]] = {
    "sgd": 0.0, "exact_sgd": 0.0, "rowwise_adagrad": 0.0, "adagrad": 1.0, "adam": 2.0, "lamb": 2.0,
    "partial_rowwise_adam": 1.0,
}  # fmt: skip
ATOMIC_OPTIMIZERS: Final = ("sgd",)  # updates in place without sorting (atomic adds)

# Copies, share of the PCIe rate. Pinned: 25 of 31.5 GB/s, what bandwidth tests print on PCIe 4.
# Pageable copies are staged through a bounce buffer at about half of that. Zero-copy row gathers:
# 0.78 of PCIe 3 for aligned 128-byte reads (EMOGI, VLDB 2020).
COPY_FRACTION: Final[dict[str, float]] = {"h2d": 0.80, "d2h": 0.80, "uvm": 0.78}
PAGEABLE_FRACTION: Final = 0.5
COPY_LATENCY_S: Final = 10e-6  # driver and DMA start of one asynchronous copy
DEFAULT_PCIE_BYTES_PER_S: Final = 31.5e9  # PCIe 4 x16, where the catalogue has no value

# Spread of ln(true / predicted): residuals of the fits and of the kernel tables.
LOG_SIGMA: Final[dict[str, float]] = {
    "gemm": 0.10, "attention": 0.25, "memory": 0.15, "convolution": 0.20, "embedding": 0.20,
    "experts": 0.35, "optimizer": 0.15, "copy": 0.25,
}  # fmt: skip
UNKNOWN_ARCHITECTURE_LOG_SIGMA: Final = 0.25  # added in quadrature: GPU-left-out error of GEMMs


# Nearest architecture that has constants: same vendor, same kind of matrix unit.
_NEAREST: Final[dict[str, str]] = {
    "blackwell ultra": "blackwell", "grace hopper": "hopper", "ada lovelace": "ada",
    "maxwell": "pascal", "kepler": "pascal", "cdna1": "cdna2", "cdna": "cdna2", "cdna3": "cdna2",
    "cdna4": "cdna2", "xe2": "ada",
}  # fmt: skip
DEFAULT_ARCHITECTURE: Final = "ampere"


def architecture_of(gpu: Gpu) -> tuple[str, bool]:
    """Row of the tables above for a GPU, and whether it stands for the GPU's own architecture."""
    name = gpu.architecture
    if name.startswith("blackwell") and gpu.compute_capability.startswith("12"):
        return "blackwell_workstation", True
    if name in GEMM_CEILING:
        return name, True
    nearest = _NEAREST.get(name)
    return (nearest, name == "blackwell ultra") if nearest else (DEFAULT_ARCHITECTURE, False)
