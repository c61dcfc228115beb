"""Every layout of a transformer on a cluster: parallel sizes, chunks, micro-batch, policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfmodel.errors import InputError
from perfmodel.plan.records import Plan, Recompute, Schedule, Shard
from perfmodel.run import Run
from perfmodel.workload.transformer import TransformerModel

AXES = ("tp", "pp", "cp", "ep", "vp", "micro_batch", "recompute", "shard", "sequence_parallel")
"""What a search may vary and what can be held fixed."""
# Ranks of one tensor- or context-parallel group: more were never published to pay off, and beyond
# 64 the pieces of a layer are smaller than a tile of a matrix product.
_MAX_TP = 64
_MAX_CP = 16
_MAX_MICRO_BATCH = 64
RECOMPUTES = tuple(Recompute)
SHARDS = tuple(Shard)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Parallel sizes of a layout; their groups lie on the nodes in one way."""

    tp: int
    pp: int
    cp: int
    ep: int
    dp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Values that are allowed, by axis; an axis that is absent is free."""

    allowed: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for axis, values in self.allowed.items():
            if axis not in AXES:
                raise InputError(f"{axis!r} cannot be fixed; use one of {', '.join(AXES)}")
            if not values:
                raise InputError(f"{axis} is fixed to nothing; give a value")

    def keep(self, axis: str, values: Sequence[Any]) -> list[Any]:
        """Those of `values` that are allowed, in order."""
        if axis not in self.allowed:
            return list(values)
        wanted = {str(v) for v in self.allowed[axis]}
        return [v for v in values if str(v) in wanted]


def divisors(number: int, most: int | None = None) -> list[int]:
    """Divisors of a number up to `most`, ascending.

    Examples
    --------
    >>> divisors(12, 4)
    [1, 2, 3, 4]
    """
    return [n for n in range(1, min(number, most or number) + 1) if number % n == 0]


def shapes(run: Run, limits: Limits) -> Iterator[Shape]:
    """Parallel sizes that divide the GPUs, the heads, the layers, the experts and the batch."""
    model = model_of(run)
    gpus = run.cluster.num_gpus
    experts = model.mixture.num_experts if model.mixture else 1
    for tp in limits.keep("tp", divisors(model.heads, _MAX_TP)):
        if gpus % tp:
            continue
        for pp in limits.keep("pp", _stages(model, gpus // tp)):
            rest = gpus // (tp * pp)
            for cp in limits.keep("cp", _context_sizes(run, rest)):
                dp = rest // cp
                if _replica_samples(run, dp) is None:
                    continue
                for ep in limits.keep("ep", divisors(experts)):
                    if (dp * cp * tp) % ep == 0:
                        yield Shape(tp=tp, pp=pp, cp=cp, ep=ep, dp=dp)


def model_of(run: Run) -> TransformerModel:
    """The transformer of a run. Raises InputError for other families."""
    model = run.workload.model
    if not isinstance(model, TransformerModel):
        raise InputError(f"layouts are searched for transformers, not for a {model.family}")
    return model


def _stages(model: TransformerModel, gpus: int) -> list[int]:
    layers = model.layers + model.encoder_layers
    return divisors(gpus, layers)


def _context_sizes(run: Run, gpus: int) -> list[int]:
    """Ring attention needs a fused kernel that returns its log-sum-exp; older stacks have none."""
    return divisors(gpus, _MAX_CP if run.stack.attention_kernel != "unfused" else 1)


def _replica_samples(run: Run, dp: int) -> int | None:
    samples = run.workload.global_batch / dp
    return int(samples) if samples >= 1 and samples == int(samples) else None


def micro_batches(run: Run, shape: Shape, limits: Limits) -> list[int]:
    """Micro-batches that divide what one replica trains per step."""
    samples = _replica_samples(run, shape.dp)
    assert samples is not None
    return limits.keep("micro_batch", divisors(samples, _MAX_MICRO_BATCH))


def chunk_counts(run: Run, shape: Shape, limits: Limits) -> list[int]:
    """Model chunks per stage: 1, or what divides the layers of a stage."""
    model = model_of(run)
    layers = model.layers + model.encoder_layers
    if shape.pp == 1 or layers % shape.pp:
        return limits.keep("vp", [1])
    return limits.keep("vp", divisors(layers // shape.pp))


def shards(run: Run, shape: Shape, limits: Limits) -> list[int]:
    """Places in `SHARDS` that the stack offers; pipelines shard the optimiser at most."""
    allowed = _offered(run)
    if shape.pp > 1:
        allowed = [s for s in allowed if s in SHARDS[:2]]
    if shape.dp * shape.cp == 1:
        allowed = [Shard.NOTHING]
    return [SHARDS.index(s) for s in limits.keep("shard", allowed)]


def _offered(run: Run) -> list[Shard]:
    """PyTorch has DDP and FSDP, Megatron a distributed optimiser, DeepSpeed every ZeRO stage."""
    if uses_fsdp(run):
        return [Shard.NOTHING, Shard.GRADIENTS, Shard.PARAMETERS]
    if run.stack.name in ("megatron_core", "megatron_2021"):
        return [Shard.NOTHING, Shard.OPTIMIZER]
    return list(SHARDS)


def uses_fsdp(run: Run) -> bool:
    """Whether sharding means FSDP: the run's own plan or stack says so."""
    return run.plan.uses_fsdp or "fsdp" in run.stack.name or run.stack.name == "torchtitan"


def sequence_parallels(shape: Shape, limits: Limits) -> list[bool]:
    """Norms divided along the sequence or not; the same without tensor parallelism."""
    return limits.keep("sequence_parallel", [False, True] if shape.tp > 1 else [False])


def layout_plan(
    run: Run,
    shape: Shape,
    *,
    vp: int = 1,
    micro_batch: float = 1,
    recompute: Recompute = Recompute.NONE,
    shard: Shard = Shard.NOTHING,
    sequence_parallel: bool = False,
) -> Plan:
    """Plan of one layout; sharded by FSDP where the run's own plan or stack does so."""
    return Plan(
        dp=shape.dp, tp=shape.tp, pp=shape.pp, cp=shape.cp, ep=shape.ep, vp=vp,
        sequence_parallel=sequence_parallel,
        micro_batch=micro_batch,
        schedule=Schedule.INTERLEAVED if vp > 1 else Schedule.ONE_F_ONE_B,
        recompute=recompute,
        shard=shard,
        uses_fsdp=uses_fsdp(run) and shard in (Shard.GRADIENTS, Shard.PARAMETERS),
        lora_rank=run.plan.lora_rank,
    )  # fmt: skip
