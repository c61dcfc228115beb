"""`perfmodel fit TABLE… --out BUNDLE`: cost models from measured tables."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from perfmodel.cli.output import print_json
from perfmodel.measure.tables import TableKind, read_tables


def run(options: Namespace) -> int:
    """Fit, write the bundle with its manifest, say what went in."""
    kind, table = read_tables(options.files)
    names = " ".join(Path(file).name for file in options.files)
    command = f"perfmodel fit {names} --out BUNDLE"
    manifest = _fit(kind, table, options.out, command)
    if options.json:
        print_json({"kind": kind, "rows": len(table), "bundle": options.out, "manifest": manifest})
    else:
        print(f"{options.out} written: fitted to {len(table)} rows of {kind}")
    return 0


def _fit(kind: TableKind, table: Any, out: str, command: str) -> Any:
    if kind is TableKind.COLLECTIVES:
        from perfmodel.measure.collectives import fit_collectives

        return fit_collectives(table, out, command=command).manifest
    from perfmodel.measure.kernels.fit import fit_kernels

    return fit_kernels([table], out).manifest
