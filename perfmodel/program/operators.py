"""From operators of the graph to work records: what one rank computes for one micro-batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from perfmodel.hardware.records import Dtype
from perfmodel.plan.stack import Stack
from perfmodel.program.builder import Item
from perfmodel.program.work import (
    Attention,
    Cause,
    Gemm,
    GroupedGemm,
    Memory,
    Pass,
)
from perfmodel.workload.records import (
    AttentionCore,
    Experts,
    Linear,
    Loss,
    Operator,
    Pointwise,
    Precision,
    Split,
    TokenEmbedding,
)

# Eager traffic of a GPT layer with ffn = 4 hidden, in passes over tokens x hidden, counted from
# the graph of workload.transformer: norms 14, residuals with dropout 22, head split 12, gelu 20.
# A stack states its own count for that layer; other layers scale in proportion.
EAGER_LAYER_PASSES = 68.0
# Share of unfused attention traffic that is forward: scale, mask, softmax, dropout against the
# backward of the same, which also reads the saved probabilities.
_ATTENTION_FORWARD_SHARE = 0.4
_LOGITS_FORWARD_SHARE = 0.5
_LOGITS_UNIT_BYTES = 2.0  # stacks state logits passes in 2-byte units
# 8- and 4-bit products cover the linears of the layers only; the head stays in 16 bits
# (Transformer Engine recipes).
_LOW_PRECISION = {Dtype.FP8, Dtype.MXFP8, Dtype.NVFP4}
# RMSNorm in operators (transformers modeling_llama.py), bytes an element: to fp32 2+4, square
# 4+4, mean 4, scale 4+4, back 4+2, weight 2+2: 36, or 18 passes of 16 bits; its backward 68 bytes.
_EAGER_RMS_FORWARD = 18.0
_EAGER_RMS_BACKWARD = 34.0
_EAGER_RMS_KERNELS = 6.0
_EAGER_ATTENTION_KERNELS = 5.0  # scale, mask, softmax, dropout, layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What part of every operator one rank computes in one pass.

    `samples` per micro-batch (fill included); tensor-, context- and expert-parallel sizes.
    """

    samples: float
    tp: int = 1
    cp: int = 1
    ep: int = 1
    sequence_parallel: bool = False

    @property
    def pointwise_divisor(self) -> float:
        """Ranks that share a replicated operator: all of tp with sequence parallelism, else 1."""
        return self.tp if self.sequence_parallel else 1


@dataclass(slots=True)
class Stretch:
    """Work items of a stretch of operators and the operators a framework issues for them."""

    items: list[Item] = field(default_factory=list)
    num_ops: float = 0.0

    def add(self, item: Item, ops: float = 1.0) -> None:
        """Append one item issued as `ops` operators."""
        self.items.append(item)
        self.num_ops += ops

    def scaled(self, count: float) -> Stretch:
        """The same stretch `count` times."""
        items: list[Item] = []
        for item in self.items:
            work, times = item if isinstance(item, tuple) else (item, 1.0)
            items.append((work, times * count))
        return Stretch(items, self.num_ops * count)

    def extend(self, other: Stretch) -> None:
        """Append another stretch."""
        self.items.extend(other.items)
        self.num_ops += other.num_ops


class OperatorLowering:
    """Lowers operators for one (stack, precision, share)."""

    def __init__(self, stack: Stack, precision: Precision, share: Share) -> None:
        self.stack = stack
        self.precision = precision
        self.share = share
        self.activation_bytes = precision.activation.num_bytes
        self.fusion = stack.elementwise_passes / EAGER_LAYER_PASSES

    def forward(self, operators: Iterable[Operator]) -> Stretch:
        """Forward of `operators` in order."""
        out = Stretch()
        for operator in operators:
            self._lower(operator, out, Pass.FORWARD)
        return out

    def backward(self, operators: Iterable[Operator]) -> Stretch:
        """Backward of `operators`, in reverse order."""
        out = Stretch()
        for operator in reversed(tuple(operators)):
            self._lower(operator, out, Pass.BACKWARD)
        return out

    def attention_forward(self, operators: Iterable[Operator]) -> Stretch:
        """Forward of the attention cores only: what selective recomputation repeats."""
        return self.forward(o for o in operators if isinstance(o, AttentionCore))

    def _lower(self, operator: Operator, out: Stretch, direction: Pass) -> None:
        match operator:
            case Linear():
                self._linear(operator, out, direction)
            case AttentionCore():
                self._attention(operator, out, direction)
            case Pointwise():
                self._pointwise(operator, out, direction)
            case Experts():
                self._experts(operator, out, direction)
            case TokenEmbedding():
                self._embedding(operator, out, direction)
            case Loss():
                self._loss(operator, out, direction)

    def _rows(self, rows: float) -> float:
        return rows * self.share.samples / self.share.cp

    def _linear(self, op: Linear, out: Stretch, direction: Pass) -> None:
        tp = self.share.tp
        rows = self._rows(op.rows)
        inner = op.in_features / tp if op.split is Split.ROW else op.in_features
        outer = op.out_features / tp if op.split in (Split.COLUMN, Split.VOCAB) else op.out_features
        dtype = self.precision.compute
        if dtype in _LOW_PRECISION and op.is_logits:
            dtype = self.precision.activation
        if direction is Pass.FORWARD:
            out.add(Gemm(m=rows, n=outer, k=inner, dtype=dtype))
            return
        if op.has_input_gradient:
            out.add(Gemm(m=rows, n=inner, k=outer, dtype=dtype))
        if op.is_trainable:
            out.add(Gemm(m=inner, n=outer, k=rows, dtype=dtype))

    def _attention(self, op: AttentionCore, out: Stretch, direction: Pass) -> None:
        if self.stack.attention_kernel != "unfused":
            # a ring of context-parallel ranks runs one kernel for each part of the keys
            steps = float(self.share.cp)
            out.add((self._fused_attention(op, direction), steps), ops=steps)
            return
        batch = self.share.samples * op.heads / self.share.tp
        query, key = op.query_len / self.share.cp, op.key_len
        dtype = self.precision.activation
        if self.precision.compute is Dtype.TF32:
            dtype = Dtype.TF32
        products: tuple[tuple[float, float, float], ...]
        products = ((query, key, op.head_dim), (query, op.value_dim, key))
        if direction is Pass.BACKWARD:
            products = (
                (query, key, op.value_dim),  # gradient of the probabilities
                (key, op.value_dim, query),  # of the values
                (query, op.head_dim, key),  # of the queries
                (key, op.head_dim, query),  # of the keys
            )
        for m, n, k in products:
            out.add(Gemm(m=m, n=n, k=k, batch=batch, dtype=dtype, cause=Cause.ATTENTION))
        forward = _ATTENTION_FORWARD_SHARE
        share = forward if direction is Pass.FORWARD else 1 - forward
        traffic = self.stack.unfused_attention_passes * share * batch * query * key
        out.add(
            Memory(
                num_bytes=traffic * self.activation_bytes,
                launches=_EAGER_ATTENTION_KERNELS,
                op="softmax",
                dtype=dtype,
                cause=Cause.ATTENTION,
            ),
            ops=_EAGER_ATTENTION_KERNELS,
        )

    def _fused_attention(self, op: AttentionCore, direction: Pass) -> Attention:
        return Attention(
            batch=self.share.samples,
            heads=op.heads / self.share.tp,
            kv_heads=max(1.0, op.kv_heads / self.share.tp),
            query_len=op.query_len / self.share.cp,
            key_len=op.key_len / self.share.cp,
            head_dim=op.head_dim,
            value_dim=op.value_dim,
            causal=op.is_causal,
            window=op.window,
            direction=direction,
            kernel=self.stack.attention_kernel,
            dtype=self.precision.activation,
        )

    def _pointwise(self, op: Pointwise, out: Stretch, direction: Pass) -> None:
        forward = direction is Pass.FORWARD
        passes = (op.forward_passes if forward else op.backward_passes) * self.fusion
        kernels = max(op.num_kernels * min(self.fusion, 1.0), 0.5)
        if op.op == "rms_norm" and not self.stack.has_fused_rms_norm:
            passes = _EAGER_RMS_FORWARD if forward else _EAGER_RMS_BACKWARD
            kernels = _EAGER_RMS_KERNELS
        divisor = self.share.tp if op.split is Split.COLUMN else self.share.pointwise_divisor
        elements = self._rows(op.rows) * op.width / divisor
        out.add(
            Memory(
                num_bytes=passes * elements * self.activation_bytes,
                launches=kernels,
                op=op.op,
                dtype=self.precision.activation,
            ),
            ops=kernels,
        )

    def _experts(self, op: Experts, out: Stretch, direction: Pass) -> None:
        experts = op.num_experts / self.share.ep
        tokens = self._rows(op.rows) * op.top_k  # balanced: as many arrive as leave
        up = op.ffn * (2 if op.is_gated else 1)
        dtype = self.precision.compute
        repeat = 1.0 if direction is Pass.FORWARD else 2.0
        for n, k in ((up, op.hidden), (op.hidden, op.ffn)):
            work = GroupedGemm(experts=experts, tokens=tokens, n=n, k=k, dtype=dtype)
            out.add((work, repeat), ops=0.0)
        # the stack's launches per local expert cover both directions: a third is forward
        share = 1 / 3 if direction is Pass.FORWARD else 2 / 3
        out.num_ops += self.stack.moe_launches_per_expert * experts * share

    def _embedding(self, op: TokenEmbedding, out: Stretch, direction: Pass) -> None:
        passes = 2.0 if direction is Pass.FORWARD else 3.0  # gather; read, add, write
        num_bytes = passes * self._rows(op.rows) * op.dim * self.activation_bytes
        out.add(
            Memory(num_bytes=num_bytes, op="embedding", dtype=self.precision.activation), ops=2.0
        )

    def _loss(self, op: Loss, out: Stretch, direction: Pass) -> None:
        forward = _LOGITS_FORWARD_SHARE
        share = forward if direction is Pass.FORWARD else 1 - forward
        elements = self._rows(op.rows) * op.classes / self.share.tp
        out.add(
            Memory(
                num_bytes=self.stack.logits_passes * share * elements * _LOGITS_UNIT_BYTES,
                launches=5.0,  # cast, max, exp and sum, pick, scale: eager cross entropy
                op="cross_entropy",
                dtype=Dtype.FP32,
                cause=Cause.LOGITS,
            ),
            ops=5.0,
        )
