"""`perfmodel sweep RUN`: batch sizes, lengths, GPU counts, kinds of hardware."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from perfmodel.cli.output import print_json, progress
from perfmodel.cli.run_options import load_run_of, prices
from perfmodel.cost.execution import load_execution
from perfmodel.errors import InputError
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
