"""DeepSpeed JSON: ZeRO stage, batch sizes, precision, buckets.

Names and defaults as in DeepSpeed's configuration page. "auto" leaves a value to the trainer.
"""

from __future__ import annotations

import re
from pathlib import Path

from perfmodel.errors import InputError
from perfmodel.schema.document import read_document
from perfmodel.schema.foreign.fields import Fields, Foreign, flatten

_HARMLESS = re.compile(
    r"scheduler.*|optimizer\.params.*|steps_per_print|wall_clock_breakdown|dump_state|"
    r"tensorboard.*|wandb.*|csv_monitor.*|comet.*|monitor.*|prescale_gradients|"
    r"gradient_predivide_factor|zero_allow_untested_optimizer|zero_force_ds.*|fp16\..*|bf16\..*|"
    r"bfloat16\..*|checkpoint.*|comms_logger.*|disable_allgather|dataloader_drop_last|"
    r"zero_optimization\.(stage3_.*|sub_group_size|contiguous_gradients|round_robin.*|"
    r"reduce_scatter|allgather_partitions|allgather_bucket_size|ignore_unused.*|"
    r"elastic_checkpoint|load_from_fp32.*|legacy_stage1|param_persistence.*|memory_efficient.*|"
    r"use_multi_rank.*|log_trace.*|(offload_\w+)\..*|zero_hpz.*|mics_hier.*)|"
    r"seed|data_types.*|steps|compile\..*|amp\..*|load_universal.*|memory_breakdown|"
    r"activation_checkpointing\..*|autotuning.*|flops_profiler\..*|elasticity\..*|aio\..*"
)
_NOT_MODELLED = {
    r"zero_optimization\.zero_quantized_\w+": "weights and gradients travel unquantised",
    r"zero_optimization\.zeropp.*": "weights and gradients travel unquantised",
    r"sparse_attention.*": "attention is taken as dense",
    r"compression_training.*": "the model is trained as it is",
    r"curriculum_learning\.enabled|data_efficiency\.enabled": "every sample has full length",
    r"sequence_parallel_size": "Ulysses sequence parallelism; give plan.cp for a ring instead",
    r"progressive_layer_drop\.enabled": "every layer runs",
    r"eigenvalue\.enabled": "its steps are not counted",
    r"flops_profiler\.enabled": "the profiler's own cost is left out",
    r"hybrid_engine.*": "only training is counted",
    r"elasticity\.enabled": "the number of GPUs is fixed",
    r"compile\.(enabled|deepcompile)": "blocks run as in the stack",
    r"amp\.enabled": "precision is that of bf16 or fp16",
    r"sparse_gradients": "gradients are dense",
    r"pipeline.*": "stages are given by plan.pp",
}


def read_deepspeed(path: Path) -> Foreign:
    """Plan, batch, precision and stack settings of a DeepSpeed configuration.

    Raises
    ------
    InputError
        One sentence naming file and setting.
    """
    document = read_document(path).plain()
    if not isinstance(document, dict):
        raise InputError(f"{path}: is no DeepSpeed configuration: it holds no named fields")
    foreign = Foreign(str(path))
    fields = Fields(str(path), flatten(document))
    foreign.stack["name"] = "deepspeed"
    _zero(fields, foreign)
    _batch(fields, foreign)
    foreign.set_known(foreign.workload, {"precision": _precision(fields)})
    _stack(fields, foreign)
    name = fields.text("optimizer.type")
    if name is not None:
        foreign.workload["optimizer"] = _optimizer(name, foreign)
    fields.warn_of(foreign, _NOT_MODELLED)
    if any(n.startswith("activation_checkpointing.") for n in fields.values):
        foreign.notes.append(
            f"{path}: activation_checkpointing only configures what the model asks for; give "
            "plan.recompute"
        )
    fields.harmless(_HARMLESS)
    fields.report_rest(foreign)
    return foreign


def _zero(fields: Fields, foreign: Foreign) -> None:
    stage = fields.whole("zero_optimization.stage")
    if stage is not None and not 0 <= stage <= 3:
        raise InputError(f"{fields.file}: zero_optimization.stage {stage} is not 0, 1, 2 or 3")
    foreign.plan["zero_stage"] = stage or 0
    for part, effect in (
        ("optimizer", "optimiser state and step are taken to stay on the device"),
        ("param", "parameters are taken to stay on the device"),
    ):
        device = fields.text(f"zero_optimization.offload_{part}.device")
        flag = fields.flag(
            f"zero_optimization.cpu_offload{'' if part == 'optimizer' else '_params'}"
        )
        if (device or "none").lower() != "none" or flag:
            name = f"zero_optimization.offload_{part}"
            foreign.not_modelled(name, device or "cpu", effect)
    group = fields.whole("zero_optimization.mics_shard_size")
    if group is not None and group > 0:
        foreign.plan["shard_group"] = group
    secondary = fields.whole("zero_optimization.zero_hpz_partition_size")
    if secondary is not None and secondary > 1:
        foreign.not_modelled(
            "zero_optimization.zero_hpz_partition_size", secondary,
            "backward gathers over all ranks, not inside a node",
        )  # fmt: skip
    tp = fields.positive("tensor_parallel.autotp_size", "tensor_parallel.tp_size")
    if tp is not None:
        foreign.plan["tp"] = tp


def _batch(fields: Fields, foreign: Foreign) -> None:
    for key, name in (
        ("global", "train_batch_size"),
        ("micro", "train_micro_batch_size_per_gpu"),
        ("accumulation", "gradient_accumulation_steps"),
    ):
        value = fields.positive(name)
        if value is not None:
            foreign.batch[key] = value


def _precision(fields: Fields) -> str | None:
    if fields.flag("bf16.enabled", "bfloat16.enabled"):
        return "bf16"
    if fields.flag("fp16.enabled"):
        return "fp16"
    stated = [fields.values.get(n) for n in ("bf16.enabled", "bfloat16.enabled", "fp16.enabled")]
    return None if "auto" in stated or not any(v is False for v in stated) else "fp32"


def _stack(fields: Fields, foreign: Foreign) -> None:
    stack = foreign.stack
    overlaps = fields.flag("zero_optimization.overlap_comm")
    bucket = fields.number("zero_optimization.reduce_bucket_size")
    clip = fields.number("gradient_clipping")
    wire = fields.text("communication_data_type")
    width = 4.0 if foreign.workload.get("precision") == "fp32" else 2.0
    foreign.set_known(stack, {
        "overlaps_gradients": overlaps,
        "gradient_bucket_bytes": bucket * width if bucket else None,  # the size is in elements
        "clips_gradients": None if clip is None else clip > 0,
        "gradient_dtype": {"fp16": "fp16", "bf16": "bf16", "fp32": "fp32", "bfp16": "bf16"}.get(
            wire or ""
        ),
    })  # fmt: skip
    accumulates = fields.text("data_types.grad_accum_dtype")
    if accumulates == "fp32":
        stack.setdefault("gradient_dtype", "fp32")


def _optimizer(name: str, foreign: Foreign) -> str:
    lowered = name.lower()
    if lowered.startswith(("onebit", "zeroone")):
        foreign.not_modelled("optimizer.type", name, "gradients travel uncompressed")
    for known in ("lamb", "adagrad", "lion", "muon", "adam", "sgd"):
        if known in lowered:
            return known
    foreign.notes.append(f"optimizer {name!r} is not known: adam assumed")
    return "adam"
