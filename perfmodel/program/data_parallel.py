"""Data parallelism: gradient reduction, sharded optimiser, parameter gathers, the update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from perfmodel.hardware.records import Dtype, GroupShape
from perfmodel.plan.records import Plan, Shard
from perfmodel.plan.stack import Stack
from perfmodel.program.builder import Item, TaskList
from perfmodel.program.chunks import Chunk
from perfmodel.program.groups import Groups
from perfmodel.program.work import (
    Cause,
    Collective,
    CollectiveKind,
    Fixed,
    Memory,
    OptimizerStep,
    Pass,
)
from perfmodel.workload.records import Precision, Workload

# A fused update handles about 21 M elements per launch (320 blocks of 65,536 elements).
_ELEMENTS_PER_LAUNCH = 21e6


def gradient_bytes(stack: Stack, precision: Precision) -> float:
    """Bytes of one gradient element on the wire."""
    if stack.gradient_dtype is not None:
        return max(stack.gradient_dtype.num_bytes, precision.activation.num_bytes)
    if precision.is_autocast:
        return Dtype.FP32.num_bytes
    return precision.activation.num_bytes


@dataclass(frozen=True, slots=True)
class Reduction:
    """Gradient traffic of a stretch of parameters."""

    work: Collective
    count: float
    group: str


class DataParallel:
    """Tasks of the data-parallel axis for one (workload, plan, stack)."""

    def __init__(self, workload: Workload, plan: Plan, stack: Stack, groups: Groups) -> None:
        self.plan = plan
        self.stack = stack
        self.precision = workload.precision
        self.has_update = not workload.is_forward_backward_only
        self.groups = groups
        self.gradient_bytes = gradient_bytes(stack, workload.precision)
        self.size = plan.dp * plan.cp
        self.shard_ranks = min(plan.shard_group or self.size, self.size)
        if plan.shard is Shard.NOTHING:
            self.shard_ranks = 1
        self.has_replicas = 1 < self.shard_ranks < self.size
        if self.has_replicas:
            groups.add_sharding(self.shard_ranks)

    @property
    def is_sharded(self) -> bool:
        """Whether the update is divided among data-parallel ranks."""
        return self.shard_ranks > 1

    def kinds(self) -> list[str]:
        """Axes of `Groups` whose communicators the data-parallel tasks use."""
        kinds = ["dp"]
        if self.plan.ep > 1:
            kinds.append("expert_dp")
        if self.has_replicas:
            kinds.extend(["shard", "replica"])
        return kinds

    def shape(self, kind: str) -> GroupShape:
        """Shape of a communicator kind; "shard" is "dp" unless sharding is hierarchical."""
        return self.groups.shape(self.shard_kind if kind == "shard" else kind)

    def communicators(self) -> dict[str, NDArray[np.int64]]:
        """Rank numbers of the communicators by kind."""
        return {kind: self.groups.members(kind) for kind in self.kinds()}

    @property
    def shard_kind(self) -> str:
        """Communicators over which the shards of one copy lie."""
        return "shard" if self.has_replicas else "dp"

    def bucket_count(self, chunk: Chunk) -> int:
        """Buckets into which the gradients of a chunk fall."""
        total = chunk.trained_parameters * self.gradient_bytes
        return max(1, ceil(total / self.stack.gradient_bucket_bytes))

    @property
    def overlap_fraction(self) -> float:
        """Share of the gradient reduction that is issued while backward still runs."""
        return self.stack.gradient_overlap_fraction if self.stack.overlaps_gradients else 0.0

    def reductions(self, chunk: Chunk) -> list[Reduction]:
        """Collectives that sum the gradients of `chunk`, in equal buckets."""
        if self.size == 1:
            return []
        buckets = self.bucket_count(chunk)
        experts = chunk.expert_parameters if self.plan.ep > 1 else 0.0
        out: list[Reduction] = []
        for parameters, kind in (
            (chunk.trained_parameters - experts, "dp"),
            (experts, "expert_dp"),
        ):
            if parameters > 0 and self.shape(kind).num_ranks > 1:
                out.append(self._reduction(parameters, self.shape(kind), kind, buckets))
        return out

    def _reduction(
        self, parameters: float, shape: GroupShape, kind: str, buckets: int
    ) -> Reduction:
        scatters = self.is_sharded and not self.has_replicas
        work = Collective(
            kind=CollectiveKind.REDUCE_SCATTER if scatters else CollectiveKind.ALL_REDUCE,
            num_bytes=parameters * self.gradient_bytes / buckets,
            group=shape,
            dtype=Dtype.FP32 if self.gradient_bytes == 4 else self.precision.activation,
            cause=Cause.DP_COMM,
        )
        return Reduction(work, float(buckets), kind)

    def reduce(
        self, tasks: TaskList, chunks: Sequence[Chunk], after: int, *, share: float
    ) -> list[int]:
        """Append reductions of a share of the gradients of `chunks`, once task `after` ended."""
        if share <= 0:
            return []
        return [
            tasks.collective(
                "reduce_gradients",
                reduction.work,
                reduction.group,
                count=reduction.count * share,
                waits=[after],
                phase=Pass.BACKWARD,
            )
            for chunk in chunks
            for reduction in self.reductions(chunk)
        ]

    def update(self, tasks: TaskList, chunks: Sequence[Chunk], waits: Sequence[int]) -> list[int]:
        """Append clipping, optimiser, parameter gather and serial host work.

        Returns the tasks that the next forward waits for.
        """
        if not self.has_update:
            return list(waits)
        parameters = sum(c.trained_parameters for c in chunks)
        owned = parameters / self.shard_ranks
        items: list[Item] = []
        if self.stack.clips_gradients:
            # the norm reads every gradient once more, scaling reads and writes fp32 values
            items.append(Memory(num_bytes=12 * owned, op="grad_norm", cause=Cause.OPTIMIZER))
        items.append(
            OptimizerStep(
                parameters=owned,
                bytes_per_parameter=self.stack.optimizer_bytes_per_parameter,
                launches=max(1.0, ceil(owned / _ELEMENTS_PER_LAUNCH)),
            )
        )
        step = tasks.kernels("optimizer", items, waits=waits, phase=Pass.OPTIMIZER)
        ends = [step]
        if self.is_sharded:
            ends = self._gather(tasks, parameters, step)
        if self.stack.host_step_s > 0:
            host = Fixed(seconds=self.stack.host_step_s, cause=Cause.HOST_STEP)
            hides = self.stack.overlaps_parameter_gather
            tasks.host("host_step", host, waits=[step] if hides else ends, phase=Pass.OPTIMIZER)
        return ends

    def _gather(self, tasks: TaskList, parameters: float, step: int) -> list[int]:
        if self.plan.shard is Shard.PARAMETERS:
            return [step]  # gathered unit by unit in forward
        shape = self.shape("shard")
        work = Collective(
            kind=CollectiveKind.ALL_GATHER,
            num_bytes=parameters * self.precision.activation.num_bytes,
            group=shape,
            dtype=self.precision.activation,
            cause=Cause.SHARD_COMM,
        )
        gather = tasks.collective(
            "parameter_gather", work, self.shard_kind, waits=[step], phase=Pass.OPTIMIZER
        )
        per_rank = self.stack.update_broadcast_s_per_rank
        if per_rank and shape.num_nodes > 1:
            seconds = per_rank * shape.num_ranks
            item = Fixed(seconds=seconds, cause=Cause.SHARD_COMM)
            gather = tasks.kernels(
                "update_broadcasts", [item], waits=[gather], lane="comm", phase=Pass.OPTIMIZER
            )
        return [gather]
