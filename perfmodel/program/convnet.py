"""Lowering of convolutional networks: data parallel, gradients reduced in buckets."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from perfmodel.errors import InvalidPlanError
from perfmodel.hardware.records import Cluster, Dtype, GroupShape
from perfmodel.plan.records import Plan, Shard
from perfmodel.plan.stack import Stack
from perfmodel.program.builder import TaskList
from perfmodel.program.convnet_work import ConvolutionWork
from perfmodel.program.records import Program, RankClass, Task
from perfmodel.program.work import (
    Cause,
    Collective,
    CollectiveKind,
    Copy,
    Fixed,
    Memory,
    OptimizerStep,
    Pass,
)
from perfmodel.workload.convnet import ConvolutionModel
from perfmodel.workload.records import Workload

_GROUP = "dp"
# Images arrive as 8-bit RGB and become floats on the GPU, or as floats; the smaller is usual.
_IMAGE_BYTES = 3.0


def lower_convnet(workload: Workload, plan: Plan, stack: Stack, cluster: Cluster) -> Program:
    """Program of one iteration of a convolutional network on data-parallel ranks.

    Raises
    ------
    InvalidPlanError
        If the plan uses an axis other than dp, or the batch does not divide.
    """
    if not isinstance(workload.model, ConvolutionModel):
        raise InvalidPlanError(f"workload {workload.name!r} is not a convolutional network")
    for axis in ("tp", "pp", "cp", "ep"):
        if getattr(plan, axis) != 1:
            raise InvalidPlanError(f"{axis} {getattr(plan, axis)} is not known for CNNs; use dp")
    if plan.num_gpus != cluster.num_gpus:
        raise InvalidPlanError(
            f"dp {plan.num_gpus} is not the {cluster.num_gpus} GPUs of the cluster; use all of them"
        )
    passes = plan.num_micro_batches(workload.global_batch)
    builder = _Iteration(workload, workload.model, plan, stack, cluster, passes)
    ranks = np.arange(plan.num_gpus, dtype=np.int64)
    one = RankClass(name="all ranks", ranks=ranks, tasks=builder.tasks())
    layout = "channels-last" if builder.work.channels_last else "NCHW"
    sharded = plan.shard is not Shard.NOTHING
    return Program(
        classes=(one,),
        groups={_GROUP: ranks.reshape(1, -1)} if len(ranks) > 1 else {},
        assumptions=(*stack.assumptions, f"tensors are {layout}"),
        warnings=(
            *workload.model.warnings,
            *(["sharding of CNN state is ignored: its optimizer is a fraction"] * sharded),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Iteration:
    """Builds the tasks of one rank."""

    workload: Workload
    model: ConvolutionModel
    plan: Plan
    stack: Stack
    cluster: Cluster
    passes: int

    @property
    def work(self) -> ConvolutionWork:
        """Work records at this batch, precision and stack."""
        return ConvolutionWork.of(
            self.model, self.workload, self.stack, self.cluster.gpu, self.plan.micro_batch
        )

    def tasks(self) -> tuple[Task, ...]:
        """Input, forward and backward of every pass, reductions, update."""
        tasks = TaskList(op_s=self.stack.host_op_s)
        ready = self._input(tasks)
        first, waits = len(tasks.tasks), ready
        if self.stack.has_cuda_graphs:
            tasks.thread = None
        reductions: list[int] = []
        for number in range(self.passes):
            self._forward(tasks, waits)
            waits = ()
            reductions = self._backward(tasks, is_last=number == self.passes - 1)
        last = self._update(tasks, reductions)
        tasks.thread = "forward"
        if self.stack.host_step_s > 0:
            work = Fixed(seconds=self.stack.host_step_s, cause=Cause.HOST_STEP)
            step = tasks.host("step", work, waits=(last,))
            begin = tasks.tasks[first]
            tasks.tasks[first] = replace(begin, waits_previous=(*begin.waits_previous, step))
        return tuple(tasks.tasks)

    def _input(self, tasks: TaskList) -> tuple[int, ...]:
        """Decoding and copying of the next batch, beside this one."""
        images = self.plan.micro_batch * self.passes
        rate = self.stack.input_samples_per_s_per_node
        waits: list[int] = []
        if rate:
            seconds = images * self.cluster.gpus_per_node / rate
            read = Fixed(seconds=seconds, cause=Cause.INPUT)
            waits.append(tasks.host("read batch", read, lane="loader"))
        copy = Copy(num_bytes=images * _IMAGE_BYTES * self.model.image**2, cause=Cause.INPUT)
        waits.append(tasks.kernels("copy batch", [copy], lane="copy", thread="loader"))
        return tuple(waits)

    def _forward(self, tasks: TaskList, ready: tuple[int, ...]) -> None:
        for index, block in enumerate(self.model.network):
            works = self.work.forward(block)
            tasks.kernels(
                f"{block.name} forward",
                works,
                num_ops=len(works) * block.repeat,
                waits_previous=ready if index == 0 else (),
            )

    def _backward(self, tasks: TaskList, *, is_last: bool) -> list[int]:
        """Blocks last to first; the last pass sends gradients off as buckets fill."""
        reduces = is_last and self.plan.dp > 1
        overlaps = self.stack.overlaps_gradients
        pending, reductions = 0.0, []
        for block in reversed(self.model.network):
            works = self.work.backward(block)
            index = tasks.kernels(
                f"{block.name} backward",
                works,
                num_ops=len(works) * block.repeat,
                phase=Pass.BACKWARD,
            )
            pending += block.num_parameters * self._gradient.num_bytes
            while reduces and overlaps and pending >= self.stack.gradient_bucket_bytes:
                bucket = self.stack.gradient_bucket_bytes
                reductions.append(self._reduce(tasks, bucket, index))
                pending -= bucket
        if reduces and pending > 0:
            reductions.append(self._reduce(tasks, pending, len(tasks.tasks) - 1))
        return reductions

    @property
    def _gradient(self) -> Dtype:
        return self.stack.gradient_dtype or self.workload.precision.master

    def _reduce(self, tasks: TaskList, num_bytes: float, after: int) -> int:
        per_node = min(self.cluster.gpus_per_node, self.plan.dp)
        shape = GroupShape(ranks_per_node=per_node, num_nodes=self.plan.dp // per_node)
        work = Collective(
            kind=CollectiveKind.ALL_REDUCE,
            num_bytes=num_bytes,
            group=shape,
            dtype=self._gradient,
            cause=Cause.DP_COMM,
        )
        return tasks.collective("gradients", work, _GROUP, waits=(after,), phase=Pass.BACKWARD)

    def _update(self, tasks: TaskList, reductions: list[int]) -> int:
        parameters = float(self.workload.num_parameters)
        works: list[OptimizerStep | Memory] = []
        if self.workload.precision.is_autocast:
            # 16-bit copies of weights (4 read, 2 written) and gradients unscaled (8).
            works.append(Memory(num_bytes=14.0 * parameters, op="cast", dtype=Dtype.FP32))
        if not self.workload.is_forward_backward_only:
            traffic = self.stack.optimizer_bytes_per_parameter
            works.append(OptimizerStep(parameters=parameters, bytes_per_parameter=traffic))
        return tasks.kernels("update", works, waits=reductions, phase=Pass.OPTIMIZER)
