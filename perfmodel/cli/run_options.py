"""The run that options name: a RUN file, or the configuration files of other tools."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfmodel.errors import InputError
from perfmodel.load import load_to_plan
from perfmodel.run import Run
from perfmodel.schema.document import scalar

_KINDS = ("hf", "megatron", "deepspeed", "torchtitan", "nemo")
_FRAMEWORKS = _KINDS[1:]
# Options that only shape a run read from foreign files.
_SHAPES = ("node", "nodes", "gpus_per_node", "global_batch", "micro_batch", "seq_length", "stack")


def load_run_of(options: Namespace, *, is_planned: bool = True) -> Run:
    """Run that the options of a command name; its plan may be unusable if not `is_planned`.

    Raises
    ------
    InputError
        If they name none or two, or a file cannot be used.
    """
    files = {k: Path(v) for k in _KINDS if (v := getattr(options, k)) is not None}
    if options.file is None and not files:
        raise InputError("name a RUN file, or --hf config.json with --cluster NODE")
    if options.file is not None:
        if files:
            raise InputError(f"--{next(iter(files))} stands instead of RUN; give one of them")
        _refuse_shapes(options)
        return (Run.load if is_planned else load_to_plan)(options.file, options.row)
    frameworks = [k for k in _FRAMEWORKS if k in files]
    if len(frameworks) > 1:
        raise InputError(f"--{frameworks[0]} and --{frameworks[1]} both state a plan; give one")
    from perfmodel.schema.foreign.compose import Choices, run_from_files

    changes = dict(_change(text) for text in options.set)
    if not is_planned and not frameworks and options.micro_batch is None:
        changes.setdefault("plan.num_microbatches", 1)
    return run_from_files(
        files,
        Choices(
            cluster=options.node,
            num_nodes=options.nodes,
            gpus_per_node=options.gpus_per_node,
            batch=options.global_batch,
            micro_batch=options.micro_batch,
            seq=options.seq_length,
            stack=options.stack,
            changes=changes,
        ),
    )


def _refuse_shapes(options: Namespace) -> None:
    given = [n for n in _SHAPES if getattr(options, n) is not None]
    if given or options.set:
        name = given[0].replace("_", "-") if given else "set"
        raise InputError(f"--{name} is for --hf and the like; change the RUN file instead")


def _change(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not value:
        raise InputError(f"--set {text!r} is not FIELD=VALUE, e.g. plan.tp=4")
    return name.strip(), scalar(value.strip())


def prices(texts: Sequence[str]) -> float | dict[str, float] | None:
    """One price for all hardware, or NAME=PRICE for each kind.

    Raises
    ------
    InputError
        If a price is no number.
    """
    by_name: dict[str, float] = {}
    for text in (part for given in texts for part in given.split(",") if part):
        name, equals, amount = text.rpartition("=")
        try:
            value = float(amount)
        except ValueError:
            value = -1.0
        if not 0 <= value < 1e9:
            raise InputError(f"--price {text!r} is not a price per GPU-hour, e.g. dgx_h100=2.5")
        if not equals:
            return value
        by_name[name] = value
    return by_name or None


def numbers(texts: Sequence[str], name: str) -> list[float]:
    """Positive numbers given one by one or with commas.

    Raises
    ------
    InputError
        If one is not a positive number.
    """
    out = []
    for text in (part for given in texts for part in given.split(",") if part):
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        is_whole = name == "batch" or name == "micro" or value == int(min(value, 1e15))
        if not 0 < value < 1e12 or not is_whole:
            raise InputError(f"--{name} {text!r} is not a positive number")
        out.append(value)
    return list(dict.fromkeys(out))
