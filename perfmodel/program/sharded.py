"""FSDP and ZeRO-3: parameters gathered unit by unit, gradients scattered unit by unit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perfmodel.plan.records import Plan, Shard
from perfmodel.plan.stack import Stack
from perfmodel.program.builder import TaskList
from perfmodel.program.chunks import Chunk, ChunkBuilder, split_layers
from perfmodel.program.data_parallel import DataParallel
from perfmodel.program.work import Cause, Collective, CollectiveKind, Pass
from perfmodel.workload.records import Workload
from perfmodel.workload.transformer import TransformerModel

# Layers are grouped into at most this many units of the program; each unit issues one collective
# per layer, so that message sizes stay those of a layer.
MAX_UNITS = 16
# Rate limiter of FSDP: at most this many gathered units in flight (fsdp/_limiter_utils.py).
_GATHERS_IN_FLIGHT = 2


@dataclass(frozen=True, slots=True)
class _Unit:
    chunk: Chunk
    num_collectives: int  # layers in it; 1 for the root
    times: int = 1  # equal micro-batches that this one stands for

    def repeated(self, times: int) -> _Unit:
        """The unit of `times` micro-batches: every kernel and collective that often."""
        if times == 1:
            return self
        forward, backward = self.chunk.forward, self.chunk.backward
        chunk = replace(self.chunk, forward=forward.scaled(times), backward=backward.scaled(times))
        return replace(self, chunk=chunk, times=times)


def _folded(count: int) -> list[int]:
    """Micro-batches as the first, all equal ones between as one, and the last."""
    return [1] * count if count <= 3 else [1, count - 2, 1]


class ShardedLowering:
    """Tasks of one rank under fully sharded data parallelism without a pipeline."""

    def __init__(
        self, workload: Workload, plan: Plan, stack: Stack, builder: ChunkBuilder, dp: DataParallel
    ) -> None:
        self.workload = workload
        self.plan = plan
        self.stack = stack
        self.builder = builder
        self.dp = dp
        self.reshards = plan.shard is Shard.PARAMETERS

    def lower(self, model: TransformerModel) -> TaskList:
        """One iteration: gathers and scatters repeat for every micro-batch."""
        tasks = TaskList(op_s=self.stack.host_op_s)
        count = self.plan.num_micro_batches(self.workload.global_batch)
        units = self._units(model)
        last: list[int] = []
        for times in _folded(count):
            last = self._micro_batch(tasks, [unit.repeated(times) for unit in units])
        self.dp.update(tasks, [unit.chunk for unit in units], last)
        return tasks

    def _units(self, model: TransformerModel) -> list[_Unit]:
        blocks = model.blocks()
        layers = model.layer_kinds()
        pieces = split_layers(layers, min(len(layers), MAX_UNITS))
        units = []
        for piece in pieces:
            chunk = self.builder.build(piece)
            units.append(_Unit(chunk, chunk.num_layers))
        root = [b for b in blocks if not b.is_layer]
        head = self.builder.build(root[1:])
        embedding = self.builder.build(root[:1])
        return [_Unit(embedding, 1), *units, _Unit(head, 1)]

    def _gather(self, tasks: TaskList, unit: _Unit, waits: list[int], phase: Pass) -> int:
        parameters = unit.chunk.dense_parameters + unit.chunk.expert_parameters
        work = Collective(
            kind=CollectiveKind.ALL_GATHER,
            num_bytes=parameters
            * self.workload.precision.activation.num_bytes
            / unit.num_collectives,
            group=self.dp.shape("shard"),
            dtype=self.workload.precision.activation,
            cause=Cause.SHARD_COMM,
        )
        return tasks.collective(
            "gather",
            work,
            self.dp.shard_kind,
            count=unit.times * unit.num_collectives / self.stack.gather_rate_fraction,
            lane="shard",
            waits=waits,
            phase=phase,
        )

    def _scatter(self, tasks: TaskList, unit: _Unit, after: int) -> int | None:
        parameters = unit.chunk.trained_parameters
        if parameters <= 0:
            return None
        num_bytes = parameters * self.dp.gradient_bytes / unit.num_collectives
        work = Collective(
            kind=CollectiveKind.REDUCE_SCATTER,
            num_bytes=num_bytes,
            group=self.dp.shape("shard"),
            cause=Cause.DP_COMM,
        )
        count = unit.times * unit.num_collectives / self.stack.gather_rate_fraction
        last = tasks.collective(
            "reduce_scatter",
            work,
            self.dp.shard_kind,
            count=count,
            lane="shard",
            waits=[after],
            phase=Pass.BACKWARD,
        )
        if self.dp.has_replicas:
            reduce = Collective(
                kind=CollectiveKind.ALL_REDUCE,
                num_bytes=num_bytes / self.dp.shard_ranks,
                group=self.dp.shape("replica"),
                cause=Cause.DP_COMM,
            )
            last = tasks.collective(
                "reduce_replicas",
                reduce,
                "replica",
                count=unit.times * unit.num_collectives,
                lane="replica",
                waits=[last],
                phase=Pass.BACKWARD,
            )
        return last

    def _micro_batch(self, tasks: TaskList, units: list[_Unit]) -> list[int]:
        computes: list[int] = []
        for unit in units:
            gather = self._gather(tasks, unit, self._gate(computes), Pass.FORWARD)
            stretch = unit.chunk.forward
            computes.append(
                tasks.kernels("forward", stretch.items, num_ops=stretch.num_ops, waits=[gather])
            )
        return self._backward(tasks, units, computes)

    def _gate(self, computes: list[int]) -> list[int]:
        """What a gather waits for: the rate limiter, or the last compute without prefetch."""
        behind = _GATHERS_IN_FLIGHT if self.stack.prefetches_gathers else 1
        return [computes[-behind]] if len(computes) >= behind else []

    def _backward(self, tasks: TaskList, units: list[_Unit], computes: list[int]) -> list[int]:
        order = list(reversed(units))
        ends: list[int] = []
        gathers: dict[int, list[int]] = {}

        def gather(index: int) -> None:
            # the head was just used and the root stays gathered
            if self.reshards and 0 < index < len(order) - 1:
                waits = self._gate(computes)
                gathers[index] = [self._gather(tasks, order[index], waits, Pass.BACKWARD)]

        for index, unit in enumerate(order):
            if index not in gathers:
                gather(index)
            if self.stack.prefetches_gathers and index + 1 < len(order):
                gather(index + 1)
            stretch = unit.chunk.backward
            computes.append(
                tasks.kernels(
                    "backward",
                    stretch.items,
                    num_ops=stretch.num_ops,
                    waits=gathers.get(index, ()),
                    phase=Pass.BACKWARD,
                )
            )
            scatter = self._scatter(tasks, unit, computes[-1])
            ends.extend([] if scatter is None else [scatter])
        return [computes[-1], *ends]
