"""One Run of several foreign files and a few words from the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perfmodel.errors import InputError, UnknownNameError
from perfmodel.hardware.clusters import resolve_cluster
from perfmodel.plan.stacks import stack_by_name
from perfmodel.run import Run
from perfmodel.schema.foreign.deepspeed import read_deepspeed
from perfmodel.schema.foreign.fields import Foreign
from perfmodel.schema.foreign.huggingface import read_huggingface
from perfmodel.schema.foreign.megatron import read_megatron
from perfmodel.schema.foreign.nemo import read_nemo
from perfmodel.schema.foreign.torchtitan import read_torchtitan
from perfmodel.schema.models import named_model
from perfmodel.schema.run_file import run_from_mapping

READERS: dict[str, Callable[[Path], Foreign]] = {
    "hf": read_huggingface,
    "megatron": read_megatron,
    "deepspeed": read_deepspeed,
    "torchtitan": read_torchtitan,
    "nemo": read_nemo,
}
"""Readers by the name of their option, in the order in which later ones win."""
# Positions a model takes may be far more than anybody trains on: pretraining uses 2k to 8k.
_USUAL_SEQ = 4096
_SECTIONS = ("workload", "plan", "stack")
_ASYNC_TP = "megatron_core"  # the profile whose hidden share of tensor-parallel traffic is taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the user says beside the files; None leaves it to them."""

    cluster: str | None = None
    num_nodes: int | None = None
    gpus_per_node: int | None = None
    batch: float | None = None
    micro_batch: float | None = None
    seq: int | None = None
    stack: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)  # "plan.tp": 4


def run_from_files(files: Mapping[str, Path], choices: Choices) -> Run:
    """Run of foreign files.

    Parameters
    ----------
    files : mapping
        Path by kind: hf, megatron, deepspeed, torchtitan, nemo (see `READERS`).
    choices : Choices
        Cluster and whatever is to differ from the files.

    Raises
    ------
    InputError
        One sentence: a file cannot be read, or something that decides the answer is missing.
    """
    parts = [read(files[kind]) for kind, read in READERS.items() if kind in files]
    merged = _merged(parts)
    _seq(merged, choices)
    content = _content(merged, choices)
    run = _built(content, merged)
    return replace(
        run,
        notes=tuple(dict.fromkeys((*merged.notes, *run.notes))),
        warnings=tuple(dict.fromkeys((*merged.warnings, *run.warnings))),
    )


def _merged(parts: Sequence[Foreign]) -> Foreign:
    """Later files win; dimensions they disagree on are named."""
    merged = Foreign(" + ".join(part.file for part in parts))
    for part in parts:
        for name in (*_SECTIONS, "batch", "cluster"):
            _join(getattr(merged, name), getattr(part, name), name, part.file, merged)
        merged.notes += part.notes
        merged.warnings += part.warnings
    if "name" in merged.workload and "hidden" in merged.workload:
        del merged.workload["name"]  # --hf spells out what the flavour names
    return merged


def _join(
    into: dict[str, Any], new: Mapping[str, Any], section: str, file: str, merged: Foreign
) -> None:
    usual = ("arch", "precision", "limit")
    for key, value in new.items():
        old = into.get(key, value)
        if section == "workload" and old != value and key not in usual:
            merged.warnings.append(
                f"{key} is {old} in one file and {value} in {file}, which counts"
            )
        into[key] = value


def _seq(merged: Foreign, choices: Choices) -> None:
    workload = merged.workload
    limit = workload.pop("limit", None)
    if choices.seq is not None:
        workload["seq"] = choices.seq
    if "seq" not in workload and "name" in workload:
        workload["seq"] = named_model(workload["name"]).dimensions["seq"]
    if "seq" not in workload:
        workload["seq"] = min(limit or _USUAL_SEQ, _USUAL_SEQ)
        of = f" of at most {limit}" if limit else ""
        merged.notes.append(f"sequence length not stated: {workload['seq']}{of} assumed (--seq)")
    if workload.get("mlm_predictions") == "seq":
        workload["mlm_predictions"] = workload["seq"]


def _content(merged: Foreign, choices: Choices) -> dict[str, Any]:
    """The four sections of a RUN file."""
    workload, plan, stack = merged.workload, merged.plan, merged.stack
    for path, value in choices.changes.items():
        section, _, key = path.partition(".")
        if section not in _SECTIONS or not key:
            raise InputError(f"--set {path} is not workload.FIELD, plan.FIELD or stack.FIELD")
        getattr(merged, section)[key] = value
    if not {"hidden", "name"} & workload.keys():
        raise InputError(
            f"{merged.file}: states no dimensions of a model (hidden size, layers …) and none that "
            "the catalogue knows; add --hf config.json"
        )
    cluster = _cluster(merged, choices)
    num_gpus = resolve_cluster(cluster).num_gpus
    if "precision" not in workload:
        workload["precision"] = "bf16"
        merged.notes.append("precision not stated: bf16 assumed (--set workload.precision=…)")
    _plan(merged)
    _stack(merged, choices)
    _batch(merged, choices, num_gpus)
    return {"schema_version": 1, "workload": workload, "plan": plan, "stack": stack,
            "cluster": cluster}  # fmt: skip


def _cluster(merged: Foreign, choices: Choices) -> dict[str, Any]:
    if choices.cluster is None:
        raise InputError("name the hardware with --cluster NODE (perfmodel catalogue nodes)")
    cluster: dict[str, Any] = {"node": choices.cluster}
    nodes = choices.num_nodes or merged.cluster.get("num_nodes")
    if nodes is None:
        merged.notes.append("number of nodes not stated: 1 assumed (--nodes)")
    cluster["num_nodes"] = nodes or 1
    per_node = choices.gpus_per_node or merged.cluster.get("gpus_per_node")
    if per_node is not None:
        cluster["gpus_per_node"] = per_node
    return cluster


def _plan(merged: Foreign) -> None:
    """Directives that need the model or the whole plan, and the default where none is stated."""
    plan, layers = merged.plan, merged.workload.get("layers")
    if "name" in merged.workload:
        layers = named_model(merged.workload["name"]).dimensions.get("layers")
    per_chunk = plan.pop("layers_per_chunk", None)
    if per_chunk and layers:
        plan["vp"] = max(1, layers // (plan["pp"] * per_chunk))
    if plan.get("schedule") == "interleaved" and plan.get("vp", 1) == 1:
        plan["schedule"] = "1f1b"
    if plan.keys() & {"fsdp", "zero_stage", "shard"}:
        return
    if plan.get("pp", 1) > 1:
        plan["zero_stage"] = 1
        merged.notes.append("sharding not stated: ZeRO-1 assumed (--set plan.zero_stage=0)")
    else:
        plan["fsdp"] = True
        merged.notes.append("sharding not stated: FSDP assumed (--set plan.zero_stage=0)")


def _stack(merged: Foreign, choices: Choices) -> None:
    stack = merged.stack
    if merged.plan.pop("async_tp", False):
        stack["tp_hidden_fraction"] = stack_by_name(_ASYNC_TP).tp_hidden_fraction
    if choices.stack is not None:
        stack["name"] = choices.stack
    elif "name" not in stack:
        stack["name"] = "pytorch_fsdp" if merged.plan.get("fsdp") else "hf_eager"
        merged.notes.append(f"stack not stated: {stack['name']} assumed (--stack)")


def _batch(merged: Foreign, choices: Choices, num_gpus: int) -> None:
    """Global batch and micro-batch; one of them follows from the other and the replicas."""
    plan, stated = merged.plan, merged.batch
    model_parallel = plan.get("tp", 1) * plan.get("pp", 1) * plan.get("cp", 1)
    dp = max(1, num_gpus // model_parallel)
    replicas = plan.pop("replicas", None)
    if replicas:
        plan["shard_group"] = max(1, dp // replicas)
    micro = choices.micro_batch or plan.get("micro_batch") or stated.get("micro")
    total = choices.batch or merged.workload.get("global_batch") or stated.get("global")
    accumulation = stated.get("accumulation")
    if total is None:
        if micro is None:
            raise InputError(f"{merged.file}: states no batch; give --batch SAMPLES (global)")
        total = micro * (accumulation or 1) * dp
        merged.notes.append(
            f"global batch not stated: {total:g} = micro-batch {micro:g} x "
            f"{accumulation or 1:g} x {dp} replicas"
        )
    elif micro is None and accumulation:
        micro = total / dp / accumulation
    merged.workload["global_batch"] = total
    if micro is not None:
        plan["micro_batch"] = micro


def _built(content: Mapping[str, Any], merged: Foreign) -> Run:
    """The run; errors name the foreign files instead of lines of the composed one."""
    try:
        return run_from_mapping(content, merged.file)
    except UnknownNameError:
        raise
    except InputError as error:
        message = re.sub(rf"^{re.escape(merged.file)}:\d+: ", "", str(error))
        raise InputError(f"{merged.file}: {message}") from None
