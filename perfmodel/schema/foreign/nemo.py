"""NeMo and Megatron-Bridge YAML: Megatron's settings under nested keys, plus a trainer's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfmodel.errors import InputError
from perfmodel.schema.document import read_document
from perfmodel.schema.foreign.fields import Fields, Foreign, flatten
from perfmodel.schema.foreign.megatron_fields import fill_from_megatron

# NeMo's spellings of Megatron's settings.
_ALIASES = {
    "encoder_seq_length": "seq_length", "sequence_length": "seq_length",
    "num_moe_experts": "num_experts", "add_bias_linear": "", "bias": "",
    "activations_checkpoint_granularity": "recompute_granularity",
    "activations_checkpoint_method": "recompute_method",
    "activations_checkpoint_num_layers": "recompute_num_layers",
    "check_for_nan_in_grad": "", "devices": "gpus_per_node", "num_gpus_per_node": "gpus_per_node",
    "overlap_grad_sync": "overlap_grad_reduce", "overlap_param_sync": "overlap_param_gather",
}  # fmt: skip
# Sections that say nothing about time: logging, checkpoints, data sets, schedules.
_OTHER_SECTIONS = {
    "exp_manager", "logger", "checkpoint", "tokenizer", "resume", "log", "scheduler", "sched",
    "dataset", "data", "rng", "nsys_profile", "lr_scheduler", "callbacks", "validation",
    "profiling", "dist", "ft", "straggler", "inprocess_restart", "rerun_state_machine",
}  # fmt: skip
_OPTIMIZERS = {
    "distributed_fused_adam": ("adam", True), "fused_adam": ("adam", False),
    "mcore_distributed_optim": ("adam", True), "megatron_fused_adam": ("adam", True),
    "adamw": ("adam", False), "adam": ("adam", False), "sgd": ("sgd_momentum", False),
}  # fmt: skip
_WANTED_FROM_DATA = {"micro_batch_size", "global_batch_size", "seq_length", "sequence_length"}


def read_nemo(path: Path) -> Foreign:
    """Model, plan, stack and size of a NeMo or Megatron-Bridge recipe.

    Raises
    ------
    InputError
        One sentence naming file and setting.
    """
    document = read_document(path).plain()
    if not isinstance(document, dict) or not {"model", "trainer", "train"} & document.keys():
        raise InputError(f"{path}: is no NeMo recipe: it has neither model nor trainer")
    foreign = Foreign(str(path))
    values = _leaves(document, foreign)
    foreign.cluster = {
        key: values.pop(key)
        for key in ("num_nodes", "gpus_per_node")
        if type(values.get(key)) is int and values[key] > 0
    }
    for other in ("num_nodes", "gpus_per_node"):
        values.pop(other, None)
    _peft(values, foreign)
    fill_from_megatron(Fields(str(path), values), foreign, is_complete=False)
    return foreign


def _leaves(document: dict[str, Any], foreign: Foreign) -> dict[str, Any]:
    """Settings by their last name; two different values of one name are a warning."""
    out: dict[str, Any] = {}
    for key, value in flatten(document).items():
        *sections, leaf = key.split(".")
        if leaf.startswith("_") or value is None or _is_reference(value):
            continue
        if _OTHER_SECTIONS & set(sections) and leaf not in _WANTED_FROM_DATA:
            continue
        if "optim" in sections or "optimizer" in sections:
            _optimizer(leaf, value, out)
            continue
        name = _ALIASES.get(leaf, leaf)
        if name and out.setdefault(name, value) != value:
            foreign.warnings.append(
                f"{foreign.file}: {name} is stated as {out[name]!r} and {value!r}; "
                f"{out[name]!r} is taken"
            )
    return out


def _is_reference(value: Any) -> bool:
    """An OmegaConf interpolation such as ${.seq_length}: the value stands elsewhere."""
    return isinstance(value, str) and "${" in value


def _optimizer(leaf: str, value: Any, out: dict[str, Any]) -> None:
    """The optimiser's name may ask for sharding; its rates and betas do not matter."""
    if leaf in ("name", "optimizer") and isinstance(value, str):
        name, shards = _OPTIMIZERS.get(value.lower(), (value.lower(), False))
        out["optimizer"] = name
        if shards:
            out["use_distributed_optimizer"] = True
    elif leaf in ("use_distributed_optimizer", "overlap_grad_sync", "overlap_param_sync",
                  "grad_sync_dtype", "optimizer_cpu_offload", "clip_grad"):  # fmt: skip
        out[_ALIASES.get(leaf, leaf)] = value


def _peft(values: dict[str, Any], foreign: Foreign) -> None:
    """Low-rank adapters: `peft_scheme: lora` with its rank."""
    scheme = str(values.pop("peft_scheme", None) or values.pop("peft", None) or "").lower()
    if scheme in ("lora", "canonical_lora"):
        foreign.plan["lora"] = True
        rank = values.pop("adapter_dim", None) or values.pop("rank", None)
        if type(rank) is int and rank > 0:
            foreign.workload["lora_rank"] = rank
    elif scheme not in ("", "none"):
        foreign.not_modelled("peft_scheme", scheme, "all parameters are trained")
