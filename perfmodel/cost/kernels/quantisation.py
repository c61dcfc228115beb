"""Quantisation kernels: absolute maximum and scaling to fp8, memory-bound."""

from __future__ import annotations

import numpy as np

from perfmodel.cost.kernels import physics
from perfmodel.cost.kernels.rows import Rows

OPS = ("computescale", "scale_matrix")
SHAPE = ("rows", "cols")
_READ_BYTES = 2.0  # activations arrive in bf16


def describe(rows: Rows) -> physics.Work:
    """One pass: `computescale` reads bf16, `scale_matrix` reads bf16 and writes fp8."""
    r, c, device = rows.shape["rows"], rows.shape["cols"], rows.device
    written = np.where(rows.labels["op"] == "scale_matrix", rows.element_bytes, 0.0)
    num_bytes = r * c * (_READ_BYTES + written)
    compute = 4.0 * r * c / device.vector_flop_per_s
    features = {
        "in_cache": physics.cache_feature(num_bytes, device),
        "log_cols": np.log2(c), "align_cols": physics.alignment(c),
        "align_rows": physics.alignment(r),
        **physics.wave_features(r, device.num_sms, "row"),
        **physics.wave_features(np.ceil(r * c / 2048), device.num_sms, "block"),
    }  # fmt: skip
    sizes = {"log_rows": np.log2(r), "log_bytes": np.log2(num_bytes)}
    return physics.Work(compute_s=compute, num_bytes=num_bytes, features=features, sizes=sizes)
