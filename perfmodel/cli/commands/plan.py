"""`perfmodel plan RUN`: searches a plan and writes it."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfmodel.cli.output import print_json, progress
from perfmodel.cli.run_options import load_run_of
from perfmodel.cost.execution import load_execution
from perfmodel.errors import InputError
from perfmodel.report.layouts import layouts_text
from perfmodel.run import Run
from perfmodel.schema.document import scalar
from perfmodel.search.layouts import plan_layout

_OUT_OF_MEMORY = 1


def run(options: Namespace) -> int:
    """Search the best plan of a workload by its family."""
    loaded = load_run_of(options, is_planned=False)
    family = loaded.workload.model.family
    if family != "transformer":
        raise InputError(f"plans are searched for transformers, the workload is a {family}")
    return _layouts(loaded, options)


def _layouts(loaded: Run, options: Namespace) -> int:
    """Layout of a transformer: parallel sizes, micro-batch, recompute, sharding."""
    result = plan_layout(
        loaded,
        fixed=_fixed(options.fix),
        memory_share=options.memory_share,
        bundle=load_execution(options.bundle),
        progress=progress,
    )
    document = result.to_dict()
    if options.out:
        _write(options.out, document["plan"])
    if options.json:
        print_json(document)
    else:
        print(layouts_text(document))
    return 0 if result.best.prediction.fits else _OUT_OF_MEMORY


def _fixed(texts: Sequence[str]) -> dict[str, list[Any]]:
    """`tp=4,8` as the values an axis may take."""
    out: dict[str, list[Any]] = {}
    for text in texts:
        axis, equals, values = text.partition("=")
        if not equals:
            raise InputError(f"--fix {text!r} is not AXIS=VALUE, e.g. tp=8 or tp=4,8")
        out[axis.strip()] = [scalar(v.strip()) for v in values.split(",") if v.strip()]
    return out


def _write(out: str, plan: Mapping[str, Any]) -> None:
    """The `plan` section of a RUN file; JSON is YAML too."""
    Path(out).write_text(json.dumps(plan, indent=1) + "\n", "utf-8")
