"""A chunk: the stretch of a model that one rank runs between two exchanges with other stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from perfmodel.hardware.records import GroupShape
from perfmodel.plan.records import Plan, Recompute
from perfmodel.plan.stack import Stack
from perfmodel.program.groups import Groups
from perfmodel.program.operators import OperatorLowering, Share, Stretch
from perfmodel.program.work import Cause, Collective, CollectiveKind
from perfmodel.workload.records import (
    AttentionCore,
    Block,
    Experts,
    Linear,
    Operator,
    Split,
    TokenEmbedding,
    Workload,
)


@dataclass(slots=True)
class Chunk:
    """What a chunk computes per micro-batch and the parameters one rank holds of it."""

    forward: Stretch = field(default_factory=Stretch)
    backward: Stretch = field(default_factory=Stretch)  # recomputation included
    context: Stretch = field(default_factory=Stretch)  # ring exchange, a third of it forward
    dense_parameters: float = 0.0  # per rank, tensor parallelism divided out
    expert_parameters: float = 0.0  # per rank
    frozen_parameters: float = 0.0  # of the above, never updated (LoRA)
    num_layers: int = 0

    @property
    def trained_parameters(self) -> float:
        """Parameters with a gradient."""
        return self.dense_parameters + self.expert_parameters - self.frozen_parameters


class ChunkBuilder:
    """Builds chunks of a transformer for one plan, stack and cluster."""

    def __init__(self, workload: Workload, plan: Plan, stack: Stack, groups: Groups) -> None:
        self.workload = workload
        self.plan = plan
        self.stack = stack
        self.tp_shape = groups.shape("tp")
        self.cp_shape = groups.shape("cp")
        self.ep_shape = groups.shape("ep")
        share = Share(
            samples=plan.micro_batch * workload.filled_fraction,
            tp=plan.tp,
            cp=plan.cp,
            ep=plan.ep,
            sequence_parallel=plan.sequence_parallel,
        )
        self.lowering = OperatorLowering(stack, workload.precision, share)
        self._layers: dict[tuple[Operator, ...], Chunk] = {}

    def build(self, blocks: Iterable[Block]) -> Chunk:
        """One chunk of all `blocks`, layers among them recomputed as the plan says."""
        total = Chunk()
        for block in blocks:
            key = block.operators
            if key not in self._layers:
                self._layers[key] = self._one(block)
            _add(total, self._layers[key], block.repeat)
            total.num_layers += block.repeat if block.is_layer else 0
        return total

    def _one(self, block: Block) -> Chunk:
        operators = block.operators
        chunk = Chunk(
            forward=self.lowering.forward(operators), backward=self.lowering.backward(operators)
        )
        self._tensor_parallel(operators, chunk)
        self._expert_parallel(operators, chunk)
        self._context_parallel(operators, chunk)
        if block.is_layer:
            again = Stretch()
            if self.plan.recompute is Recompute.FULL:
                again.extend(chunk.forward)
            elif self.plan.recompute is Recompute.SELECTIVE:
                again.extend(self.lowering.attention_forward(operators))
            again.extend(chunk.backward)
            chunk.backward = again
        self._count_parameters(operators, chunk)
        return chunk

    def _activation_bytes(self, operators: Sequence[Operator], width: int) -> float:
        rows = max((getattr(o, "rows", 0.0) for o in operators), default=0.0)
        share = self.lowering.share
        return rows * share.samples / share.cp * width * self.lowering.activation_bytes

    def _tensor_parallel(self, operators: Sequence[Operator], chunk: Chunk) -> None:
        if self.plan.tp == 1:
            return
        exposed = 1.0 - (self.stack.tp_hidden_fraction if self.plan.sequence_parallel else 0.0)
        for op in operators:
            if isinstance(op, Linear) and op.split is Split.ROW:
                size = self._activation_bytes(operators, op.out_features)
                self._layer_reductions(size, exposed, chunk)
            elif isinstance(op, Linear) and op.split is Split.VOCAB:
                # gradient of the hidden state is summed over vocabulary shards
                size = self._activation_bytes(operators, op.in_features)
                chunk.backward.add(self._reduction(CollectiveKind.ALL_REDUCE, size))
            elif isinstance(op, TokenEmbedding):
                size = self._activation_bytes(operators, op.dim)
                chunk.forward.add(self._reduction(CollectiveKind.ALL_REDUCE, size))

    def _reduction(self, kind: CollectiveKind, size: float) -> Collective:
        return Collective(
            kind=kind,
            num_bytes=size,
            group=self.tp_shape,
            dtype=self.workload.precision.activation,
            cause=Cause.TP_COMM,
        )

    def _layer_reductions(self, size: float, exposed: float, chunk: Chunk) -> None:
        """Sums after a row-parallel product, and of the gradient before its partner's input."""
        if self.plan.sequence_parallel:
            gather = self._reduction(CollectiveKind.ALL_GATHER, size)
            scatter = self._reduction(CollectiveKind.REDUCE_SCATTER, size)
            chunk.forward.add((gather, exposed))
            chunk.forward.add((scatter, exposed))
            # backward gathers the input again for the weight gradient
            chunk.backward.add((gather, 2 * exposed), ops=2)
            chunk.backward.add((scatter, exposed))
            return
        reduce = self._reduction(CollectiveKind.ALL_REDUCE, size)
        chunk.forward.add((reduce, exposed))
        chunk.backward.add((reduce, exposed))

    def _expert_parallel(self, operators: Sequence[Operator], chunk: Chunk) -> None:
        if self.plan.ep == 1:
            return
        for op in operators:
            if isinstance(op, Experts):
                copies = op.top_k * self._distinct_fraction(op.top_k)
                size = self._activation_bytes(operators, op.hidden) * copies
                exchange = self._exchange(size)
                # dispatch and combine, forward and backward
                chunk.forward.add((exchange, 2.0), ops=2)
                chunk.backward.add((exchange, 2.0), ops=2)

    def _distinct_fraction(self, top_k: int) -> float:
        """Share of the routed copies of a token that must cross, experts chosen evenly.

        Of P places (nodes of the group, else ranks) a token visits P(1 - (1 - 1/P)^k) on average.
        """
        if not self.stack.deduplicates_dispatch:
            return 1.0
        shape = self.ep_shape
        places = shape.num_nodes if shape.num_nodes > 1 else shape.num_ranks
        return places * (1 - (1 - 1 / places) ** top_k) / top_k

    def _exchange(self, size: float) -> Collective:
        return Collective(
            kind=CollectiveKind.ALL_TO_ALL,
            num_bytes=size,
            group=self.ep_shape,
            dtype=self.workload.precision.activation,
            cause=Cause.EP_COMM,
        )

    def _context_parallel(self, operators: Sequence[Operator], chunk: Chunk) -> None:
        if self.plan.cp == 1:
            return
        for op in operators:
            if isinstance(op, AttentionCore):
                width = 2 * op.kv_heads * op.head_dim / self.plan.tp
                part = width * op.key_len / self.plan.cp * self.lowering.share.samples
                work = Collective(
                    kind=CollectiveKind.SEND_RECV,
                    num_bytes=part * self.lowering.activation_bytes,
                    group=_pair(self.cp_shape),
                    dtype=self.workload.precision.activation,
                    cause=Cause.CP_COMM,
                )
                hops = self.plan.cp - 1.0
                # keys and values once forward; again with their gradients backward
                chunk.context.add((work, 3 * hops), ops=3 * hops)

    def _count_parameters(self, operators: Sequence[Operator], chunk: Chunk) -> None:
        for op in operators:
            count = getattr(op, "num_parameters", 0)
            split = getattr(op, "split", Split.NONE)
            if isinstance(op, Experts):
                chunk.expert_parameters += count / self.plan.ep
                continue
            if split is not Split.NONE or isinstance(op, TokenEmbedding):
                count = count / self.plan.tp
            chunk.dense_parameters += count
            if isinstance(op, Linear) and not op.is_trainable:
                chunk.frozen_parameters += count


def _add(total: Chunk, one: Chunk, repeat: int) -> None:
    for name in ("forward", "backward", "context"):
        getattr(total, name).extend(getattr(one, name).scaled(repeat))
    total.dense_parameters += one.dense_parameters * repeat
    total.expert_parameters += one.expert_parameters * repeat
    total.frozen_parameters += one.frozen_parameters * repeat


def _pair(shape: GroupShape) -> GroupShape:
    """Two neighbours of a ring; across nodes if each node holds one rank of the ring."""
    if shape.ranks_per_node > 1:
        return GroupShape(ranks_per_node=2, num_nodes=1, concurrent=1, stride=shape.stride)
    return GroupShape(
        ranks_per_node=1, num_nodes=2, concurrent=shape.concurrent, stride=shape.stride
    )


def split_layers(layers: Sequence[Block], parts: int) -> list[list[Block]]:
    """Deal `layers` (one Block each, in order) out to `parts`, early parts one more if uneven."""
    base, extra = divmod(len(layers), parts)
    pieces: list[list[Block]] = []
    start = 0
    for part in range(parts):
        size = base + (part < extra)
        pieces.append(_merge(layers[start : start + size]))
        start += size
    return pieces


def _merge(layers: Sequence[Block]) -> list[Block]:
    merged: dict[tuple[Operator, ...], int] = {}
    for layer in layers:
        merged[layer.operators] = merged.get(layer.operators, 0) + layer.repeat
    return [
        Block(name="layers", operators=operators, repeat=count, is_layer=True)
        for operators, count in merged.items()
    ]
