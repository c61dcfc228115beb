"""Backward kernels: GEMMs as their two transposed GEMMs, the rest as a ratio of forward.

No source measures backward kernels alone; whole fp32 training steps of NeuSight do (V100, A100, L4,
MI100, MI210, MI250), and the ratios below are their medians over kernels above 60 us.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.kernels.learned import LearnedModel, Prediction
from perfmodel.cost.kernels.rows import Rows, Vector

FORWARD, BACKWARD, ACCUMULATE = "fwd", "bwd", "wgrad_accumulate"
DIRECTIONS: Final = (FORWARD, BACKWARD, ACCUMULATE)
"""What can be priced; `wgrad_accumulate` adds a weight gradient to the one in memory."""

# Backward over forward by operator, medians of NVIDIA parts (mul, div by passes: one for a scalar
# operand, two for two); attention and experts have no data:
# 2.5 times the FLOPs at five sixths of the rate, and twice the GEMMs of forward.
_RATIO: Final[dict[str, float]] = {
    "softmax": 2.7, "layernorm": 2.1, "rmsnorm": 2.1, "dropout": 2.5, "gelu": 1.5, "tanh": 1.4,
    "relu": 1.5, "embedding": 4.8, "attention": 3.0, "moe": 2.0, "conv2d": 2.0, "add": 0.07,
    "addu": 0.07, "mulu": 1.0, "divu": 1.0, "mul": 2.0, "div": 2.0, "powu": 2.5, "pow": 2.5,
}  # fmt: skip
_DEFAULT_RATIO: Final = 1.5  # one more pass over the data than forward: gradient in, two out
_ACCUMULATE_PASSES: Final = 3.0  # gradient and sum read, sum written
_ACCUMULATE_SHARE: Final = 0.8  # of bandwidth; the elementwise share of `constants`
_ACCUMULATE_FLOOR_S: Final = 15e-6  # eager kernels inside steps: shortest of the 164 measured
# Spread of the ratios over GPUs and shapes in ln, added to that of forward.
_EXTRA_HALF_WIDTH: Final = 0.25


def predict(model: LearnedModel, rows: Rows) -> Prediction:
    """Times of `rows` in the direction each is labelled with."""
    direction = rows.labels["direction"]
    if np.all(direction == FORWARD):
        return model.predict(rows)
    out = Prediction(
        log_seconds=np.empty(len(rows)),
        half_width=np.empty(len(rows)),
        is_transfer=np.zeros(len(rows), dtype=bool),
    )
    for name, price in ((FORWARD, _forward), (BACKWARD, _backward), (ACCUMULATE, _accumulate)):
        mine = np.asarray(direction == name, dtype=bool)
        if mine.any():
            part = price(model, rows.take(mine))
            out.log_seconds[mine] = part.log_seconds
            out.half_width[mine] = part.half_width
            out.is_transfer[mine] = part.is_transfer
    return out


def _forward(model: LearnedModel, rows: Rows) -> Prediction:
    return model.predict(rows)


def _backward(model: LearnedModel, rows: Rows) -> Prediction:
    if model.family.name == "gemm":
        return _gemm_backward(model, rows)
    forward = model.predict(rows)
    ratio = np.array([_RATIO.get(op, _DEFAULT_RATIO) for op in rows.labels["op"]])
    return _widened(forward, forward.log_seconds + np.log(ratio))


def _gemm_backward(model: LearnedModel, rows: Rows) -> Prediction:
    """C = A B gives dA = dC B^T, an m x k product over n, and dB = A^T dC, k x n over m."""
    m, n, k = (rows.shape[c] for c in ("m", "n", "k"))
    inputs = model.predict(_reshaped(rows, m, k, n))
    weights = model.predict(_reshaped(rows, k, n, m))
    total = np.logaddexp(inputs.log_seconds, weights.log_seconds)
    both = Prediction(
        log_seconds=total,
        half_width=np.maximum(inputs.half_width, weights.half_width),
        is_transfer=inputs.is_transfer,
    )
    return _widened(both, total)


def _reshaped(rows: Rows, m: Vector, n: Vector, k: Vector) -> Rows:
    return Rows(
        shape={**rows.shape, "m": m, "n": n, "k": k}, device=rows.device,
        element_bytes=rows.element_bytes, labels=rows.labels,
    )  # fmt: skip


def _accumulate(model: LearnedModel, rows: Rows) -> Prediction:
    """Traffic of adding a weight gradient."""
    forward = model.predict(rows)
    bandwidth = _ACCUMULATE_SHARE * rows.device.bytes_per_s
    moved = _ACCUMULATE_PASSES * _weights(rows) * rows.element_bytes
    return _widened(forward, np.log(moved / bandwidth + _ACCUMULATE_FLOOR_S))


def _weights(rows: Rows) -> Vector:
    """Elements of the weight of each row."""
    shape = rows.shape
    if "k" in shape:
        return shape["n"] * shape["k"]
    if "rows_per_table" in shape:
        return shape["num_tables"] * shape["rows_per_table"] * shape["dim"]
    if "out_channels" in shape:
        return shape["in_channels"] * shape["out_channels"] * shape["kernel_size"] ** 2
    return shape.get("cols", np.ones(len(rows)))


def _widened(forward: Prediction, log_seconds: NDArray[np.float64]) -> Prediction:
    return Prediction(
        log_seconds=log_seconds,
        half_width=np.hypot(forward.half_width, _EXTRA_HALF_WIDTH),
        is_transfer=forward.is_transfer,
    )
