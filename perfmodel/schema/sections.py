"""From the four checked sections of a RUN file to records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perfmodel.errors import InputError
from perfmodel.hardware.clusters import resolve_cluster
from perfmodel.hardware.records import Cluster, Dtype
from perfmodel.plan.records import Plan, Recompute, Schedule, Shard
from perfmodel.plan.stack import Stack
from perfmodel.plan.stacks import (
    generic_stack,
    list_stacks,
    select_stack,
    stack_by_name,
    with_attention_kernel,
)
from perfmodel.schema.checker import check, definition
from perfmodel.schema.document import read_document
from perfmodel.schema.models import named_model
from perfmodel.schema.parts import (
    OPTIMIZER_NAMES,
    THROUGHPUT_UNITS,
    embedding_from_placements,
    embedding_from_rule,
    model_from_fields,
    optimizer_from_text,
    precision_from_text,
    usual_micro_batch,
)
from perfmodel.schema.place import Section, nearest
from perfmodel.workload.records import Workload

_TRAINING = (
    "global_batch", "precision", "optimizer", "filled_fraction", "is_forward_backward_only",
)  # fmt: skip
_SUFFIXES = (".yaml", ".yml", ".json")
# Dimensions of a named model that may be changed, and the builder that has them.
_CHANGEABLE = {"seq": "transformer", "attention_kernel": "transformer", "image": "cnn"}


@dataclass(slots=True)
class Said:
    """Notes and warnings collected while sections are read."""

    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def follow_path(section: Section) -> Section:
    """The section itself, or the document it points to, relative to its file."""
    value = section.node.value
    if not isinstance(value, str) or not _is_path(value):
        return section
    path = Path(section.file).parent / value
    if not path.exists():
        raise section.fail(f"{section.path} names the file {value!r}, which does not exist")
    target = Section(str(path), section.path, read_document(path))
    if not isinstance(target.node.value, dict | list):
        raise target.fail(f"is no {section.path} section: it holds no named fields")
    return target


def _is_path(text: str) -> bool:
    return text.lower().endswith(_SUFFIXES) or "/" in text


def workload_from(section: Section, plan: Section, said: Said) -> Workload:
    """Workload of a checked section; `plan` says whether adapters are trained."""
    values = section.node.plain()
    with section.locating():
        if isinstance(values, str):
            values = {"name": values}
        name, family, fields, training = _described(values, said)
        model, notes, warnings = model_from_fields(family, fields, lora=_trains_adapters(plan))
        said.notes += notes
        said.warnings += warnings
        precision, note = precision_from_text(training["precision"])
        said.notes += [note] if note else []
        return Workload(
            name=name,
            model=model,
            global_batch=training["global_batch"],
            precision=precision,
            optimizer=_optimizer(training.get("optimizer", "adam")),
            throughput_unit=THROUGHPUT_UNITS[family],
            filled_fraction=training.get("filled_fraction", 1.0),
            is_forward_backward_only=training.get("is_forward_backward_only", False),
        )


def _optimizer(name: str) -> str:
    key = name.lower().replace("-", "_").replace(" ", "_")
    if key not in OPTIMIZER_NAMES:
        raise InputError(f"optimizer {name!r} is not known{nearest(key, OPTIMIZER_NAMES)}")
    return optimizer_from_text(key)[0]


def _described(
    values: Mapping[str, Any], said: Said
) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    """Name, family, dimensions and training of an inline or a named model."""
    training = {k: values[k] for k in _TRAINING if k in values}
    others = {k: v for k, v in values.items() if k not in (*_TRAINING, "builder", "name")}
    if "name" not in values:
        family = values["builder"]
        return str(values.get("arch", family)), family, others, training
    known = named_model(values["name"])
    for key in others:
        if _CHANGEABLE[key] != known.builder:
            raise InputError(f"{key} is no dimension of {known.name}, which is a {known.builder}")
    missing = {k: v for k, v in known.training.items() if k not in training}
    said.notes += [f"{k} {v}: as {known.title} is usually trained" for k, v in missing.items()]
    return known.name, known.builder, {**known.dimensions, **others}, {**missing, **training}


def _trains_adapters(plan: Section) -> bool:
    return isinstance(plan.node.value, dict) and bool(plan.node.plain().get("lora"))


def stack_from(section: Section, workload: Section, family: str, said: Said) -> Stack:
    """Stack of a checked section: a name, or a name or description with fields changed."""
    values = section.node.plain()
    with section.locating():
        if isinstance(values, str):
            values = {"name": values}
        stack = _base_stack(values, family, said)
        changes = {k: v for k, v in values.items() if k not in ("name", "software", "year")}
        if "gradient_dtype" in changes:
            changes["gradient_dtype"] = Dtype(changes["gradient_dtype"])
        if "options" in changes:
            changes["options"] = {**stack.options, **changes["options"]}
        stack = replace(stack, **changes)
    kernel = workload.node.plain()
    if isinstance(kernel, dict) and "attention_kernel" in kernel:
        stack = with_attention_kernel(stack, kernel["attention_kernel"])
    return stack


def _base_stack(values: Mapping[str, Any], family: str, said: Said) -> Stack:
    if "name" in values:
        stack = stack_by_name(values["name"])
        served = next(p.families for p in list_stacks() if p.stack.name == stack.name)
        if family not in served:
            usual = [p.stack.name for p in list_stacks() if family in p.families]
            raise InputError(
                f"stack {stack.name!r} runs {', '.join(served)}, not {family}; "
                f"use one of {', '.join(usual)}"
            )
        return stack
    if "software" not in values:
        return generic_stack(family, values.get("year"))
    stack, warning = select_stack(values["software"], family, year=values.get("year"))
    said.warnings += [warning] if warning else []
    return stack


def cluster_from(section: Section) -> Cluster:
    """Cluster of a checked section: a node, nodes, or GPUs and links in words."""
    values = section.node.plain()
    with section.locating():
        if isinstance(values, str):
            return resolve_cluster(values)
        known = None
        if "catalogue" in values:
            from perfmodel.hardware.user_yaml import load_user_catalogue

            known = load_user_catalogue(Path(section.file).parent / values.pop("catalogue"))
        return resolve_cluster(values, known=known)


_NAMED_PLANS: dict[str, dict[str, Any]] = {
    "data_parallel": {},
    "zero1": {"zero_stage": 1},
    "zero2": {"zero_stage": 2},
    "zero3": {"zero_stage": 3},
    "fsdp": {"fsdp": True},
}
_SHARDS = (Shard.NOTHING, Shard.OPTIMIZER, Shard.GRADIENTS, Shard.PARAMETERS)


def plan_from(
    section: Section, workload: Workload, stack: Stack, cluster: Cluster, said: Said
) -> Plan:
    """Plan of a checked section; dp and micro_batch are filled in where they are left out."""
    values = section.node.plain()
    if isinstance(values, str):
        if values not in _NAMED_PLANS:
            near = nearest(values, _NAMED_PLANS)
            raise section.fail(f"plan {values!r} is not known{near}")
        values = dict(_NAMED_PLANS[values])
    with section.locating():
        for contradiction in _contradictions(values, workload.model.family):
            raise InputError(contradiction)
        sizes = {a: values.get(a, 1) for a in ("tp", "pp", "cp")}
        sizes["dp"] = values.get("dp") or max(
            1, cluster.num_gpus // (sizes["tp"] * sizes["pp"] * sizes["cp"])
        )
        plan = Plan(
            **sizes,
            vp=values.get("vp", 1),
            ep=values.get("ep", 1),
            sequence_parallel=values.get("sequence_parallel", False),
            micro_batch=_micro_batch(values, workload, sizes, said),
            schedule=_schedule(values),
            recompute=Recompute(values.get("recompute", "none")),
            shard=_shard(values),
            shard_group=values.get("shard_group"),
            uses_fsdp=values.get("fsdp", False),
            lora_rank=getattr(workload.model, "lora_rank", None),
        )
        plan.num_micro_batches(workload.global_batch)  # raises where it does not divide
    return replace(plan, embedding=_embedding(section, values, workload, plan, stack))


def _contradictions(values: Mapping[str, Any], family: str) -> Iterator[str]:
    """Fields of a plan that do not go together."""
    for first, second in (("shard", "zero_stage"), ("micro_batch", "num_microbatches")):
        if first in values and second in values:
            yield f"{second} says the same as {first}; give one of them"
    if values.get("fsdp") and values.get("zero_stage", 3) < 2:
        yield f"zero_stage {values['zero_stage']} is not FSDP; use 2, 3 or leave it out"
    is_interleaved = values.get("schedule") == "interleaved"
    if is_interleaved and values.get("vp", 1) == 1:
        yield "schedule interleaved needs vp, the model chunks of a stage, above 1"
    if values.get("vp", 1) > 1 and values.get("schedule", "interleaved") != "interleaved":
        yield f"schedule {values['schedule']} has one model chunk a stage; use vp 1 or interleaved"
    if values.get("lora") and family != "transformer":
        yield f"lora is for transformers, the workload is a {family}"
    if "embedding_sharding" in values and family != "dlrm":
        yield f"embedding_sharding places tables, which a {family} does not have"


def _micro_batch(
    values: Mapping[str, Any], workload: Workload, sizes: Mapping[str, int], said: Said
) -> float:
    per_replica = workload.global_batch / sizes["dp"]
    if "micro_batch" in values:
        return float(values["micro_batch"])
    if "num_microbatches" in values:
        return per_replica / float(values["num_microbatches"])
    size = usual_micro_batch(workload.model, per_replica, sizes["pp"])
    said.notes.append(f"micro_batch not stated: {size:g} assumed")
    return size


def _schedule(values: Mapping[str, Any]) -> Schedule:
    usual = "interleaved" if values.get("vp", 1) > 1 else "1f1b"
    return Schedule(values.get("schedule", usual))


def _shard(values: Mapping[str, Any]) -> Shard:
    if "shard" in values:
        return Shard(values["shard"])
    if "zero_stage" in values:
        return _SHARDS[values["zero_stage"]]
    return Shard.PARAMETERS if values.get("fsdp") else Shard.NOTHING


def _embedding(
    section: Section, values: Mapping[str, Any], workload: Workload, plan: Plan, stack: Stack
) -> object | None:
    """Sharding plan: placements, a rule, or what the stack does when nobody tells it."""
    if "embedding_sharding" not in values:
        return embedding_from_rule(None, workload.model, plan.num_gpus, stack.options)
    placed = follow_path(section.child("embedding_sharding"))
    content = placed.node.plain()
    with placed.locating():
        if isinstance(content, str):
            return _named_rule(content, workload, plan, stack)
        check(placed, definition("placements"))
        return embedding_from_placements(content, workload.model, plan.num_gpus)


EMBEDDING_RULES = (
    "table_wise", "row_wise", "column_wise", "table_row_wise", "hybrid", "replicated",
    "size_balanced", "lookup_balanced", "round_robin", "serpentine", "single",
)  # fmt: skip


def _named_rule(name: str, workload: Workload, plan: Plan, stack: Stack) -> object | None:
    """Sharding plan of a named rule; table_wise leaves the choice of ranks to the stack."""
    if name not in EMBEDDING_RULES:
        near = nearest(name, EMBEDDING_RULES)
        raise InputError(f"embedding_sharding {name!r} is no rule{near}; use one of them or a path")
    if name == "table_wise":
        return embedding_from_rule(name, workload.model, plan.num_gpus, stack.options)
    from perfmodel.plan.placement_rules import PlacementRule, place

    tables = getattr(workload.model, "tables", ())
    return place(name, tables, plan.num_gpus, PlacementRule.of(stack.options))
