"""The plan of a published run: parallel sizes, sharding, recompute and micro-batch from a row."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from perfmodel.errors import InputError, RefusedError
from perfmodel.hardware.records import Cluster
from perfmodel.plan.records import Plan, Recompute, Schedule, Shard
from perfmodel.plan.stack import Stack
from perfmodel.schema.parts import embedding_from_rule, usual_micro_batch
from perfmodel.workload.records import Workload

Row: TypeAlias = Mapping[str, Any]

_AXES = ("tp", "pp", "cp")


@dataclass(slots=True)
class Remarks:
    """What is said about a row while it is read."""

    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def note(self, text: str | None) -> None:
        """Keep an assumption, if there is one."""
        if text:
            self.notes.append(text)


def number_of(value: Any, name: str) -> float:
    """`value` as a positive number. Raises InputError that names the field."""
    ok = isinstance(value, int | float) and not isinstance(value, bool)
    if not ok or not math.isfinite(value) or value <= 0:
        raise InputError(f"{name} {value!r} is not a positive number")
    return float(value)


def count_of(value: Any, name: str) -> int | None:
    """A count that may be absent, by null or by a word such as "not stated"."""
    if value is None or isinstance(value, str | bool):
        return None
    number = number_of(value, name)
    if number != int(number):
        raise InputError(f"{name} {value!r} is not a whole number")
    return int(number)


def plan_from_row(
    row: Row, workload: Workload, stack: Stack, cluster: Cluster, remarks: Remarks
) -> Plan:
    """Plan of a row whose other parts are known.

    Raises
    ------
    InputError, RefusedError
        If a size is not a whole number, or the sizes do not divide the GPUs.
    """
    parallel: Row = row["parallelism"]
    sizes = _sizes(parallel, cluster, remarks)
    shard, uses_fsdp, group = _sharding(parallel, cluster, sizes["dp"], remarks)
    vp, schedule = _schedule(parallel, sizes["pp"])
    plan = Plan(
        **sizes,
        vp=vp,
        ep=count_of(parallel.get("ep"), "parallelism.ep") or 1,
        sequence_parallel=_sequence_parallel(parallel, stack, sizes["tp"]),
        micro_batch=_micro_batch(row, parallel, workload, sizes, remarks),
        schedule=schedule,
        recompute=_recompute(parallel, stack, remarks),
        shard=shard,
        shard_group=group,
        uses_fsdp=uses_fsdp,
        lora_rank=getattr(workload.model, "lora_rank", None),
    )
    text = str(parallel.get("embedding_sharding") or "")
    embedding = embedding_from_rule(text, workload.model, plan.num_gpus, stack.options)
    if embedding is not None and not text:
        remarks.note(f"embedding sharding not stated: the rule of {stack.title} assumed")
    return replace(plan, embedding=embedding)


def _sizes(parallel: Row, cluster: Cluster, remarks: Remarks) -> dict[str, int]:
    """dp, tp, pp, cp; a product known only as such goes to tp inside a node, the rest to pp."""
    given = {a: count_of(parallel.get(a), f"parallelism.{a}") for a in ("dp", *_AXES)}
    product = count_of(parallel.get("model_parallel_product"), "parallelism.model_parallel_product")
    gpus = cluster.num_gpus
    known = math.prod(given[a] or 1 for a in _AXES)
    if given["dp"] and product is None and gpus % given["dp"] == 0:
        product = gpus // given["dp"]
    unknown = [a for a in _AXES if given[a] is None]
    if product and product > known and product % known == 0 and unknown:
        given.update(_divided(product // known, unknown, cluster))
        split = ", ".join(f"{a} {given[a]}" for a in unknown)
        remarks.note(
            f"only the product {product} of model-parallel sizes is known: {split} assumed"
        )
    sizes = {a: given[a] or 1 for a in _AXES}
    model_parallel = math.prod(sizes.values())
    if gpus % model_parallel:
        raise RefusedError(
            f"parallelism tp {sizes['tp']} x pp {sizes['pp']} x cp {sizes['cp']} does not divide "
            f"the {gpus} GPUs of hardware; correct one of them"
        )
    dp = gpus // model_parallel
    if given["dp"] not in (None, dp):
        remarks.warnings.append(
            f"parallelism.dp {given['dp']} does not agree with {gpus} GPUs: dp {dp} used"
        )
    return {"dp": dp, **sizes}


def _divided(product: int, unknown: list[str], cluster: Cluster) -> dict[str, int]:
    first = math.gcd(product, cluster.gpus_per_node) if "tp" in unknown else 1
    rest = product // first
    sizes = dict.fromkeys(unknown, 1)
    if "tp" in unknown:
        sizes["tp"] = first
    last = "pp" if "pp" in unknown else unknown[-1]
    sizes[last] *= rest
    return sizes


_SHARDS = (Shard.NOTHING, Shard.OPTIMIZER, Shard.GRADIENTS, Shard.PARAMETERS)


def _sharding(
    parallel: Row, cluster: Cluster, dp: int, remarks: Remarks
) -> tuple[Shard, bool, int | None]:
    """What is sharded, whether by FSDP, and among how many ranks."""
    stage = parallel.get("zero_stage")
    shard = Shard.NOTHING
    if isinstance(stage, int) and not isinstance(stage, bool) and 0 <= stage <= 3:
        shard = _SHARDS[stage]
    elif stage is not None:
        remarks.warnings.append(f"parallelism.zero_stage {stage!r} is not 0 to 3: 0 assumed")
    fsdp = parallel.get("fsdp")
    text = "" if fsdp in (None, False) else str(fsdp).lower()
    uses_fsdp = text not in ("", "none", "no", "no_shard", "false")
    group = None
    if uses_fsdp:
        by_gradients = "grad_op" in text or "zero2" in text
        shard = Shard.GRADIENTS if by_gradients else Shard.PARAMETERS
        group = cluster.gpus_per_node if "hybrid" in text or "hsdp" in text else None
    stated = parallel.get("zero_group")
    if isinstance(stated, int) and not isinstance(stated, bool) and stated > 0:
        group = stated
    if group is not None and group >= dp:
        group = None
    return shard, uses_fsdp, group


def _schedule(parallel: Row, pp: int) -> tuple[int, Schedule]:
    vp = count_of(parallel.get("vp"), "parallelism.vp") or 1
    text = str(parallel.get("pp_schedule") or "").lower()
    if pp == 1:
        return 1, Schedule.ONE_F_ONE_B
    if vp > 1:
        return vp, Schedule.INTERLEAVED
    return 1, Schedule.GPIPE if "gpipe" in text else Schedule.ONE_F_ONE_B


def _sequence_parallel(parallel: Row, stack: Stack, tp: int) -> bool:
    """As stated; else the stack's usual (`usual_sequence_parallel` of its options), else none."""
    stated = parallel.get("sequence_parallel")
    if isinstance(stated, bool):
        return stated and tp > 1
    return tp > 1 and bool(stack.options.get("usual_sequence_parallel", False))


_UNSTATED = re.compile(r"^$|not stated|unknown|unpublished")
_RECOMPUTE_WORDS = (
    (Recompute.NONE, r"^(?:none|no|false|off|0|disabled)\b"),
    (Recompute.SELECTIVE, r"select|attn|attention|core"),
    (Recompute.FULL, r"full|true|yes|block|uniform|every|all"),
)


def _recompute(parallel: Row, stack: Stack, remarks: Remarks) -> Recompute:
    """As stated; else the stack's usual (`usual_recompute` of its options), else none."""
    value = parallel.get("activation_recompute")
    stated = "" if value is None else str(value).lower()
    if not _UNSTATED.search(stated):
        for kind, pattern in _RECOMPUTE_WORDS:
            if re.search(pattern, stated):
                return kind
        remarks.warnings.append(f"parallelism.activation_recompute {value!r} is not understood")
    usual = Recompute(str(stack.options.get("usual_recompute", Recompute.NONE)))
    remarks.note(f"recompute not stated: {usual} assumed")
    return usual


def _micro_batch(
    row: Row, parallel: Row, workload: Workload, sizes: Mapping[str, int], remarks: Remarks
) -> float:
    """Samples per pass: as stated, else from the number of passes, else `usual_micro_batch`."""
    per_replica = workload.global_batch / sizes["dp"]
    stated = row.get("micro_batch") or parallel.get("local_batch")
    passes = parallel.get("num_microbatches") or parallel.get("grad_accum")
    if stated is not None:
        size = _stated_micro_batch(row, number_of(stated, "micro_batch"), workload, per_replica)
    elif passes is not None:
        return per_replica / number_of(passes, "parallelism.grad_accum")
    else:
        size = usual_micro_batch(workload.model, per_replica, sizes["pp"])
        remarks.note(f"micro-batch not stated: {size:g} assumed")
    whole = max(1, math.ceil(per_replica / size - 1e-6))
    if abs(whole * size - per_replica) > 1e-6 * per_replica:
        remarks.warnings.append(
            f"micro_batch {size:g} does not divide the {per_replica:g} samples of a replica: "
            f"{whole} passes of {per_replica / whole:g} used"
        )
    return per_replica / whole


def _stated_micro_batch(row: Row, number: float, workload: Workload, per_replica: float) -> float:
    """Rows that count tokens may count the micro-batch in tokens too: where samples cannot fit."""
    unit = str(row.get("batch_unit") or "samples").lower()
    if unit.startswith("token") and number > per_replica:
        return number / float(getattr(workload.model, "seq", 1))
    return number
