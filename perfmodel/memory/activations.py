"""What backward needs from forward, counted operator by operator.

The rules are autograd's: an operator keeps the tensors its gradient formula reads, and a tensor
that two operators read is kept once. For a GPT layer they add up to the s b h (34 + 5 a s / h)
bytes of arXiv:2205.05198, equation 1, and to its tensor- and sequence-parallel forms.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perfmodel.hardware.records import Dtype
from perfmodel.plan.records import Plan, Recompute
from perfmodel.plan.stack import Stack
from perfmodel.workload.records import (
    AttentionCore,
    Block,
    Conv2d,
    Experts,
    Linear,
    Loss,
    Operator,
    Pointwise,
    Precision,
    Split,
    TokenEmbedding,
)

_MASK_BYTES = 1  # a dropout mask is kept as bytes
_STATISTIC_BYTES = 4  # log-sum-exp of fused attention, fp32
# Operators that keep their input. Those left out keep nothing of their own: a sum or a transpose
# needs no tensor, the output of relu or concat is the input of the next matrix product.
_KEEPS_INPUT = {
    "layer_norm", "rms_norm", "batch_norm", "gelu", "silu", "sigmoid", "tanh",
    "dot", "dcnv2", "gmf+mlp",
}  # fmt: skip
# Eager GPT layers make 50 and more passes per layer (notes/stacks.md, section 4); from there on a
# gated activation runs as two kernels, each of which keeps its operands.
_EAGER_PASSES = 50.0
# Fused RMSNorm kernels (Transformer Engine, apex, flash-attn) are usual from here on.
_FUSED_RMS_YEAR = 2024


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """Bytes per sample of one repeat of a block, on one rank.

    `kept` without the attention scores, `scores` those, `boundary` the input of the block,
    `working` the largest pair of input and output gradients during backward.
    """

    kept: float = 0.0
    scores: float = 0.0
    boundary: float = 0.0
    working: float = 0.0
    logits: float = 0.0

    def held(self, recompute: Recompute) -> float:
        """Bytes kept from forward to backward under `recompute`."""
        if recompute is Recompute.FULL:
            return self.boundary
        return self.kept + (self.scores if recompute is Recompute.NONE else 0.0)

    def transient(self, recompute: Recompute) -> float:
        """Bytes that exist only while one repeat runs backward."""
        again = {
            Recompute.NONE: 0.0,
            Recompute.SELECTIVE: self.scores,
            Recompute.FULL: self.kept + self.scores - self.boundary,
        }[recompute]
        return max(again, 0.0) + self.working


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How tensors are stored and divided."""

    activation_bytes: float
    linear_bytes: float  # of the input that a matrix product keeps
    norm_bytes: float
    shared: float  # divisor of what tensor parallelism replicates
    split: float  # divisor of what it divides
    rows: float  # divisor of rows: context parallelism
    is_fused_attention: bool
    is_eager: bool
    has_fused_rms_norm: bool
    logits_bytes: float
    logits_split: float  # divisor of the logits at the loss

    @classmethod
    def of(cls, precision: Precision, plan: Plan, stack: Stack) -> Rules:
        """Rules of a run."""
        activation = precision.activation.num_bytes
        small = precision.compute in (Dtype.FP8, Dtype.MXFP8, Dtype.NVFP4)
        eager = stack.elementwise_passes >= _EAGER_PASSES and not stack.is_compiled
        return cls(
            activation_bytes=activation,
            # Transformer Engine keeps the quantised input of a product instead of the 16-bit one.
            linear_bytes=precision.compute.num_bytes if small else activation,
            # torch autocast runs norms in fp32 and keeps their fp32 input.
            norm_bytes=4.0 if precision.is_autocast and eager else activation,
            shared=plan.tp if plan.sequence_parallel else 1,
            split=plan.tp,
            rows=plan.cp,
            is_fused_attention=stack.attention_kernel != "unfused",
            is_eager=eager,
            has_fused_rms_norm=not eager and (stack.is_known or stack.year >= _FUSED_RMS_YEAR),
            logits_bytes=_logits_bytes(precision, stack),
            logits_split=plan.tp if stack.options.get("splits_loss", False) else 1,
        )


def _logits_bytes(precision: Precision, stack: Stack) -> float:
    """Bytes per logit at the peak of the loss.

    A fused loss (option `fuses_loss`) writes the gradient over the logits; the copy is that of the
    shifted sequence. Megatron's vocabulary-parallel loss works in place on an fp32 copy: 16-bit
    logits, copy, 16-bit gradient make 2 + 4 + 2. torch's cross entropy, which needs the whole
    vocabulary on every rank (option `splits_loss` is off), keeps fp32 logits, log-softmax and
    gradient apart. A fp32 run has no 16-bit tensors.
    """
    small, fp32 = precision.activation.num_bytes, 4.0
    if stack.options.get("fuses_loss", False):
        return 2 * small
    in_place = bool(stack.options.get("splits_loss", False)) or stack.is_compiled
    wide = fp32 if in_place else 3 * fp32
    return wide + fp32 if small >= fp32 else 2 * small + wide


def saved_by_block(block: Block, rules: Rules) -> Saved:
    """What one repeat of `block` keeps per sample."""
    kept = scores = working = logits = 0.0
    previous: Operator | None = None
    for operator in block.operators:
        if not _shares_input(previous, operator):
            kept += _kept(operator, rules)
        if isinstance(operator, AttentionCore):
            scores += _scores(operator, rules)
        if isinstance(operator, Loss):
            logits += operator.rows * operator.classes * rules.logits_bytes / rules.logits_split
        working = max(working, _working(operator, rules))
        previous = operator
    return Saved(
        kept=kept / rules.rows,
        scores=scores / rules.rows,
        boundary=_boundary(block.operators, rules) / rules.rows,
        working=working / rules.rows,
        logits=logits / rules.rows,
    )


def _shares_input(previous: Operator | None, operator: Operator) -> bool:
    """Neighbouring products of one tensor (query, key, value; gate and up) keep it once."""
    return (
        isinstance(previous, Linear)
        and isinstance(operator, Linear)
        and (previous.rows, previous.in_features) == (operator.rows, operator.in_features)
        and previous.in_features != previous.out_features
    )


def _kept(operator: Operator, rules: Rules) -> float:
    if isinstance(operator, Linear):
        if not operator.is_trainable and not operator.is_logits:
            return 0.0  # a frozen weight needs its input for no gradient
        divisor = rules.split if operator.split is Split.ROW else rules.shared
        return operator.rows * operator.in_features * rules.linear_bytes / divisor
    if isinstance(operator, AttentionCore):
        return _attention_inputs(operator, rules)
    if isinstance(operator, Pointwise):
        return _pointwise(operator, rules)
    if isinstance(operator, Experts):
        routed = operator.rows * operator.top_k
        return routed * (operator.hidden + operator.ffn) * rules.linear_bytes
    if isinstance(operator, Conv2d):
        pixels = operator.height * operator.width
        return pixels * operator.in_channels * rules.activation_bytes
    if isinstance(operator, TokenEmbedding):
        return operator.rows * Dtype.INT64.num_bytes
    return 0.0


def _attention_inputs(core: AttentionCore, rules: Rules) -> float:
    query = core.query_len * core.heads * core.head_dim
    keys = core.key_len * core.kv_heads * (core.head_dim + core.value_dim)
    kept = (query + keys) * rules.activation_bytes
    if rules.is_fused_attention:
        kept += _STATISTIC_BYTES * core.heads * core.query_len
    return kept / rules.split


def _scores(core: AttentionCore, rules: Rules) -> float:
    """Softmax output and, with dropout, its mask and masked copy: 5 a s^2 bytes in 16 bits."""
    if rules.is_fused_attention:
        return 0.0
    per_score = rules.activation_bytes
    if core.has_dropout:
        per_score += _MASK_BYTES + rules.activation_bytes
    return core.heads * core.query_len * core.key_len * per_score / rules.split


def _pointwise(operator: Pointwise, rules: Rules) -> float:
    elements = operator.rows * operator.width
    divisor = rules.split if operator.split is not Split.NONE else rules.shared
    if operator.op == "swiglu":  # gate and up; eager keeps silu(gate) too
        return elements * (3 if rules.is_eager else 2) * rules.activation_bytes / divisor
    if operator.op == "dropout" or (operator.op == "residual" and operator.forward_passes > 3):
        return elements * _MASK_BYTES / divisor
    if operator.op in _KEEPS_INPUT:
        return elements * _input_bytes(operator.op, rules) / divisor
    if operator.op == "softmax":
        return elements * rules.activation_bytes / divisor
    return 0.0


def _input_bytes(op: str, rules: Rules) -> float:
    if op not in ("layer_norm", "rms_norm"):
        return rules.activation_bytes  # autocast leaves batch norm in 16 bits
    if op == "rms_norm" and not rules.has_fused_rms_norm:
        # Written out in Python: an fp32 copy of the input, and the normalised value before its
        # cast back, are both operands of products.
        return 4.0 + rules.activation_bytes
    return rules.norm_bytes


def _working(operator: Operator, rules: Rules) -> float:
    """Gradients of the output and the input of one operator."""
    size = rules.activation_bytes
    if isinstance(operator, Linear):
        if operator.is_logits:
            return operator.rows * operator.in_features * size
        inner = rules.split if operator.split is Split.ROW else 1.0
        outer = rules.split if operator.split is Split.COLUMN else 1.0
        return operator.rows * size * (operator.in_features / inner + operator.out_features / outer)
    if isinstance(operator, AttentionCore):
        scores = 0.0
        if not rules.is_fused_attention:
            scores = 2 * operator.heads * operator.query_len * operator.key_len * size
        return _attention_inputs(operator, rules) + scores / rules.split
    if isinstance(operator, Pointwise):
        divisor = rules.split if operator.split is not Split.NONE else rules.shared
        return 2 * operator.rows * operator.width * size / divisor
    if isinstance(operator, Experts):
        return operator.rows * operator.top_k * (operator.hidden + 2 * operator.ffn) * size
    if isinstance(operator, Conv2d):
        out = (operator.height // operator.stride) * (operator.width // operator.stride)
        inner = operator.height * operator.width * operator.in_channels
        return (inner + out * operator.out_channels) * size
    return 0.0


def _boundary(operators: Iterable[Operator], rules: Rules) -> float:
    """The input of a block: the tensor a checkpoint keeps and a pipeline stage sends."""
    for operator in operators:
        if isinstance(operator, Linear):
            elements = operator.rows * operator.in_features
        elif isinstance(operator, Pointwise):
            elements = operator.rows * operator.width
        elif isinstance(operator, TokenEmbedding):
            elements = operator.rows * operator.dim
        elif isinstance(operator, Conv2d):
            elements = operator.height * operator.width * operator.in_channels
        else:
            continue
        return float(elements * rules.activation_bytes / rules.shared)
    return 0.0
