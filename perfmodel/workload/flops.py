"""Floating-point operations of a model: what MFU divides by. Multiply and add count as two."""

from __future__ import annotations

from perfmodel.workload.records import (
    AttentionCore,
    Conv2d,
    Experts,
    Linear,
    Model,
    Operator,
)


def model_flops(model: Model) -> float:
    """Operations of forward and backward for one sample, without recomputation.

    Matrix products, convolutions and attention products only, as usual for MFU (PaLM, appendix
    B); attention counts the keys a query really attends to.
    """
    return sum(
        block.repeat * sum(_training_flops(op) for op in block.operators)
        for block in model.blocks()
    )


def forward_flops(operator: Operator) -> float:
    """Operations of one operator's forward for one sample."""
    match operator:
        case Linear():
            return 2.0 * operator.rows * operator.in_features * operator.out_features
        case AttentionCore():
            keys = operator.key_len * (0.5 if operator.is_causal else 1.0)
            keys = min(keys, operator.window or keys)
            width = operator.head_dim + operator.value_dim
            return 2.0 * operator.heads * operator.query_len * keys * width
        case Experts():
            products = 3 if operator.is_gated else 2
            return 2.0 * operator.rows * operator.top_k * operator.hidden * operator.ffn * products
        case Conv2d():
            pixels = -(-operator.height // operator.stride) * -(-operator.width // operator.stride)
            taps = operator.kernel**2 * operator.in_channels / operator.groups
            return 2.0 * pixels * operator.out_channels * taps
    return 0.0


def _training_flops(operator: Operator) -> float:
    times = 3.0
    if isinstance(operator, Linear):
        times = 1.0 + operator.has_input_gradient + operator.is_trainable
    elif isinstance(operator, Conv2d):
        times = 2.0 + operator.has_input_gradient
    return times * forward_flops(operator)
