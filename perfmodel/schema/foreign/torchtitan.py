"""torchtitan TOML: a model's flavour, parallel degrees, batch, checkpointing, compile, float8."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from perfmodel.errors import InputError
from perfmodel.schema.document import read_text
from perfmodel.schema.foreign.fields import Fields, Foreign, flatten

# (name, flavor) of torchtitan's model registry that the catalogue knows.
_MODELS = {
    ("llama3", "8b"): "llama3_8b", ("llama3", "70b"): "llama3_70b",
    ("llama3", "405b"): "llama3_405b", ("llama2", "7b"): "llama2_7b",
    ("llama2", "13b"): "llama2_13b", ("llama2", "70b"): "llama2_70b",
    ("deepseek_v3", "671b"): "deepseek_v3",
}  # fmt: skip
_SCHEDULES = {"gpipe": "gpipe", "1f1b": "1f1b", "interleaved1f1b": "interleaved"}
_HARMLESS = re.compile(
    r"job\..*|profiling\..*|metrics\..*|checkpoint\..*|lr_scheduler\..*|comm\..*|debug\..*|"
    r"optimizer\.(lr|eps|beta.*|weight_decay|implementation|early_step.*)|training\.(dataset.*|"
    r"steps|seed|deterministic|gc_.*|warmup_steps|data_parallel.*|dataset_path|max_norm|dtype|"
    r"mixed_precision_reduce|debug.*)|model\.(tokenizer.*|hf_assets.*|norm_type|print_.*|"
    r"tokenizer_path|vocab_size)|validation\..*|fault_tolerance\..*|experimental\.custom.*|"
    r"experimental\.pipeline_parallel_split.*|float8\.(filter_fqns|emulate|moe.*)|"
    r"quantize\..*\.(filter_fqns|emulate|recipe_name)|compile\.(components|backend)|"
    r"memory_estimation\..*|parallelism\.(disable_loss_parallel|enable_compiled_autograd|"
    r"pipeline_parallel_microbatch.*|context_parallel_rotate.*|module_fqns.*|"
    r"pipeline_parallel_(first|last).*|expert_tensor.*|pipeline_parallel_expert.*)|"
    r"activation_checkpoint\.(per_op.*|early_stop|preserve.*|determinism.*|debug|memory.*|.*_fqns)"
)
_NOT_MODELLED = {
    r"training\.enable_cpu_offload": "parameters are taken to stay on the device",
    r"parallelism\.(module_fqns.*|pipeline_parallel_(first|last).*|pipeline_parallel_split.*)|"
    r"experimental\.pipeline_parallel_split.*": "layers are dealt evenly to stages",
    r"parallelism\.expert_tensor_parallel_degree": "experts are not divided by tensor parallelism",
    r"quantize\.(grouped|.*moe).*": "experts run in the format of the other linears",
    r"float8\.enable_fsdp_float8_all_gather|quantize\..*enable_fsdp_float8_all_gather": "parameters"
    " are gathered in 16 bits",
}


def read_torchtitan(path: Path) -> Foreign:
    """Model, plan, batch and stack of a torchtitan training configuration.

    Raises
    ------
    InputError
        One sentence naming file and setting.
    """
    fields = Fields(str(path), flatten(_toml(path)))
    if not any(name.startswith(("training.", "parallelism.", "model.")) for name in fields.values):
        raise InputError(f"{path}: is no torchtitan configuration: it has no [model] or [training]")
    foreign = Foreign(str(path))
    foreign.stack["name"] = "torchtitan"
    _model(fields, foreign)
    _plan(fields, foreign)
    _schedule(fields, foreign)
    _stack(fields, foreign)
    fields.warn_of(foreign, _NOT_MODELLED)
    fields.harmless(_HARMLESS)
    fields.report_rest(foreign)
    return foreign


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: is not valid TOML ({error})") from None
    except RecursionError:
        raise InputError(f"{path}: is nested too deep for a configuration") from None


def _model(fields: Fields, foreign: Foreign) -> None:
    name, flavor = fields.text("model.name"), fields.text("model.flavor")
    workload = foreign.workload
    known = _MODELS.get((str(name).lower(), str(flavor).lower()))
    if known is not None:
        workload["name"] = known
    optimizer = fields.text("optimizer.name")
    foreign.set_known(workload, {
        "seq": fields.positive("training.seq_len"),
        "precision": _precision(fields),
        "optimizer": None if optimizer is None else optimizer.lower(),
    })  # fmt: skip


def _precision(fields: Fields) -> str:
    converters = str(fields.first("model.converters") or "").lower()
    enabled = fields.flag("float8.enable_float8_linear")
    if "mx" in converters:
        return "mxfp8"
    if "float8" in converters or enabled:
        return "fp8"
    parameter = fields.text("training.mixed_precision_param") or "bfloat16"  # its default
    return "tf32" if "32" in parameter else "bf16"


def _degree(fields: Fields, name: str) -> int | None:
    """A parallel degree from [parallelism], or from where older versions kept it."""
    sections = ("parallelism", "training", "experimental")
    return fields.whole(*(f"{section}.{name}" for section in sections))


def _plan(fields: Fields, foreign: Foreign) -> None:
    plan = foreign.plan
    plan["tp"] = max(1, _degree(fields, "tensor_parallel_degree") or 1)
    plan["pp"] = max(1, _degree(fields, "pipeline_parallel_degree") or 1)
    plan["cp"] = max(1, _degree(fields, "context_parallel_degree") or 1)
    plan["ep"] = max(1, _degree(fields, "expert_parallel_degree") or 1)
    plan["sequence_parallel"] = plan["tp"] > 1  # its tensor-parallel plan always does
    shard = _degree(fields, "data_parallel_shard_degree")
    replicas = _degree(fields, "data_parallel_replicate_degree") or 1
    if shard in (0, 1) and replicas > 1:
        plan["zero_stage"] = 0
    else:
        never = fields.text("parallelism.fsdp_reshard_after_forward") == "never"
        plan |= {"fsdp": True, "shard": "gradients" if never else "parameters"}
        if replicas > 1:
            plan |= {"shard_group": shard} if shard and shard > 0 else {"replicas": replicas}
    fields.first("parallelism.fsdp_reshard_after_forward")
    plan["recompute"] = _recompute(fields, foreign)
    _batch(fields, foreign)


def _batch(fields: Fields, foreign: Foreign) -> None:
    """Local batch of a rank; a pipeline cuts it into micro-batches of one sample."""
    local = fields.positive("training.local_batch_size", "training.batch_size")
    total = fields.whole("training.global_batch_size")
    size = fields.positive("parallelism.pipeline_parallel_microbatch_size") or 1
    if local and foreign.plan["pp"] > 1:
        foreign.batch |= {"micro": size, "accumulation": max(1, local // size)}
    elif local:
        foreign.batch["micro"] = local
    if total and total > 0:
        foreign.batch["global"] = total


def _recompute(fields: Fields, foreign: Foreign) -> str:
    mode = fields.text("activation_checkpoint.mode") or "selective"
    option = fields.text("activation_checkpoint.selective_ac_option") or "op"
    if mode == "selective":
        how = "operators chosen one by one" if option == "op" else f"every {option}th layer"
        foreign.notes.append(
            f"selective activation checkpointing ({how}): taken as recomputing attention"
        )
    return mode if mode in ("none", "full", "selective") else "none"


def _schedule(fields: Fields, foreign: Foreign) -> None:
    name = fields.text("parallelism.pipeline_parallel_schedule",
                       "experimental.pipeline_parallel_schedule")  # fmt: skip
    per_stage = fields.positive("parallelism.pipeline_parallel_layers_per_stage")
    if foreign.plan["pp"] == 1:
        return
    known = _SCHEDULES.get((name or "1f1b").lower())
    if known is None:
        foreign.not_modelled("pipeline_parallel_schedule", name, "interleaved 1F1B stands in")
        known = "interleaved"
    if known == "interleaved":
        foreign.plan["vp"] = 2  # two stages a rank unless layers per stage say otherwise
        if per_stage is not None:
            foreign.plan["layers_per_chunk"] = per_stage
    foreign.plan["schedule"] = known


def _stack(fields: Fields, foreign: Foreign) -> None:
    compiled = fields.flag("compile.enable", "training.compile")
    if not compiled:
        foreign.stack["name"] = "pytorch_fsdp"  # the same blocks, eager
    flag = fields.first("parallelism.enable_async_tensor_parallel",
                        "experimental.enable_async_tensor_parallel")  # fmt: skip
    if flag is True:
        foreign.plan["async_tp"] = True
    reduce = fields.text("training.mixed_precision_reduce")
    if reduce is not None:
        foreign.stack["gradient_dtype"] = "fp32" if "32" in reduce else "bf16"
    clip = fields.number("training.max_norm")
    if clip is not None:
        foreign.stack["clips_gradients"] = clip > 0
