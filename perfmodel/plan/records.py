"""The Plan: how a workload is spread over ranks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from perfmodel.errors import InvalidPlanError


class Recompute(StrEnum):
    """Which activations are computed again in backward."""

    NONE = "none"
    SELECTIVE = "selective"  # the attention core only
    FULL = "full"


class Schedule(StrEnum):
    """Pipeline schedules."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"


class Shard(StrEnum):
    """What data-parallel ranks divide among them: ZeRO stages, by what is sharded."""

    NOTHING = "nothing"  # plain data parallel
    OPTIMIZER = "optimizer"  # ZeRO-1, distributed optimiser
    GRADIENTS = "gradients"  # ZeRO-2, SHARD_GRAD_OP
    PARAMETERS = "parameters"  # ZeRO-3, FULL_SHARD


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Parallel sizes and policies; dp * tp * pp * cp is the number of GPUs, ep divides dp * cp.

    `micro_batch` is samples per model replica and forward pass. `shard_group` is the number of
    data-parallel ranks that share one copy of what is sharded (HSDP, hierarchical ZeRO); None
    means all of them.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    vp: int = 1  # model chunks per stage of an interleaved schedule
    cp: int = 1
    ep: int = 1
    sequence_parallel: bool = False
    micro_batch: float = 1
    schedule: Schedule = Schedule.ONE_F_ONE_B
    recompute: Recompute = Recompute.NONE
    shard: Shard = Shard.NOTHING
    shard_group: int | None = None
    uses_fsdp: bool = False  # units gathered one by one (FSDP) rather than DeepSpeed's ZeRO
    lora_rank: int | None = None
    embedding: object | None = None  # a ShardingPlan of embedding tables

    def __post_init__(self) -> None:
        for axis in ("dp", "tp", "pp", "vp", "cp", "ep"):
            size = getattr(self, axis)
            if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= 10**6:
                raise InvalidPlanError(f"{axis} {size!r} is not a whole number between 1 and 10^6")
        if not 0 < self.micro_batch < 1e9:
            raise InvalidPlanError(f"micro_batch {self.micro_batch} is not positive and below 1e9")
        if self.vp > 1 and self.pp == 1:
            raise InvalidPlanError(f"vp {self.vp} needs a pipeline: pp is 1")

    @property
    def num_gpus(self) -> int:
        """GPUs the plan occupies."""
        return self.dp * self.tp * self.pp * self.cp

    def num_micro_batches(self, global_batch: float) -> int:
        """Micro-batches that one replica runs per iteration.

        Raises
        ------
        InvalidPlanError
            If the global batch holds less than one micro-batch per replica.
        """
        count = global_batch / (self.dp * self.micro_batch)
        if count < 1 - 1e-9:
            raise InvalidPlanError(
                f"global_batch {global_batch:g} is smaller than dp {self.dp} x micro_batch "
                f"{self.micro_batch:g}; lower one of them"
            )
        whole = round(count)
        if abs(count - whole) > 1e-6 * count:
            raise InvalidPlanError(
                f"global_batch {global_batch:g} is not a multiple of dp {self.dp} x micro_batch "
                f"{self.micro_batch:g}"
            )
        return whole
