"""A closed-form iteration time of every layout, from the same work records and prices.

Compute of a stage is the sum of its layers; a pipeline of m micro-batches takes m times its slowest
stage plus one pass through the others, divided by the chunks of a stage; gradient traffic hides
behind the last backward as far as the stack overlaps it; gathers of sharded parameters hide behind
the layer before. Waiting, contention and host run-ahead are left to the simulator, which sees the
best layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.plan.records import Shard
from perfmodel.program.builder import TaskList
from perfmodel.program.chunks import Chunk, ChunkBuilder
from perfmodel.program.data_parallel import DataParallel
from perfmodel.program.groups import Groups
from perfmodel.program.operators import Stretch
from perfmodel.program.pipeline import PipelineLowering
from perfmodel.program.transformer import MAX_STRETCHES, SMS_OF_COLLECTIVES
from perfmodel.program.work import Cause, Collective, CollectiveKind
from perfmodel.run import Run
from perfmodel.search.layout_space import SHARDS, Shape, layout_plan, model_of
from perfmodel.search.price_book import Line, PriceBook
from perfmodel.workload.records import Block, Operator

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Entered:
    """A kind of block in the price book: forward, backward, attention, ring; operators issued."""

    forward: Line
    backward: Line
    attention: Line
    ring: Line
    ops: tuple[float, float, float, float]  # forward, backward, attention, ring


@dataclass(frozen=True, slots=True)
class _DataCost:
    """Data-parallel work of one shard level: reduction, update, gather; per layer if sharded."""

    reduce: Line
    gather: Line
    update: Line
    num_parts: int
    unit_gather: Line
    unit_scatter: Line
    root_gather: Line
    root_scatter: Line


@dataclass(frozen=True, slots=True)
class Entry:
    """One shape with everything of it in the price book."""

    shape: Shape
    sequence: list[bool]
    micro: Array
    chunks: Array
    shards: list[int]
    kinds: list[list[list[_Entered]]]  # by sequence, micro: layers' kinds, then the ends
    transfer: list[list[Line]]  # by sequence, micro
    data: list[_DataCost]


class LayoutTimes:
    """Enters shapes into a price book, then times all their layouts."""

    def __init__(self, run: Run, book: PriceBook) -> None:
        self.run = run
        self.book = book
        model = model_of(run)
        self.layers = model.layer_kinds()
        distinct = {b.operators: b for b in self.layers}
        self.kinds: list[Block] = list(distinct.values())
        order = list(distinct)
        self.order = np.array([order.index(b.operators) for b in self.layers])
        ends = [b for b in model.blocks() if not b.is_layer]
        self.ends: list[list[Block]] = [ends[:1], ends[1:]]
        self._entered: dict[object, list[_Entered]] = {}
        self._sizes: dict[object, list[Chunk]] = {}

    def enter(
        self,
        shape: Shape,
        sequence: list[bool],
        micro: Sequence[int],
        chunks: Sequence[int],
        shards: list[int],
    ) -> Entry:
        """Put the works of a shape into the book."""
        groups = Groups(layout_plan(self.run, shape), self.run.cluster)
        kinds, transfer = [], []
        for divided in sequence:
            kinds.append([self._enter_kinds(shape, groups, divided, m) for m in micro])
            transfer.append(self._enter_transfers(shape, groups, divided, micro))
        sizes = self._sizes[self._key(shape, groups)]
        data = [self._enter_data(shape, groups, s, sizes) for s in shards]
        return Entry(
            shape, sequence, np.array(micro, dtype=float), np.array(chunks, dtype=float), shards,
            kinds, transfer, data,
        )  # fmt: skip

    def _key(self, shape: Shape, groups: Groups) -> tuple[object, ...]:
        places = tuple(groups.shape(axis) for axis in ("tp", "cp", "ep"))
        return (shape.tp, shape.cp, shape.ep, places)

    def _enter_kinds(
        self, shape: Shape, groups: Groups, divided: bool, micro: int
    ) -> list[_Entered]:
        base = self._key(shape, groups)
        key = (base, divided, micro)
        if key not in self._entered:
            plan = layout_plan(self.run, shape, micro_batch=micro, sequence_parallel=divided)
            builder = ChunkBuilder(self.run.workload, plan, self.run.stack, groups)
            stretches = [[kind] for kind in self.kinds] + self.ends
            built = [builder.build(blocks) for blocks in stretches]
            self._sizes.setdefault(base, built)
            self._entered[key] = [
                self._enter_chunk(chunk, builder.lowering.attention_forward(_operators(blocks)))
                for chunk, blocks in zip(built, stretches, strict=True)
            ]
        return self._entered[key]

    def _enter_chunk(self, chunk: Chunk, attention: Stretch) -> _Entered:
        line = self.book.line
        forward, backward, ring = chunk.forward, chunk.backward, chunk.context
        return _Entered(
            forward=line(forward.items),
            backward=line(backward.items),
            attention=line(attention.items),
            ring=line(ring.items),
            ops=(forward.num_ops, backward.num_ops, attention.num_ops, ring.num_ops),
        )

    def _enter_transfers(
        self, shape: Shape, groups: Groups, divided: bool, micro: Sequence[int]
    ) -> list[Line]:
        """What a stage sends to the next, for every micro-batch."""
        if shape.pp == 1:
            return [self.book.line([])] * len(micro)
        plan = layout_plan(self.run, shape, sequence_parallel=divided)
        run = self.run
        lowering = PipelineLowering(
            run.workload, plan, run.stack, groups,
            ChunkBuilder(run.workload, plan, run.stack, groups),
            DataParallel(run.workload, plan, run.stack, groups),
        )  # fmt: skip
        one = lowering.transfer(model_of(run))
        return [self.book.line([replace(one, num_bytes=one.num_bytes * m)]) for m in micro]

    def _enter_data(
        self, shape: Shape, groups: Groups, shard: int, sizes: list[Chunk]
    ) -> _DataCost:
        run, line = self.run, self.book.line
        plan = layout_plan(run, shape, shard=SHARDS[shard])
        dp = DataParallel(run.workload, plan, run.stack, groups)
        heaviest = _heaviest_stage(sizes, self.order, shape.pp)
        tasks = TaskList(op_s=run.stack.host_op_s)
        dp.update(tasks, [heaviest], [])
        items = [(w.work, w.count) for task in tasks.tasks for w in task.work]
        gathers = [i for i in items if isinstance(i[0], Collective)]
        rest = [i for i in items if not isinstance(i[0], Collective)]
        layer = max(sizes[: len(self.kinds)], key=lambda c: c.dense_parameters)
        root = _sum_of(sizes[len(self.kinds) :])
        return _DataCost(
            reduce=line([(r.work, r.count) for r in dp.reductions(heaviest)]),
            gather=line(gathers),
            update=line(rest),
            num_parts=max(1, min(dp.bucket_count(heaviest), MAX_STRETCHES, len(self.layers))),
            unit_gather=line(self._unit(dp, layer, gathers=True)),
            unit_scatter=line(self._unit(dp, layer, gathers=False)),
            root_gather=line(self._unit(dp, root, gathers=True)),
            root_scatter=line(self._unit(dp, root, gathers=False)),
        )

    def _unit(
        self, dp: DataParallel, chunk: Chunk, *, gathers: bool
    ) -> list[tuple[Collective, float]]:
        """Gather or reduce-scatter of one unit of sharded parameters."""
        if dp.size == 1:
            return []
        precision = self.run.workload.precision
        held = chunk.dense_parameters + chunk.expert_parameters
        size = held * precision.activation.num_bytes
        if not gathers:
            size = chunk.trained_parameters * dp.gradient_bytes
        work = Collective(
            kind=CollectiveKind.ALL_GATHER if gathers else CollectiveKind.REDUCE_SCATTER,
            num_bytes=size,
            group=dp.shape("shard"),
            dtype=precision.activation,
            cause=Cause.SHARD_COMM if gathers else Cause.DP_COMM,
        )
        return [(work, 1 / self.run.stack.gather_rate_fraction)]

    def seconds(self, entry: Entry) -> Array:
        """Iteration time over (sequence, micro, vp, recompute, shard), after `book.price()`."""
        forward, backward = self._layer_seconds(entry)  # (S, M, kinds), (S, M, 3, kinds)
        shape = entry.shape
        out = np.empty((*forward.shape[:2], len(entry.chunks), 3, len(entry.shards)))
        count = self.run.workload.global_batch / (shape.dp * entry.micro)  # (M,)
        transfer = np.array([[self.book.total(t) for t in row] for row in entry.transfer])
        for v, vp in enumerate(entry.chunks.astype(int)):
            whole, slowest, last = self._pipeline(forward, backward, shape.pp, vp)
            fill = (whole - slowest) / vp
            body = count[None, :, None] * slowest + fill
            body += self._transfers(transfer, count, shape.pp, vp)[..., None]
            for s, cost in enumerate(entry.data):
                is_unitwise = self._is_unitwise(shape, entry.shards[s])
                if is_unitwise:
                    out[:, :, v, :, s] = self._sharded(forward, backward, count, cost, entry, s)
                else:
                    out[:, :, v, :, s] = body + self._exposed(last, cost, shape)
                out[:, :, v, :, s] += self._update(cost)
        return out

    def _is_unitwise(self, shape: Shape, shard: int) -> bool:
        plan = layout_plan(self.run, shape, shard=SHARDS[shard])
        uses = plan.uses_fsdp and plan.shard is Shard.GRADIENTS
        return shape.pp == 1 and (plan.shard is Shard.PARAMETERS or uses)

    def _layer_seconds(self, entry: Entry) -> tuple[Array, Array]:
        """Forward and backward of every kind of block, the slower of device and host."""
        total = self.book.total
        op_s = 0.0 if self.run.stack.has_cuda_graphs else self.run.stack.host_op_s
        shape = (len(entry.sequence), len(entry.micro), len(self.kinds) + 2)
        forward = np.empty(shape)
        backward = np.empty((*shape[:2], 3, shape[2]))
        for i, row in enumerate(entry.kinds):
            for j, kinds in enumerate(row):
                for k, kind in enumerate(kinds):
                    f, b, a = (total(x) for x in (kind.forward, kind.backward, kind.attention))
                    ops = kind.ops
                    again = (0.0, a, f) if k < len(self.kinds) else (0.0, 0.0, 0.0)
                    more = (0.0, ops[2], ops[0]) if k < len(self.kinds) else (0.0, 0.0, 0.0)
                    ring = total(kind.ring)
                    forward[i, j, k] = max(f, (ops[0] + ops[3] / 3) * op_s, ring / 3)
                    for r in range(3):
                        host = (ops[1] + more[r] + ops[3] * 2 / 3) * op_s
                        backward[i, j, r, k] = max(b + again[r], host, 2 * ring / 3)
        return forward, backward

    def _pipeline(
        self, forward: Array, backward: Array, pp: int, vp: int
    ) -> tuple[Array, Array, Array]:
        """All stages together, the slowest stage, its last backward; (S, M, 3) each."""
        both = forward[:, :, None, :] + backward
        stages = _stage_sums(both, self.order, pp, vp)
        behind = _stage_sums(backward, self.order, pp, vp)
        return stages.sum(-1), stages.max(-1), behind.max(-1) / vp

    def _transfers(self, transfer: Array, count: Array, pp: int, vp: int) -> Array:
        """Exposed point-to-point time: filling and draining, and each send that blocks."""
        if pp == 1:
            return np.zeros_like(transfer)
        blocking = 0.0 if self.run.stack.overlaps_p2p else 2.0 * vp
        return transfer * (2 * (pp - 1) + blocking * count[None, :])

    def _exposed(self, last: Array, cost: _DataCost, shape: Shape) -> Array:
        """Gradient reduction that the last backward does not hide, and its slowdown."""
        stack = self.run.stack
        whole = self.book.total(cost.reduce)
        share = stack.gradient_overlap_fraction if stack.overlaps_gradients else 0.0
        early = whole * share
        tail = early / cost.num_parts if shape.pp == 1 else 0.0
        hidden = np.minimum(early - tail, last * (1 - 1 / cost.num_parts if shape.pp == 1 else 1))
        slows = SMS_OF_COLLECTIVES / self.run.cluster.gpu.num_sms if shape.pp == 1 else 0.0
        return whole - hidden * (1 - slows)

    def _update(self, cost: _DataCost) -> float:
        gather = self.book.total(cost.gather)
        return self.book.total(cost.update) + gather

    def _sharded(
        self, forward: Array, backward: Array, count: Array, cost: _DataCost, entry: Entry, s: int
    ) -> Array:
        """Units gathered ahead of compute, gradients scattered behind it; every micro-batch."""
        total = self.book.total
        gather, scatter = total(cost.unit_gather), total(cost.unit_scatter)
        again = gather if SHARDS[entry.shards[s]] is Shard.PARAMETERS else 0.0
        layers = np.bincount(self.order, minlength=len(self.kinds)).astype(float)
        slow = SMS_OF_COLLECTIVES / self.run.cluster.gpu.num_sms  # while both run
        f, b = forward[..., : len(self.kinds)], backward[..., : len(self.kinds)]
        f, b = f + slow * np.minimum(f, gather), b + slow * np.minimum(b, again + scatter)
        ahead = np.maximum(f, gather) if self.run.stack.prefetches_gathers else f + gather
        behind = np.maximum(b, again + scatter)
        ends = forward[..., len(self.kinds) :].sum(-1)[:, :, None]
        ends = ends + backward[..., len(self.kinds) :].sum(-1)
        root = total(cost.root_gather) + total(cost.root_scatter) + scatter
        each = (ahead @ layers)[:, :, None] + behind @ layers + ends + root
        return np.asarray(count[None, :, None] * each)


def _operators(blocks: list[Block]) -> list[Operator]:
    return [operator for block in blocks for operator in block.operators]


def _bounds(layers: int, parts: int) -> NDArray[np.int64]:
    """First layer of every part and the end; early parts hold one more (`split_layers`)."""
    base, extra = divmod(layers, parts)
    sizes = np.full(parts, base) + (np.arange(parts) < extra)
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _stage_sums(seconds: Array, order: NDArray[np.int64], pp: int, vp: int) -> Array:
    """Sums over the layers of every stage, the ends added to the first and the last."""
    layers = seconds[..., order]
    sums = np.concatenate([np.zeros((*layers.shape[:-1], 1)), np.cumsum(layers, axis=-1)], axis=-1)
    bounds = _bounds(len(order), pp * vp)
    parts = sums[..., bounds[1:]] - sums[..., bounds[:-1]]
    stages = parts.reshape(*parts.shape[:-1], vp, pp).sum(-2)
    stages[..., 0] += seconds[..., -2]
    stages[..., -1] += seconds[..., -1]
    return np.asarray(stages)


def _sum_of(chunks: Sequence[Chunk]) -> Chunk:
    return Chunk(
        dense_parameters=sum(c.dense_parameters for c in chunks),
        expert_parameters=sum(c.expert_parameters for c in chunks),
        frozen_parameters=sum(c.frozen_parameters for c in chunks),
    )


def _heaviest_stage(sizes: list[Chunk], order: NDArray[np.int64], pp: int) -> Chunk:
    """The stage with the most trained parameters: the update waits for it."""
    bounds = _bounds(len(order), pp)
    stages = []
    for stage in range(pp):
        held = [sizes[k] for k in order[bounds[stage] : bounds[stage + 1]]]
        held += sizes[-2:-1] if stage == 0 else []
        held += sizes[-1:] if stage == pp - 1 else []
        stages.append(_sum_of(held))
    return max(stages, key=lambda c: c.trained_parameters)
