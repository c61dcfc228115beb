"""The analytic kernel model: each function turns works of one kind into seconds, (n, scenarios).

Closed forms with the constants of `constants`; no data are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfmodel.cost.kernels import constants as c
from perfmodel.cost.kernels.columns import Column, column, per_work
from perfmodel.cost.kernels.rates import (
    attention_flop_per_s,
    conv_flop_per_s,
    gemm_flop_per_s,
    unit_of,
)
from perfmodel.hardware.records import Dtype, Gpu
from perfmodel.program.work import (
    Attention,
    Convolution,
    Copy,
    EmbeddingLookup,
    Gemm,
    GroupedGemm,
    Memory,
    OptimizerStep,
    Pass,
)

_OUTPUT_BYTES = 2.0  # formats below 16 bits write their product in bf16


def gemm_seconds(works: Sequence[Gemm], gpu: Gpu) -> Column:
    """Dense and batched GEMM: compute with size-dependent efficiency, floored by its traffic."""
    m, n, k = (column([getattr(w, a) for w in works]) for a in "mnk")
    batch = column([w.batch for w in works])
    # The matrices of a batch fill each other's waves and pipelines.
    share = np.where(batch > 1, c.BATCHED_FILL, 1.0)
    compute = batch * _gemm_compute(
        m, n, k, _rate_column(works, gpu), _fill_column(works, gpu), share
    )
    traffic = batch * _gemm_bytes(m, n, k, works)
    bandwidth = c.GEMM_BANDWIDTH_FRACTION * gpu.memory_bytes_per_s
    return np.maximum(compute, traffic / bandwidth) + c.GEMM_FLOOR_S


def grouped_gemm_seconds(works: Sequence[GroupedGemm], gpu: Gpu) -> Column:
    """Experts of one rank: GEMMs of tokens/experts rows each, at a fraction of the dense rate."""
    experts, tokens = column([w.experts for w in works]), column([w.tokens for w in works])
    n, k = column([w.n for w in works]), column([w.k for w in works])
    m = tokens / experts
    rate = c.GROUPED_GEMM_FRACTION * _rate_column(works, gpu)
    compute = experts * _gemm_compute(m, n, k, rate, _fill_column(works, gpu), np.ones(1))
    traffic = experts * _gemm_bytes(m, n, k, works)
    bandwidth = c.GEMM_BANDWIDTH_FRACTION * gpu.memory_bytes_per_s
    return np.maximum(compute, traffic / bandwidth) + c.GEMM_FLOOR_S


def _rate_column(works: Sequence[Gemm] | Sequence[GroupedGemm], gpu: Gpu) -> Column:
    rates = {dtype: gemm_flop_per_s(gpu, dtype) for dtype in {w.dtype for w in works}}
    return per_work([rates[w.dtype] for w in works])


def _fill_column(works: Sequence[Gemm] | Sequence[GroupedGemm], gpu: Gpu) -> Column:
    """k0 of each work: steps of k that filling and draining a tile's pipeline costs."""
    on_vector_units = {d: unit_of(gpu, d) is Dtype.FP32 for d in {w.dtype for w in works}}
    return per_work([c.GEMM_K0_VECTOR if on_vector_units[w.dtype] else c.GEMM_K0 for w in works])


def _gemm_compute(
    m: Column, n: Column, k: Column, rate: Column, k0: Column, share: Column
) -> Column:
    """2mnk(1 + m0/m)(1 + n0/n)(1 + k0/k) / rate, of which `share` of m0, n0, k0 applies.

    Written as a product so that 0 rows cost 0.
    """
    padded = (m + share * c.GEMM_M0 * (m > 0)) * (n + share * c.GEMM_N0) * (k + share * k0)
    return 2.0 * padded / rate


def _gemm_bytes(
    m: Column, n: Column, k: Column, works: Sequence[Gemm] | Sequence[GroupedGemm]
) -> Column:
    size = per_work([w.dtype.num_bytes for w in works])
    return (m * k + k * n) * size + m * n * np.maximum(size, _OUTPUT_BYTES)


def attention_seconds(works: Sequence[Attention], gpu: Gpu) -> Column:
    """Fused attention: FLOPs over the rate of the kernel generation, floored by its traffic."""
    heads = column([w.batch for w in works]) * column([w.heads for w in works])
    kv_heads = column([w.batch for w in works]) * column([w.kv_heads for w in works])
    query, key = column([w.query_len for w in works]), column([w.key_len for w in works])
    dims = per_work([w.head_dim + w.value_dim for w in works])
    pairs = _attended_pairs(works, query, key)
    rates = {kernel: attention_flop_per_s(gpu, kernel) for kernel in {w.kernel for w in works}}
    rate = per_work([rates[w.kernel] for w in works])
    short = 1.0 + c.ATTENTION_S0 / np.maximum(key, 1.0)
    compute = 2.0 * heads * pairs * dims / rate * short
    size = per_work([w.dtype.num_bytes for w in works])
    traffic = size * dims * (heads * query + kv_heads * key)
    floor = traffic / (c.BANDWIDTH_FRACTION * gpu.memory_bytes_per_s)
    times = per_work([c.ATTENTION_BACKWARD if w.direction is Pass.BACKWARD else 1.0 for w in works])
    return np.maximum(compute, floor) * times + c.ATTENTION_FLOOR_S


def _attended_pairs(works: Sequence[Attention], query: Column, key: Column) -> Column:
    """Query-key pairs computed: half where causal, at most `window` keys a query."""
    causal = per_work([0.5 if w.causal else 1.0 for w in works])
    window = per_work([w.window or np.inf for w in works])
    return np.minimum(query * key * causal, query * window)


def memory_seconds(works: Sequence[Memory], gpu: Gpu) -> Column:
    """Bandwidth-bound kernels."""
    num_bytes, launches = column([w.num_bytes for w in works]), column([w.launches for w in works])
    bandwidth = c.BANDWIDTH_FRACTION * gpu.memory_bytes_per_s
    return num_bytes / bandwidth + launches * c.KERNEL_FLOOR_S


def optimizer_seconds(works: Sequence[OptimizerStep], gpu: Gpu) -> Column:
    """Parameter update: traffic over achieved bandwidth."""
    num_bytes = column([w.parameters for w in works]) * per_work(
        [w.bytes_per_parameter for w in works]
    )
    launches = column([w.launches for w in works])
    bandwidth = c.BANDWIDTH_FRACTION * gpu.memory_bytes_per_s
    return num_bytes / bandwidth + launches * c.KERNEL_FLOOR_S


def convolution_seconds(works: Sequence[Convolution], gpu: Gpu) -> Column:
    """Convolution in one direction: FLOPs over the achieved rate, floored by its own traffic."""
    batch = column([w.batch for w in works])
    rates: dict[tuple[Dtype, bool], float] = {
        key: conv_flop_per_s(gpu, key[0], channels_last=key[1])
        for key in {(w.dtype, w.channels_last) for w in works}
    }
    rate = per_work([rates[w.dtype, w.channels_last] for w in works])
    height = per_work([float(-(-w.height // w.stride)) for w in works])
    width = per_work([float(-(-w.width // w.stride)) for w in works])
    inputs = per_work([float(w.in_channels * w.height * w.width) for w in works])
    out_channels = per_work([float(w.out_channels) for w in works])
    taps = per_work([w.kernel**2 * w.in_channels / w.groups for w in works])
    outputs = out_channels * height * width
    size = per_work([w.dtype.num_bytes for w in works])
    traffic = size * (batch * (inputs + outputs) + out_channels * taps)
    floor = traffic / (c.GEMM_BANDWIDTH_FRACTION * gpu.memory_bytes_per_s)
    return np.maximum(2.0 * batch * outputs * taps / rate, floor) + c.KERNEL_FLOOR_S


def embedding_seconds(works: Sequence[EmbeddingLookup], gpu: Gpu) -> Column:
    """Fused lookups: rows by whole DRAM sectors over the bandwidth that random rows reach."""
    lookups, outputs = column([w.lookups for w in works]), column([w.outputs for w in works])
    row = column([w.row_bytes for w in works])
    row = np.ceil(row / c.SECTOR_BYTES) * c.SECTOR_BYTES
    pooled = outputs * column([w.output_bytes for w in works])
    missed = 1.0 - (1.0 - c.L2_ROW_COST) * column([w.cached_fraction for w in works])
    unique = column([w.unique_fraction for w in works])
    index = lookups * c.INDEX_BYTES
    forward = lookups * missed * row + pooled + index
    state = per_work([1.0 + c.ROW_STATE.get(w.optimizer, 1.0) for w in works])
    sort = per_work([0.0 if w.optimizer in c.ATOMIC_OPTIMIZERS else 1.0 for w in works])
    # Gradients are read once; atomic updates touch a row at every lookup (in L2 they collide, so
    # that the cache saves nothing), sorted ones once.
    touched = lookups * np.where(sort > 0, unique, 1.0)
    backward = (
        pooled + index + 2.0 * touched * row * state + sort * lookups * c.SORT_BYTES_PER_LOOKUP
    )
    is_backward = per_work([float(w.direction is Pass.BACKWARD) for w in works])
    traffic = np.where(is_backward > 0, backward, forward)
    bandwidth = c.EMBEDDING_BANDWIDTH_FRACTION * gpu.memory_bytes_per_s
    return traffic / bandwidth + column([w.launches for w in works]) * c.KERNEL_FLOOR_S


def copy_seconds(works: Sequence[Copy], gpu: Gpu) -> Column:
    """Copies over the host link."""
    link = gpu.pcie_bytes_per_s or c.DEFAULT_PCIE_BYTES_PER_S
    share = per_work(
        [
            c.COPY_FRACTION.get(w.direction, c.COPY_FRACTION["h2d"])
            * (1.0 if w.pinned else c.PAGEABLE_FRACTION)
            for w in works
        ]
    )
    return column([w.num_bytes for w in works]) / (share * link) + c.COPY_LATENCY_S
