"""`perfmodel validate [RUNS.jsonl]`: predictions against measured runs."""

from __future__ import annotations

from argparse import Namespace

from perfmodel.cli.output import print_json
from perfmodel.cost.execution import load_execution
from perfmodel.locations import datasets_path
from perfmodel.measure.published import read_rows
from perfmodel.measure.validate import validate
from perfmodel.report.validation import validation_text

_INTERRUPTED = 130


def run(options: Namespace) -> int:
    """Predict every run and compare; what was done so far is printed after an interruption."""
    rows = read_rows(options.file or datasets_path("published_runs", "runs.jsonl"))
    result = validate(
        rows,
        where=",".join(options.where) or None,
        min_confidence=options.min_confidence,
        leave_out=options.leave_out,
        bundle=load_execution(options.bundle),
        by=options.by,
    )
    if options.json:
        print_json(result.to_dict())
    else:
        print(validation_text(result.to_dict(), options.leave_out))
    return 0 if result.is_complete else _INTERRUPTED
