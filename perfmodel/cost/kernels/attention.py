"""Fused attention: physics and features."""

from __future__ import annotations

import numpy as np

from perfmodel.cost.kernels import physics
from perfmodel.cost.kernels.rows import Device, Rows, Vector

OPS = ("attention",)
SHAPE = ("causal", "batch", "seq_len", "num_heads", "num_kv_heads", "head_dim", "window")

_QUERY_TILES = ((128, 1, 1.0), (64, 1, 0.8))  # query rows of one block: flash kernels use both
_KEY_TAIL = 64.0  # one key tile of prologue, epilogue and masking
_EXPONENTIALS_PER_CLOCK = 16.0  # of one SM: special function units, every generation since Volta
_EXPOSED = 0.5  # share of them that matrix work does not hide; with the next, by cross-validation
_BLOCK_CLOCKS = 2500.0  # start, first loads and end of one block


def describe(rows: Rows) -> physics.Work:
    """Work of self-attention over `seq_len` tokens; causal counts half, windows what they see."""
    s, batch = rows.shape["seq_len"], rows.shape["batch"]
    heads, kv_heads = rows.shape["num_heads"], rows.shape["num_kv_heads"]
    dim, window, causal = rows.shape["head_dim"], rows.shape["window"], rows.shape["causal"]
    device, size = rows.device, rows.element_bytes
    keys = np.where(causal > 0, (s + 1.0) / 2.0, s)
    keys = np.where(window > 0, np.minimum(keys, window), keys)
    depth = keys + _KEY_TAIL
    blocks = np.ceil(s / 64) * batch * heads
    exponentials_per_s = device.num_sms * device.clock_hz * _EXPONENTIALS_PER_CLOCK
    exponentials = 64.0 * blocks * depth / exponentials_per_s
    products = physics.tiled_compute(
        s, np.ones_like(s), 4.0 * depth * dim, batch * heads, device, _QUERY_TILES
    )
    compute = products + _EXPOSED * exponentials + _start_s(blocks, device)
    queries = batch * heads * s * dim
    num_bytes = queries * (size + 2.0) + 2.0 * batch * kv_heads * s * dim * size
    flop_s = 4.0 * batch * heads * s * keys * dim / device.peak_flop_per_s
    features = {
        "intensity": np.log2(flop_s / (num_bytes / device.bytes_per_s)),
        "tiling_loss": np.log2(compute / flop_s),
        "exponentials": np.log2(exponentials / flop_s),
        "in_cache": physics.cache_feature(num_bytes, device),
        "kv_in_cache": physics.cache_feature(2.0 * batch * kv_heads * s * dim * size, device),
        **physics.logs(
            seq=s, keys=keys, dim=dim, batch=batch, heads=heads, group=heads / kv_heads
        ),
        "causal": causal, "windowed": (window > 0) * 1.0,
        "window_share": np.where(window > 0, np.minimum(window / s, 1.0), 1.0),
        "align_seq": physics.alignment(s),
        **physics.wave_features(np.ceil(s / 128) * batch * heads, device.num_sms, "tile128"),
        **physics.wave_features(blocks, device.num_sms, "tile64"),
    }  # fmt: skip
    flop = batch * heads * s * keys * dim
    sizes = physics.logs(
        kv_heads=kv_heads, heads_batch=heads * batch, tokens=batch * s, flop=flop, bytes=num_bytes
    )
    num_bytes = physics.warm_bytes(num_bytes, device)
    return physics.Work(compute_s=compute, num_bytes=num_bytes, features=features, sizes=sizes)


def _start_s(blocks: Vector, device: Device) -> Vector:
    """Seconds that the waves of blocks need to start and end."""
    return _BLOCK_CLOCKS / device.clock_hz * np.ceil(blocks / device.num_sms)
