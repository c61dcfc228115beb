"""`perfmodel plan RUN`: searches a plan and writes it."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfmodel.cli.output import print_json, progress
from perfmodel.cli.run_options import load_run_of, numbers, prices
from perfmodel.cost.execution import load_execution
from perfmodel.errors import InputError
from perfmodel.report.layouts import layouts_text, sizes_lines
from perfmodel.report.ranking import embedding_plan_text
from perfmodel.run import Run
from perfmodel.schema.document import scalar
from perfmodel.search.embedding_plans import plan_embeddings
from perfmodel.search.layouts import LayoutSearch, plan_layout
from perfmodel.search.sizes import Objective, plan_sizes
from perfmodel.search.training import samples_to_train

_OUT_OF_MEMORY = 1
_MILLION = 1e6  # samples that costs refer to where nobody says how much is trained


def run(options: Namespace) -> int:
    """Search the best plan of a workload by its family."""
    loaded = load_run_of(options, is_planned=False)
    family = loaded.workload.model.family
    if family == "dlrm":
        return _embeddings(loaded, options)
    if family != "transformer":
        raise InputError(
            f"plans are searched for transformers and recommenders, the workload is a {family}"
        )
    return _layouts(loaded, options)


def _layouts(loaded: Run, options: Namespace) -> int:
    """Layout of a transformer: parallel sizes, micro-batch, recompute, sharding."""
    choices: dict[str, Any] = {
        "fixed": _fixed(options.fix),
        "memory_share": options.memory_share,
        "bundle": load_execution(options.bundle),
    }
    if options.gpus:
        search, more = _sizes(loaded, options, choices)
    else:
        search, more = plan_layout(loaded, **choices, progress=progress), {}
    document = search.to_dict() | more
    if options.out:
        _write(options.out, document["plan"])
    if options.json:
        print_json(document)
    else:
        print("\n".join([layouts_text(document), *sizes_lines(more)]))
    return 0 if search.best.prediction.fits else _OUT_OF_MEMORY


def _sizes(
    loaded: Run, options: Namespace, choices: dict[str, Any]
) -> tuple[LayoutSearch, dict[str, Any]]:
    """The search on the chosen number of GPUs, and the best layout on every number."""
    price = prices(options.price)
    if isinstance(price, dict):
        price = price.get(loaded.cluster.node.name)
    chosen, sizes, refused = plan_sizes(
        loaded,
        [int(n) for n in numbers(options.gpus, "gpus")],
        samples=samples_to_train(loaded, options.samples, options.tokens) or _MILLION,
        price=price,
        objective=Objective(options.objective),
        **choices,
    )
    more = {"sizes": [s.to_dict() for s in sizes], "refused": refused, "gpus": chosen.gpus}
    return chosen.search, more


def _embeddings(loaded: Run, options: Namespace) -> int:
    """Sharding plan of a recommender."""
    for name in ("fix", "gpus"):
        if getattr(options, name):
            raise InputError(f"--{name} is for transformers, the workload is a recommender")
    result = plan_embeddings(
        loaded,
        seed=options.seed,
        seconds=options.seconds,
        memory_share=options.memory_share,
        bundle=load_execution(options.bundle),
    )
    document = result.to_dict()
    if options.out:
        ours = document["plan"]["embedding_sharding"]
        is_ours = Path(options.out).suffix in (".yaml", ".yml")
        _write(options.out, ours if is_ours else result.to_torchrec())
    if options.json:
        print_json(document)
    else:
        print(embedding_plan_text(document))
    return 0 if result.prediction.fits else _OUT_OF_MEMORY


def _fixed(texts: Sequence[str]) -> dict[str, list[Any]]:
    """`tp=4,8` as the values an axis may take."""
    out: dict[str, list[Any]] = {}
    for text in texts:
        axis, equals, values = text.partition("=")
        if not equals:
            raise InputError(f"--fix {text!r} is not AXIS=VALUE, e.g. tp=8 or tp=4,8")
        out[axis.strip()] = [scalar(v.strip()) for v in values.split(",") if v.strip()]
    return out


def _write(out: str, plan: Mapping[str, Any] | Sequence[Any]) -> None:
    """The `plan` section of a RUN file or a sharding plan; JSON is YAML too."""
    Path(out).write_text(json.dumps(plan, indent=1) + "\n", "utf-8")
