"""`perfmodel calibrate RUNS… --out BUNDLE`: parameters that measured runs identify."""

from __future__ import annotations

from argparse import Namespace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from perfmodel.cli.output import print_json
from perfmodel.cost.execution import ExecutionBundle, load_execution, write_execution
from perfmodel.cost.parameters import ParameterSet
from perfmodel.errors import InputError
from perfmodel.measure.calibrate import Calibration, calibrate
from perfmodel.measure.fanout import print_progress
from perfmodel.measure.published import read_rows
from perfmodel.report.validation import calibration_text


def run(options: Namespace) -> int:
    """Fit, write the bundle, say what was learnt."""
    start = load_execution(options.bundle)
    rows = [row for file in options.files for row in read_rows(file)]
    if not any(row.get("iteration_time_ms") for row in rows):
        raise InputError(f"{', '.join(options.files)}: no row has an iteration_time_ms to fit to")
    result = calibrate(rows, bundle=start, progress=print_progress)
    bundle = ExecutionBundle(
        parameters=ParameterSet(values=dict(result.values)),
        spread=start.spread,
        manifest=_manifest(result, options.files, len(rows)),
    )
    write_execution(bundle, options.out)
    if options.json:
        print_json(result.to_dict())
    else:
        print(calibration_text(result.to_dict(), options.out))
    return 0


def _manifest(result: Calibration, files: list[str], num_rows: int) -> dict[str, Any]:
    names = [Path(file).name for file in files]
    return {
        "data": names,
        "rows": num_rows,
        "before": result.before,
        "after": result.after,
        "perfmodel": version("perfmodel"),
        "command": f"perfmodel calibrate {' '.join(names)} --out BUNDLE",
        "intervals": "taken from the bundle that the fit started from",
    }
