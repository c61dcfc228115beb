"""Bytes of weights, gradients and optimiser state, by what a stack keeps and a plan shards.

Sources: Megatron's theoretical_memory_usage.py and dist_optimizer page, the ZeRO paper's accounting
(what a stack without further facts gets), PyTorch's FSDP. Options of a stack profile read here:
`accumulates_fp32` and `keeps_16_bit_gradients` (bf16 runs), `copies_buckets` (reduction through
buffers of its own), `gradient_as_bucket_view`.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.hardware.records import Dtype
from perfmodel.memory.stages import Parameters
from perfmodel.plan.records import Plan, Shard
from perfmodel.plan.stack import Stack
from perfmodel.workload.records import Workload

_FP32 = 4.0
# Bytes of fp32 state per parameter beside the master weight.
_MOMENT_BYTES = {
    "adam": 8.0, "adamw": 8.0, "lamb": 8.0, "novograd": 4.0, "adafactor": 0.0,
    "sgd": 0.0, "momentum": 4.0, "adagrad": 4.0, "rowwise_adagrad": 0.0,
}  # fmt: skip
# FSDP gathers one unit ahead while one computes; a third is alive where gathers are not limited
# (PyTorch's documentation: 2-3 units). Gradients of 1-2 units wait for their reduction.
_GATHERED_UNITS = 2.5
_GRADIENT_UNITS = 1.5
# DeepSpeed stage 3 keeps at most this many gathered elements alive (its max_live_parameters).
_LIVE_ELEMENTS = 1e9
# DeepSpeed reduce bucket, elements (its default); a second one with overlap.
_ZERO_BUCKET_ELEMENTS = 5e8


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Bytes on one rank; `update` exists only during the optimiser's step, without activations."""

    parameters: float
    gradients: float
    optimizer: float
    buffers: float
    update: float = 0.0


def moment_bytes(optimizer: str) -> float:
    """Bytes of optimiser state per parameter, the master weight left out."""
    name = optimizer.lower()
    if name in _MOMENT_BYTES:
        return _MOMENT_BYTES[name]
    if "momentum" in name:
        return _MOMENT_BYTES["momentum"]
    for key in ("adam", "lamb", "adagrad", "sgd"):
        if key in name:
            return _MOMENT_BYTES[key]
    return _MOMENT_BYTES["adam"]


def model_state(parameters: Parameters, workload: Workload, plan: Plan, stack: Stack) -> State:
    """State of the weights of one rank under a plan and a stack.

    Parameters
    ----------
    parameters : Parameters
        What the rank holds before data-parallel sharding.
    workload, plan, stack
        Formats and optimiser; shard level and sizes; gradient format and buckets.

    Returns
    -------
    State
        Bytes by part; frozen weights have neither gradient nor optimiser state.
    """
    if plan.uses_fsdp:
        return _fsdp(parameters, workload, plan, stack)
    keeps_fp32 = workload.precision.is_autocast or workload.precision.activation.num_bytes >= _FP32
    if keeps_fp32 and plan.shard is Shard.NOTHING:
        return _replicated_fp32(parameters, workload, plan, stack)
    return _low_precision(parameters, workload, plan, stack)


def _divisors(plan: Plan) -> tuple[float, float]:
    """Ranks that share dense and expert optimiser state; context parallelism joins data."""
    dense = plan.shard_group or plan.dp * plan.cp
    return float(dense), float(max(1, dense // plan.ep))


def _sharded(parameters: Parameters, plan: Plan, level: Shard) -> float:
    """Trained parameters whose `level` of state this rank keeps."""
    order = list(Shard)
    if order.index(plan.shard) < order.index(level):
        return parameters.trained
    dense, experts = _divisors(plan)
    return parameters.dense / dense + parameters.experts / experts


def _fsdp(parameters: Parameters, workload: Workload, plan: Plan, stack: Stack) -> State:
    compute = min(workload.precision.activation.num_bytes, _FP32)
    reduced = stack.gradient_dtype.num_bytes if stack.gradient_dtype else compute
    shard = _sharded(parameters, plan, Shard.OPTIMIZER)
    frozen = parameters.frozen / _divisors(plan)[0]
    keeps_full = plan.shard is not Shard.PARAMETERS
    unit = min(parameters.largest_unit, parameters.all)
    gathered = parameters.all if keeps_full else min(_GATHERED_UNITS * unit, parameters.all)
    pending = min(_GRADIENT_UNITS * unit, parameters.trained)
    return State(
        parameters=_FP32 * shard + compute * frozen,
        gradients=_FP32 * shard,
        optimizer=moment_bytes(workload.optimizer) * shard,
        buffers=compute * gathered + reduced * pending,
    )


def _replicated_fp32(parameters: Parameters, workload: Workload, plan: Plan, stack: Stack) -> State:
    """Data parallel with fp32 weights: autocast adds a 16-bit copy, DDP its buckets."""
    cached = workload.precision.activation.num_bytes if workload.precision.is_autocast else 0.0
    copies = plan.dp > 1 and not bool(stack.options.get("gradient_as_bucket_view", False))
    return State(
        parameters=(_FP32 + cached) * parameters.all,
        gradients=_FP32 * parameters.trained,
        optimizer=moment_bytes(workload.optimizer) * parameters.trained,
        buffers=_FP32 * parameters.trained if copies else 0.0,
    )


def _low_precision(parameters: Parameters, workload: Workload, plan: Plan, stack: Stack) -> State:
    """16-bit weights beside fp32 masters: Megatron and DeepSpeed."""
    precision = workload.precision
    weight = precision.activation.num_bytes
    if precision.compute in (Dtype.FP8, Dtype.MXFP8, Dtype.NVFP4):
        # Quantised weights and their transposes; a distributed optimiser gathers them in 8 bits
        # and needs no 16-bit copy (Transformer Engine's fp8 parameters).
        quantised = 2 * precision.compute.num_bytes
        weight = quantised + (weight if plan.shard is Shard.NOTHING else 0.0)
    gradient = precision.activation.num_bytes
    master_gradient = 0.0
    if precision.activation is Dtype.BF16 and stack.options.get("accumulates_fp32", False):
        gradient = _FP32 + (gradient if stack.options.get("keeps_16_bit_gradients", False) else 0)
    elif precision.activation is not Dtype.FP32:
        master_gradient = _FP32  # fp32 copy of the gradient shard in front of the update
    state = _sharded(parameters, plan, Shard.OPTIMIZER)
    held = _sharded(parameters, plan, Shard.PARAMETERS)
    master = 0.0 if precision.activation is Dtype.FP32 else _FP32
    return State(
        parameters=weight * (held + parameters.frozen),
        gradients=gradient * _sharded(parameters, plan, Shard.GRADIENTS),
        optimizer=(master + moment_bytes(workload.optimizer)) * state,
        buffers=_zero_buffers(parameters, plan, stack, weight),
        update=master_gradient * state,
    )


def _zero_buffers(parameters: Parameters, plan: Plan, stack: Stack, weight: float) -> float:
    """Buckets: Megatron's are views of its gradient buffer, DeepSpeed's are its own."""
    if plan.dp * plan.cp == 1 or plan.shard is Shard.NOTHING:
        return 0.0
    live = 0.0
    if plan.shard is Shard.PARAMETERS:
        live = weight * min(_LIVE_ELEMENTS, parameters.all)
    if not stack.options.get("copies_buckets", False):
        return live
    bucket = min(_ZERO_BUCKET_ELEMENTS, parameters.trained) * weight
    return live + bucket * (2 if stack.overlaps_gradients else 1)
