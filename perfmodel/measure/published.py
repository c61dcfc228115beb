"""Reads published, measured runs: one JSON object a line, lenient about what it does not know.

Foreign data: unknown keys are warnings, gaps are filled by the rules here and in `published_plan`,
and every rule that was applied is a note of the run. A row that lacks something no rule can fill is
refused with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from perfmodel.errors import InputError, PerfmodelError, RefusedError
from perfmodel.hardware.clusters import resolve_cluster
from perfmodel.hardware.link_text import read_intra_node
from perfmodel.measure.published_plan import Remarks, number_of, plan_from_row
from perfmodel.plan.stack import Stack
from perfmodel.plan.stacks import select_stack, stack_by_name, with_attention_kernel
from perfmodel.run import Run, plan_problems
from perfmodel.schema.parts import (
    THROUGHPUT_UNITS,
    leaves_optimizer_out,
    model_from_fields,
    optimizer_from_text,
    precision_from_text,
)
from perfmodel.workload.records import Model, Workload

Row: TypeAlias = Mapping[str, Any]

MAX_BYTES = 200_000_000
"""Largest file of published runs: a row takes about 1.2 kB, so this is 150,000 of them."""

_ROW_KEYS = {
    "id", "group", "family", "model_name", "model", "global_batch", "batch_unit", "micro_batch",
    "precision", "parallelism", "optimizer", "software", "hardware", "measured",
    "iteration_time_ms", "iteration_formula", "memory_gib", "source", "notes", "confidence",
    "scale_class",
}  # fmt: skip
_PARALLELISM_KEYS = {
    "dp", "tp", "pp", "vp", "cp", "ep", "zero_stage", "fsdp", "sequence_parallel",
    "activation_recompute", "grad_accum", "num_microbatches", "zero_group", "lora", "lora_rank",
    "embedding_sharding", "pp_schedule", "async_tp", "compile", "local_batch",
    "model_parallel_product",
}  # fmt: skip


def read_rows(path: str | PathLike[str]) -> list[Row]:
    """Published runs of a JSON-lines file, or of a JSON file with one object or a list.

    Raises
    ------
    InputError
        With file and line, if the file or a line of it is not usable JSON.
    """
    from perfmodel.schema.document import read_text

    file = Path(path)
    text = read_text(file, MAX_BYTES)
    if text.lstrip()[0] == "[" or file.suffix == ".json":
        content = _parse(text, f"{file}", 1)
        rows = content if isinstance(content, list) else [content]
        places = [f"{file}: entry {i}" for i in range(1, len(rows) + 1)]
    else:
        lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        rows = [_parse(line, f"{file}", n) for n, line in lines]
        places = [f"{file}:{n}" for n, _ in lines]
    for place, row in zip(places, rows, strict=True):
        if not isinstance(row, dict):
            raise InputError(f"{place}: a published run is a JSON object with named fields")
    return rows


def _parse(text: str, name: str, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{name}:{line + error.lineno - 1}"
        raise InputError(f"{place}: is not valid JSON ({error.msg})") from None
    except (RecursionError, ValueError):
        raise InputError(
            f"{name}:{line}: is not usable JSON (too deep, or a number too long)"
        ) from None


def run_from_row(row: Row) -> Run:
    """Run of one published row.

    Parameters
    ----------
    row : mapping
        In the published-run schema; see `datasets/published_runs/README.md`.

    Returns
    -------
    Run
        Its `notes` say which gaps were filled and how, its `warnings` what was not understood.

    Raises
    ------
    InputError, RefusedError
        One sentence naming the field, if the row cannot be predicted.
    """
    remarks = Remarks()
    _unknown_keys(row, remarks)
    family = str(row.get("family"))
    fields = _mapping(row, "model")
    parallel = _mapping(row, "parallelism")
    cluster = resolve_cluster(_hardware(row))
    model, notes, warnings = model_from_fields(
        family, _model_fields(row, fields), lora=bool(parallel.get("lora"))
    )
    remarks.notes += notes
    remarks.warnings += warnings
    stack = _stack(row, fields, parallel, family, remarks)
    workload = _workload(row, fields, family, model, remarks)
    plan = plan_from_row(row, workload, stack, cluster, remarks)
    remarks.warnings += plan_problems(workload, plan)
    return Run(
        workload=workload,
        plan=plan,
        stack=stack,
        cluster=cluster,
        notes=tuple(dict.fromkeys(remarks.notes)),
        warnings=tuple(dict.fromkeys(remarks.warnings)),
    )


def _unknown_keys(row: Row, remarks: Remarks) -> None:
    parallel = row.get("parallelism")
    for where, keys, known in (
        ("", row, _ROW_KEYS),
        ("parallelism.", parallel if isinstance(parallel, Mapping) else {}, _PARALLELISM_KEYS),
    ):
        remarks.warnings += [
            f"field {where + str(k)!r} is not known and ignored" for k in keys if k not in known
        ]


def _mapping(row: Row, key: str) -> Mapping[str, Any]:
    value = row.get(key)
    if not isinstance(value, Mapping):
        raise InputError(f"{key} {value!r} is not an object with named fields")
    return value


def _hardware(row: Row) -> Mapping[str, Any]:
    hardware = _mapping(row, "hardware")
    if not hardware.get("num_gpus") and not hardware.get("nodes"):
        raise RefusedError("hardware.num_gpus is missing; state how many GPUs the job used")
    # Missing peer access is a caveat of the run rather than a name of a link: sources print it
    # in their remarks.
    if read_intra_node(str(row.get("notes") or "")).blocks_peer_access:
        return {**hardware, "intra_node": "PCIe without peer-to-peer"}
    return hardware


def _model_fields(row: Row, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Dimensions; the row's name where the model object has no architecture."""
    given = dict(fields)
    if not given.get("arch"):
        given["arch"] = row.get("model_name") or ""
    return given


def _stack(
    row: Row, fields: Mapping[str, Any], parallel: Row, family: str, remarks: Remarks
) -> Stack:
    stack, warning = select_stack(str(row.get("software") or ""), family)
    if warning:
        remarks.warnings.append(warning)
    if fields.get("attention_kernel"):
        stack = with_attention_kernel(stack, str(fields["attention_kernel"]))
    stack = _with_compiler(stack, parallel.get("compile"), family)
    if parallel.get("async_tp") is True:
        hidden = stack_by_name(_OVERLAPPED_TP).tp_hidden_fraction
        stack = replace(stack, tp_hidden_fraction=max(hidden, stack.tp_hidden_fraction))
        remarks.note(f"async tensor parallelism: {hidden:.0%} of its traffic hidden")
    return stack


# Profiles that a stated switch borrows from: compiled and eager blocks of PyTorch, and traffic of
# tensor parallelism behind compute.
_COMPILED, _EAGER, _OVERLAPPED_TP = "torchtitan", "pytorch_fsdp", "megatron_core"


def _with_compiler(stack: Stack, stated: Any, family: str) -> Stack:
    """The stack with pointwise traffic as the row's `compile` says, where that differs."""
    if stated is None or family != "transformer":
        return stack
    is_compiled = str(stated).lower() not in ("false", "none", "no", "off", "eager", "")
    if is_compiled == stack.is_compiled:
        return stack
    other = stack_by_name(_COMPILED if is_compiled else _EAGER)
    return replace(
        stack,
        is_compiled=is_compiled,
        elementwise_passes=other.elementwise_passes,
        logits_passes=other.logits_passes,
    )


def _workload(
    row: Row, fields: Mapping[str, Any], family: str, model: Model, remarks: Remarks
) -> Workload:
    precision, note = precision_from_text(str(row.get("precision") or "not stated"))
    remarks.note(note)
    optimizer, note = optimizer_from_text(row.get("optimizer"))
    remarks.note(note)
    filled = fields.get("filled_fraction") or 1.0
    return Workload(
        name=str(row.get("model_name") or family),
        model=model,
        global_batch=_samples(row, "global_batch", model),
        precision=precision,
        optimizer=optimizer,
        throughput_unit=THROUGHPUT_UNITS[family],
        is_forward_backward_only=leaves_optimizer_out(
            row.get("optimizer"), row.get("iteration_formula")
        ),
        filled_fraction=min(number_of(filled, "model.filled_fraction"), 1.0),
    )


def _samples(row: Row, key: str, model: Model) -> float:
    """A batch in samples; rows that count tokens are divided by the length of a sample."""
    value = row.get(key)
    if value is None:
        raise RefusedError(f"{key} is missing; a step cannot be costed without its batch")
    number = number_of(value, key)
    unit = str(row.get("batch_unit") or "samples").lower()
    return number / getattr(model, "seq", 1) if unit.startswith("token") else number


@dataclass(frozen=True, slots=True)
class ReadRow:
    """A row and its run, or the reason why it has none."""

    row: Row
    run: Run | None
    refusal: str = ""


def read_runs(rows: list[Row]) -> Iterator[ReadRow]:
    """Runs of many rows; a row that cannot be read carries the reason instead."""
    for row in rows:
        try:
            yield ReadRow(row, run_from_row(row))
        except PerfmodelError as error:
            yield ReadRow(row, None, str(error))
