"""Dense and batched GEMM: physics and features."""

from __future__ import annotations

import numpy as np

from perfmodel.cost.kernels import physics
from perfmodel.cost.kernels.rows import Rows, Vector

OPS = ("linear", "bmm")
SHAPE = ("batch", "m", "n", "k")

# Tilings of cuBLAS and CUTLASS and the share of the peak an SM reaches with each: smaller tiles
# load more operands per product. Shares from the large-shape limits of the kernel tables.
_TENSOR_TILES = (
    (256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.95), (128, 64, 0.8), (64, 128, 0.8),
    (64, 64, 0.6), (64, 32, 0.4), (32, 64, 0.4), (16, 64, 0.25),
)  # fmt: skip
_VECTOR_TILES = (
    (256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.97), (128, 64, 0.62), (64, 128, 0.62),
    (64, 64, 0.58), (128, 32, 0.36), (32, 128, 0.36), (32, 32, 0.33), (128, 16, 0.19),
    (16, 128, 0.19), (128, 8, 0.11), (8, 128, 0.11),
)  # fmt: skip
# Prologue and epilogue of a tile in steps of k; clocks a wave needs besides; least clocks for 64
# steps of k, since matrix units outrun the latency of their loads. By cross-validation on GPUs.
_TENSOR_OVERHEAD = (64.0, 1000.0, 350.0)
_VECTOR_OVERHEAD = (8.0, 0.0, 0.0)
_SPLIT_K = (1.0, 2.0, 4.0, 8.0)  # ways to split k when the output has few tiles
_SPLIT_COST = 0.95  # share of the speed left per doubling: partial sums are written and added


def describe(rows: Rows) -> physics.Work:
    """Work of GEMMs C[batch, m, n] = A[batch, m, k] B[batch, k, n]."""
    m, n, k, batch = (rows.shape[c] for c in ("m", "n", "k", "batch"))
    size, device = rows.element_bytes, rows.device
    operands = batch * (m * k + k * n) * size
    num_bytes = operands + batch * m * n * np.maximum(size, 2.0)
    is_vector = np.asarray(rows.labels["dtype"] == "fp32", dtype=bool)
    compute = np.where(
        is_vector,
        _best(rows, _VECTOR_TILES, _VECTOR_OVERHEAD),
        _best(rows, _TENSOR_TILES, _TENSOR_OVERHEAD),
    )
    flop_s = 2.0 * batch * m * n * k / device.peak_flop_per_s
    small, large = m * 1.0, n * 1.0
    blocks = np.ceil(m / 128) * np.ceil(n / 128) * batch
    features = {
        "intensity": np.log2(flop_s / (num_bytes / device.bytes_per_s)),
        "tiling_loss": np.log2(compute / flop_s),
        "in_cache": physics.cache_feature(num_bytes, device),
        "operands_in_cache": physics.cache_feature(operands, device),
        "log_m": np.log2(m), "log_n": np.log2(n), "log_k": np.log2(k), "log_batch": np.log2(batch),
        "align_m": physics.alignment(small), "align_n": physics.alignment(large),
        "align_k": physics.alignment(k),
        "pad_m": physics.padding(m, 64), "pad_n": physics.padding(n, 64),
        **physics.wave_features(blocks, device.num_sms, "tile128"),
        **physics.wave_features(
            np.ceil(m / 256) * np.ceil(n / 128) * batch, device.num_sms, "tile256"
        ),
        **physics.wave_features(
            np.ceil(m / 64) * np.ceil(n / 64) * batch, device.num_sms, "tile64"
        ),
    }  # fmt: skip
    sizes = {
        "log_mn": np.log2(m * n * batch), "log_kn": np.log2(k * n), "log_mk": np.log2(m * k),
        "log_flop": np.log2(m * n * k * batch), "log_bytes": np.log2(num_bytes),
    }  # fmt: skip
    return physics.Work(compute_s=compute, num_bytes=num_bytes, features=features, sizes=sizes)


def _best(
    rows: Rows, tiles: tuple[tuple[int, int, float], ...], overhead: tuple[float, float, float]
) -> Vector:
    """Seconds of the best tiling and split of k."""
    k_tail, wave_clocks, step_clocks = overhead
    m, n, k, batch = (rows.shape[c] for c in ("m", "n", "k", "batch"))
    device = rows.device
    best = np.full(m.shape, np.inf)
    for split in _SPLIT_K:
        depth = np.ceil(k / split) + k_tail
        one = physics.tiled_compute(
            m, n, 2.0 * depth, batch * split, device, tiles,
            least_s=depth / 64.0 * step_clocks / device.clock_hz,
        )  # fmt: skip
        best = np.minimum(best, one / _SPLIT_COST ** np.log2(split))
    waves = np.ceil(np.ceil(m / 128) * np.ceil(n / 128) * batch / device.num_sms)
    return best + wave_clocks / device.clock_hz * waves
