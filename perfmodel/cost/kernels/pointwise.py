"""Elementwise, norms, softmax and dropout: physics and features."""

from __future__ import annotations

import numpy as np

from perfmodel.cost.kernels import physics
from perfmodel.cost.kernels.rows import Rows

ELEMENTWISE = (
    "add", "mul", "div", "pow", "addu", "mulu", "divu", "powu", "tanh", "relu", "gelu", "silu_mul",
    "rope", "dropout",
)  # fmt: skip
NORMS = ("layernorm", "rmsnorm")
SOFTMAX = ("softmax",)
SHAPE = ("rows", "cols")

# Passes over rows x cols elements, read and written. rope reads and writes queries and keys in
# place; silu_mul reads two halves and writes one; dropout also writes a one-byte mask.
_PASSES = {
    "add": 3.0, "mul": 3.0, "div": 3.0, "pow": 3.0, "silu_mul": 3.0, "dropout": 2.25,
}  # fmt: skip
_DEFAULT_PASSES = 2.0
# Arithmetic per element on the vector units: transcendental functions are what can bind here.
_FLOP = {"tanh": 20.0, "gelu": 24.0, "pow": 40.0, "powu": 40.0, "div": 8.0, "softmax": 24.0}
_DEFAULT_FLOP = 4.0


def describe(rows: Rows) -> physics.Work:
    """Traffic of one pass over rows x cols elements."""
    r, c = rows.shape["rows"], rows.shape["cols"]
    ops, inverse = np.unique(rows.labels["op"].astype(str), return_inverse=True)
    passes = np.array([_PASSES.get(o, _DEFAULT_PASSES) for o in ops])[inverse]
    flop = np.array([_FLOP.get(o, _DEFAULT_FLOP) for o in ops])[inverse]
    elements, device = r * c, rows.device
    num_bytes = passes * elements * rows.element_bytes
    compute = flop * elements / device.vector_flop_per_s
    features = {
        "intensity": np.log2(compute / (num_bytes / device.bytes_per_s)),
        "in_cache": physics.cache_feature(num_bytes, device),
        "output_in_cache": physics.cache_feature(elements * rows.element_bytes, device),
        "log_cols": np.log2(c), "align_cols": physics.alignment(c),
        "align_all": physics.alignment(np.minimum(elements, 2.0**62)),
        "pad_cols": physics.padding(c, 1024), "pad_warp": physics.padding(c, 32),
        "pad_power": 2.0 ** np.ceil(np.log2(c)) / c,
        **physics.wave_features(np.ceil(elements / 512), device.num_sms, "block"),
        **physics.wave_features(r, device.num_sms, "row"),
    }  # fmt: skip
    sizes = {"log_rows": np.log2(r), "log_bytes": np.log2(num_bytes), "cols": c}
    return physics.Work(compute_s=compute, num_bytes=num_bytes, features=features, sizes=sizes)
