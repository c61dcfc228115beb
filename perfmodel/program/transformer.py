"""Lowering of transformers: replicated, sharded (FSDP, ZeRO-3) and pipelined training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfmodel.errors import InvalidPlanError
from perfmodel.hardware.records import Cluster
from perfmodel.plan.records import Plan, Shard
from perfmodel.plan.stack import Stack
from perfmodel.program.builder import TaskList
from perfmodel.program.chunks import Chunk, ChunkBuilder, split_layers
from perfmodel.program.data_parallel import DataParallel
from perfmodel.program.groups import Groups
from perfmodel.program.operators import Stretch
from perfmodel.program.pipeline import PipelineLowering, add_context
from perfmodel.program.records import Overlap, Program, RankClass
from perfmodel.program.sharded import ShardedLowering
from perfmodel.program.work import Pass
from perfmodel.workload.records import Block, Workload
from perfmodel.workload.transformer import TransformerModel

# Backward is cut into at most this many stretches whose reductions may start apart: enough to
# follow the overlap within 1/16 of backward, few enough to keep programs small.
MAX_STRETCHES = 16
# From the launch call to the start of the kernel on an idle stream: 7-25 us in real traces with the
# profiler on; 5 us without (traces of public runs).
LAUNCH_LATENCY_S = 5e-6

# Gathers and reductions over NVLink and InfiniBand take 16 SMs from what runs beside them
# (Megatron-LM distributed_data_parallel_config.py).
SMS_OF_COLLECTIVES = 16


def lower_transformer(workload: Workload, plan: Plan, stack: Stack, cluster: Cluster) -> Program:
    """Program of one training iteration of a transformer.

    Raises
    ------
    InvalidPlanError
        If the plan does not fit the model or the cluster.
    """
    model = workload.model
    assert isinstance(model, TransformerModel)
    warnings = check_transformer_plan(model, plan)
    groups = Groups(plan, cluster)
    builder = ChunkBuilder(workload, plan, stack, groups)
    data_parallel = DataParallel(workload, plan, stack, groups)
    if plan.pp > 1:
        pipeline = PipelineLowering(workload, plan, stack, groups, builder, data_parallel)
        classes, members = pipeline.lower(model)
    else:
        if plan.shard is Shard.PARAMETERS or (plan.uses_fsdp and plan.shard is Shard.GRADIENTS):
            tasks = ShardedLowering(workload, plan, stack, builder, data_parallel).lower(model)
        else:
            tasks = _replicated(workload, plan, stack, builder, data_parallel)
        ranks = np.arange(plan.num_gpus, dtype=np.int64)
        classes = (RankClass(name="rank", ranks=ranks, tasks=tuple(tasks.tasks)),)
        members = data_parallel.communicators()
    return Program(
        classes=classes,
        groups=members,
        overlap=_overlap(plan, cluster, data_parallel),
        launch_latency_s=LAUNCH_LATENCY_S,
        assumptions=stack.assumptions,
        warnings=tuple(warnings),
    )


def _overlap(plan: Plan, cluster: Cluster, data_parallel: DataParallel) -> Overlap:
    """Slowdown of kernels that share the GPU with collectives of the data-parallel axis.

    Pipelines reduce once at their end and are left out.
    """
    if plan.pp > 1 or data_parallel.size == 1:
        return Overlap()
    return Overlap(compute_slowdown=SMS_OF_COLLECTIVES / cluster.gpu.num_sms)


def check_transformer_plan(model: TransformerModel, plan: Plan) -> list[str]:
    """Warnings about a plan; raises InvalidPlanError where no framework could run it."""
    if model.heads % plan.tp:
        raise InvalidPlanError(
            f"tp {plan.tp} does not divide the {model.heads} attention heads of the model"
        )
    layers = model.layers + model.encoder_layers
    if plan.pp * plan.vp > layers:
        raise InvalidPlanError(
            f"pp {plan.pp} x vp {plan.vp} needs more than the {layers} layers of the model"
        )
    if model.mixture is None and plan.ep > 1:
        raise InvalidPlanError(f"ep {plan.ep} needs a mixture of experts; the model has none")
    if model.mixture is not None and model.mixture.num_experts % plan.ep:
        raise InvalidPlanError(
            f"ep {plan.ep} does not divide the {model.mixture.num_experts} experts"
        )
    warnings = []
    if layers % (plan.pp * plan.vp):
        warnings.append(
            f"{layers} layers do not divide into {plan.pp * plan.vp} pipeline chunks: "
            "the first chunks hold one more"
        )
    return warnings


def _replicated(
    workload: Workload, plan: Plan, stack: Stack, builder: ChunkBuilder, dp: DataParallel
) -> TaskList:
    """Plain data parallelism, ZeRO-1 and ZeRO-2 without a pipeline."""
    model = workload.model
    count = plan.num_micro_batches(workload.global_batch)
    whole = builder.build(model.blocks())
    assert isinstance(model, TransformerModel)
    stretches = _stretches(model, builder, dp, whole)
    tasks = TaskList(op_s=stack.host_op_s, thread=None if stack.has_cuda_graphs else "forward")
    if count > 1:
        accumulated = Stretch()
        accumulated.extend(whole.forward.scaled(count - 1))
        accumulated.extend(whole.backward.scaled(count - 1))
        tasks.kernels("accumulate", accumulated.items, num_ops=accumulated.num_ops)
        ring = add_context(tasks, whole.context.scaled(count - 1), ())
    else:
        ring = []
    forward = tasks.kernels(
        "forward", whole.forward.items, num_ops=whole.forward.num_ops, waits=ring
    )
    ring = add_context(tasks, whole.context, ())
    ends: list[int] = []
    last = forward
    for index, stretch in enumerate(reversed(stretches)):
        last = tasks.kernels(
            f"backward_{index}",
            stretch.backward.items,
            num_ops=stretch.backward.num_ops,
            waits=ring if index == len(stretches) - 1 else (),
            phase=Pass.BACKWARD,
        )
        ends.extend(dp.reduce(tasks, [stretch], last, share=dp.overlap_fraction))
    ends.extend(dp.reduce(tasks, [whole], last, share=1 - dp.overlap_fraction))
    dp.update(tasks, [whole], [last, *ends])
    return tasks


def _stretches(
    model: TransformerModel, builder: ChunkBuilder, dp: DataParallel, whole: Chunk
) -> list[Chunk]:
    """The model in forward order, cut where gradient buckets may close."""
    blocks = list(model.blocks())
    parts = 1
    if dp.overlap_fraction > 0 and dp.size > 1:
        parts = min(dp.bucket_count(whole), MAX_STRETCHES, whole.num_layers)
    if parts == 1:
        return [whole]
    first, last = _ends(blocks)
    pieces = split_layers(model.layer_kinds(), parts)
    pieces[0] = [*first, *pieces[0]]
    pieces[-1] = [*pieces[-1], *last]
    return [builder.build(piece) for piece in pieces]


def _ends(blocks: Sequence[Block]) -> tuple[list[Block], list[Block]]:
    """Blocks before the first layer and after the last one."""
    places = [i for i, block in enumerate(blocks) if block.is_layer]
    return list(blocks[: places[0]]), list(blocks[places[-1] + 1 :])
