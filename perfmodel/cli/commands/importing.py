"""`perfmodel import FORMAT FILE…`: what tools print becomes a measurement table."""

from __future__ import annotations

import sys
from argparse import Namespace
from importlib import import_module
from typing import Any

from perfmodel.cli.output import print_json
from perfmodel.errors import InputError
from perfmodel.measure.tables import write_table
from perfmodel.schema.place import nearest

# Format, and the module and function that read it.
_COLLECTIVES = "perfmodel.measure.collectives"
_READERS = {
    "nccl-tests": (f"{_COLLECTIVES}.nccl_tests", "import_nccl_tests"),
    "param-comms": (f"{_COLLECTIVES}.param_comms", "import_param_comms"),
    "topo": (f"{_COLLECTIVES}.topo", "import_topo"),
}


def run(options: Namespace) -> int:
    """Read the files; the table goes to --out, else to standard output as CSV."""
    if options.format not in _READERS:
        near = nearest(options.format, _READERS)
        raise InputError(f"format {options.format!r} is not known{near}")
    module, function = _READERS[options.format]
    result = getattr(import_module(module), function)(options.files)
    rows, skipped = result.table, [_skip(s) for s in result.skipped]
    if options.out:
        write_table(rows, options.out)
    if options.json:
        print_json({"rows": len(rows), "skipped": skipped, "table": options.out})
    elif options.out:
        print(f"{options.out} written: {len(rows)} rows")
    else:
        rows.to_csv(sys.stdout, index=False)
    if not options.json:
        for skip in skipped:
            print(f"skipped {skip['file']}:{skip['line']}: {skip['reason']}", file=sys.stderr)
    return 0


def _skip(skip: Any) -> dict[str, Any]:
    return {"file": skip.file, "line": skip.line, "reason": skip.reason}
