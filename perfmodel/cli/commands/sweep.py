"""`perfmodel sweep RUN`: batch sizes, lengths, GPU counts, kinds of hardware."""

from __future__ import annotations

from argparse import Namespace

from perfmodel.cli.output import print_json, progress
from perfmodel.cli.run_options import load_run_of, numbers, prices
from perfmodel.cost.execution import load_execution
from perfmodel.report.sweep import sweep_text
from perfmodel.search.sweep import sweep

_OUT_OF_MEMORY = 1


def run(options: Namespace) -> int:
    """Predict all variants; 1 if none fits in memory."""
    loaded = load_run_of(options)
    result = sweep(
        loaded,
        batch=numbers(options.batch, "batch"),
        micro_batch=numbers(options.micro, "micro"),
        seq=[int(v) for v in numbers(options.seq, "seq")],
        gpus=[int(v) for v in numbers(options.gpus, "gpus")],
        cluster=[name for text in options.cluster for name in text.split(",") if name],
        price=prices(options.price),
        samples=options.samples,
        tokens=options.tokens,
        bundle=load_execution(options.bundle),
        progress=progress,
    )
    document = result.to_dict()
    if options.json:
        print_json(document)
    else:
        print(sweep_text(document))
    return 0 if result.fastest is not None else _OUT_OF_MEMORY
