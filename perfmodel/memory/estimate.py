"""Peak memory of every class of ranks, and the verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfmodel.hardware.records import Cluster
from perfmodel.memory.activations import Rules, Saved, saved_by_block
from perfmodel.memory.overheads import ALLOCATOR_SHARE, communicator_bytes, framework_bytes
from perfmodel.memory.records import MemoryEstimate, Part
from perfmodel.memory.stages import Stage, parameters_of, split_into_stages
from perfmodel.memory.states import model_state
from perfmodel.memory.tables import dense_blocks, table_bytes_by_rank
from perfmodel.plan.records import Plan, Recompute, Schedule
from perfmodel.plan.stack import Stack
from perfmodel.workload.records import Workload

# Spread of ln(true / estimate): allocator 2-8 %, context and communicators +-1 GiB, working
# buffers of kernels; unknown stacks keep other tensors and buckets.
_LOG_SIGMA = 0.08
_UNKNOWN_STACK_LOG_SIGMA = 0.15
_Z80 = 1.2816  # 80 % of a normal distribution lies within this many standard deviations


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    workload: Workload
    plan: Plan
    stack: Stack
    cluster: Cluster
    rules: Rules
    framework: float
    communicators: float


def estimate_memory(
    workload: Workload, plan: Plan, stack: Stack, cluster: Cluster
) -> MemoryEstimate:
    """Peak device memory of the fullest rank, by part, with an out-of-memory verdict.

    Parameters
    ----------
    workload, plan, stack, cluster
        The run. Batch sizes are samples, memory is the device's `memory_bytes`.

    Returns
    -------
    MemoryEstimate
        Bytes; the verdict is the probability that the peak stays within the capacity.

    Raises
    ------
    InvalidPlanError
        If the plan does not divide the global batch.

    Notes
    -----
    Counted from what stacks allocate (states.py, activations.py, overheads.py); nothing is fitted.
    Device memory as nvidia-smi shows it: context, communicators and allocator included.
    """
    setting = _Setting(
        workload=workload,
        plan=plan,
        stack=stack,
        cluster=cluster,
        rules=Rules.of(workload.precision, plan, stack),
        framework=framework_bytes(cluster, stack),
        communicators=communicator_bytes(plan, cluster, stack),
    )
    ranks = _by_stage(setting)
    tables = table_bytes_by_rank(workload, plan)
    if tables:
        (common,) = ranks.values()
        ranks = {name: _sum(common, parts) for name, parts in tables.items()}
    totals = {name: _total(parts) for name, parts in ranks.items()}
    fullest = max(totals, key=lambda name: totals[name])
    peak = totals[fullest]
    sigma = math.hypot(_LOG_SIGMA, 0.0 if stack.is_known else _UNKNOWN_STACK_LOG_SIGMA)
    capacity = cluster.gpu.memory_bytes
    spread = math.exp(_Z80 * sigma)
    return MemoryEstimate(
        peak_bytes=peak,
        capacity_bytes=capacity,
        by_rank=totals,
        by_part={str(part): value for part, value in ranks[fullest].items() if value > 0},
        interval=(peak / spread, peak * spread),
        log_sigma=sigma,
        probability_fits=_normal_cdf(math.log(capacity / peak) / sigma),
        assumptions=_assumptions(plan),
    )


def _normal_cdf(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def _sum(common: dict[Part, float], more: dict[Part, float]) -> dict[Part, float]:
    parts = {part: common.get(part, 0.0) + more.get(part, 0.0) for part in Part}
    parts[Part.ALLOCATOR] += ALLOCATOR_SHARE * more.get(Part.BUFFERS, 0.0)
    return parts


def _total(parts: dict[Part, float]) -> float:
    return sum(parts.values())


def _by_stage(setting: _Setting) -> dict[str, dict[Part, float]]:
    plan = setting.plan
    blocks = dense_blocks(setting.workload.model)
    saved = {id(b): saved_by_block(b, setting.rules) for b in blocks}
    stages = split_into_stages(blocks, plan.pp)
    if plan.pp == 1:
        return {"every rank": _stage_parts(stages[0], saved, setting)}
    return {f"stage {s.index}": _stage_parts(s, saved, setting) for s in stages}


def _stage_parts(stage: Stage, saved: dict[int, Saved], setting: _Setting) -> dict[Part, float]:
    plan, workload = setting.plan, setting.workload
    parameters = parameters_of(stage, plan, plan.pp)
    state = model_state(parameters, workload, plan, setting.stack)
    held = transient = logits = 0.0
    for block, repeats in stage.parts:
        mine = saved[id(block)]
        mode = plan.recompute if block.is_layer else Recompute.NONE
        held += mine.held(mode) * repeats
        transient = max(transient, mine.transient(mode))
        logits = max(logits, mine.logits)
    in_flight = micro_batches_in_flight(plan, workload.global_batch, stage.index)
    boundary = next((s.boundary for s in saved.values()), 0.0)
    messages = 2 * boundary if plan.pp > 1 else 0.0  # one received, one being sent
    activations = plan.micro_batch * (held * in_flight + transient + messages)
    losses = logits * plan.micro_batch
    parts = {
        Part.PARAMETERS: state.parameters,
        Part.GRADIENTS: state.gradients,
        # What the step needs for itself takes the place of activations, which are gone by then.
        Part.OPTIMIZER: state.optimizer + max(0.0, state.update - activations - losses),
        Part.ACTIVATIONS: activations,
        Part.LOGITS: losses,
        Part.BUFFERS: state.buffers,
    }
    parts[Part.ALLOCATOR] = ALLOCATOR_SHARE * _total(parts)
    parts[Part.FRAMEWORK] = setting.framework + setting.communicators
    return parts


def micro_batches_in_flight(plan: Plan, global_batch: float, stage: int) -> float:
    """Micro-batches whose activations stage `stage` holds at its peak.

    1F1B: the stages behind it plus its own; GPipe: all; interleaved with v chunks: the first stage
    holds p (1 + (p - 1) / (p v)) micro-batches' worth (Megatron, theoretical_memory_usage.py).
    """
    count = plan.num_micro_batches(global_batch)
    if plan.pp == 1:
        return 1.0
    if plan.schedule is Schedule.GPIPE:
        return float(count)
    behind = plan.pp - stage - 1
    if plan.vp > 1:
        return min((2 * behind + (plan.vp - 1) * plan.pp + 1) / plan.vp, float(count))
    return float(min(behind + 1, count))


def _assumptions(plan: Plan) -> tuple[str, ...]:
    notes = []
    if plan.pp > 1:
        notes.append("memory: layers are dealt evenly to stages")
    if plan.ep > 1:
        notes.append("memory: tokens are spread evenly over experts")
    return tuple(notes)
