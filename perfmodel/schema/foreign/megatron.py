"""Megatron-LM arguments: of a shell script (read, never run) or a plain list."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from perfmodel.errors import InputError
from perfmodel.schema.document import read_text, scalar
from perfmodel.schema.foreign.fields import Fields, Foreign
from perfmodel.schema.foreign.megatron_fields import fill_from_megatron
from perfmodel.schema.foreign.shell import read_script

_FLAG = re.compile(r"--?[A-Za-z][\w-]*")
# Launchers' options that say how many GPUs take part.
_NODES = ("nnodes", "nodes", "num_nodes")
_PER_NODE = ("nproc_per_node", "gpus_per_node", "num_gpus", "ntasks_per_node")


def read_megatron(path: Path) -> Foreign:
    """Model, plan and stack of Megatron-LM arguments.

    Raises
    ------
    InputError
        One sentence naming file and argument.
    """
    script = read_script(read_text(path), str(path))
    values = _arguments(script.words)
    if not values:
        raise InputError(f"{path}: holds no Megatron-LM arguments such as --num-layers 24")
    foreign = Foreign(str(path))
    if script.num_commands > 1:
        foreign.warnings.append(f"{path}: {script.num_commands} commands; the first is read")
    used = list(dict.fromkeys(script.reassigned))
    if used:
        foreign.warnings.append(
            f"{path}: assigned more than once, the last value before the command is taken: "
            + ", ".join(used)
        )
    _launcher({**_arguments(script.directives), **values}, foreign)
    values = {k: v for k, v in values.items() if k not in (*_NODES, *_PER_NODE)}
    fields = Fields(str(path), values)
    fill_from_megatron(fields, foreign, _program(script.words))
    return foreign


def _program(words: list[str]) -> str:
    return next((w.rsplit("/", 1)[-1] for w in words if w.endswith(".py")), "")


def _arguments(words: list[str]) -> dict[str, Any]:
    """Flags with their values: true without one, a list with several."""
    out: dict[str, Any] = {}
    current: str | None = None
    for word in words:
        flag, equals, value = word.partition("=")
        if _FLAG.fullmatch(flag) and word.startswith("-"):
            current = flag.lstrip("-").replace("-", "_")
            out[current] = scalar(value) if equals else True
            current = None if equals else current
        elif current is not None and not word.endswith(".py"):
            held = out[current]
            new = scalar(word)
            if held is True:
                out[current] = new
            else:
                out[current] = [*held, new] if isinstance(held, list) else [held, new]
        else:
            current = None
    return out


def _launcher(values: dict[str, Any], foreign: Foreign) -> None:
    """Nodes and GPUs per node from torchrun, srun or sbatch options, where they are numbers."""
    for key, names in (("num_nodes", _NODES), ("gpus_per_node", _PER_NODE)):
        for name in names:
            value = values.get(name)
            if type(value) is int and value > 0:
                foreign.cluster[key] = value
                break
