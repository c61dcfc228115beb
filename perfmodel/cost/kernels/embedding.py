"""Embedding lookups: physics and features."""

from __future__ import annotations

import numpy as np

from perfmodel.cost.kernels import physics
from perfmodel.cost.kernels.rows import Rows

OPS = ("embedding",)
SHAPE = ("num_tables", "rows_per_table", "dim", "batch", "pooling")
_INDEX_BYTES = 8.0


def describe(rows: Rows) -> physics.Work:
    """Rows gathered and written: batch x pooling lookups of `dim` elements in each table."""
    tables, height, dim = (rows.shape[c] for c in ("num_tables", "rows_per_table", "dim"))
    batch, pooling = rows.shape["batch"], np.maximum(rows.shape["pooling"], 1.0)
    device, size = rows.device, rows.element_bytes
    lookups = tables * batch * pooling
    num_bytes = lookups * (dim * size + _INDEX_BYTES) + tables * batch * dim * size
    table_bytes = tables * height * dim * size
    features = {
        "in_cache": physics.cache_feature(num_bytes, device),
        "table_in_cache": physics.cache_feature(table_bytes, device),
        "log_dim": np.log2(dim), "log_pooling": np.log2(pooling),
        "reuse": np.log2(batch * pooling / height),
        **physics.wave_features(np.ceil(lookups * dim / 1024), device.num_sms, "block"),
    }  # fmt: skip
    sizes = {
        "log_batch": np.log2(batch), "log_height": np.log2(height), "log_bytes": np.log2(num_bytes)
    }  # fmt: skip
    compute = 2.0 * lookups * dim / device.vector_flop_per_s
    return physics.Work(compute_s=compute, num_bytes=num_bytes, features=features, sizes=sizes)
