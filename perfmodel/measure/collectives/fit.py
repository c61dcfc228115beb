"""Fits the shipped (or a user's) bundle and writes its manifest."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.cost.collectives.bundle import SCHEMA_VERSION, save_residual
from perfmodel.cost.collectives.residual import Residual, case_of
from perfmodel.errors import InputError
from perfmodel.measure.collectives.evaluate import leave_one_out, trusted
from perfmodel.measure.collectives.fitting import fit_residual
from perfmodel.measure.collectives.frame import Curve, curves_of, settings_of_rows
from perfmodel.measure.collectives.intervals import HeldOutErrors, hold_out_sources
from perfmodel.measure.collectives.protocols import LeaveOut

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class FitResult:
    """The fitted residual and its manifest."""

    residual: Residual
    manifest: dict[str, Any]


def fit_collectives(
    tables: pd.DataFrame | Sequence[pd.DataFrame],
    out: str | PathLike[str] | None = None,
    *,
    command: str = "perfmodel fit TABLE --out BUNDLE",
) -> FitResult:
    """Fit the residual on measured tables; with `out`, write a bundle folder.

    Parameters
    ----------
    tables : DataFrame or sequence of DataFrame
        Collective tables.
    out : path, optional
        Folder for `residual.json` and `manifest.json`.
    command : str
        Command that rebuilds the bundle, for the manifest.

    Raises
    ------
    InputError
        If no row can be used.
    """
    import pandas as pd

    frames = [tables] if isinstance(tables, pd.DataFrame) else list(tables)
    table = pd.concat(frames, ignore_index=True)
    settings = settings_of_rows(table)
    curves = trusted(curves_of(table, settings))
    if not curves:
        raise InputError("no row of the collective tables can be fitted")
    errors = hold_out_sources(curves, leave_one_out(curves, LeaveOut.SOURCE))
    residual = replace(fit_residual(curves), sigma=errors.sigma())
    refused = sum(isinstance(setting, str) for setting in settings)
    manifest = _manifest(table, curves, errors, refused, command)
    if out is not None:
        save_residual(residual, Path(out), manifest)
    return FitResult(residual=residual, manifest=manifest)


def _manifest(
    table: pd.DataFrame,
    curves: Sequence[Curve],
    errors: HeldOutErrors,
    refused: int,
    command: str,
) -> dict[str, Any]:
    import pandas as pd

    by_source: dict[str, dict[str, Any]] = {}
    for curve in curves:
        entry = by_source.setdefault(curve.source, {"curves": 0, "rows": 0, "gpus": set()})
        entry["curves"] += 1
        entry["rows"] += sum(len(positions) for positions in curve.positions)
        entry["gpus"].add(curve.gpu)
    return {
        "schema_version": SCHEMA_VERSION,
        "what": "residual of the closed form of collectives: terms over knots, no raw rows",
        "sources": {
            name: {**entry, "gpus": sorted(entry["gpus"])} for name, entry in by_source.items()
        },
        "rows": {"given": len(table), "refused": refused},
        "held_out_source_error": errors.summary(),
        "ranges": _ranges(curves),
        "libraries": {
            "python": platform.python_version(), "numpy": np.__version__, "pandas": pd.__version__,
        },
        "command": command,
    }  # fmt: skip


def _ranges(curves: Sequence[Curve]) -> dict[str, Any]:
    """What the fit has seen, by case."""
    out: dict[str, Any] = {}
    for case in sorted({case_of(curve.path) for curve in curves}):
        part = [curve for curve in curves if case_of(curve.path) == case]
        out[case] = {
            "bytes": [min(c.num_bytes[0] for c in part), max(c.num_bytes[-1] for c in part)],
            "ranks_per_node": _span(c.gpus_per_node for c in part),
            "nodes": _span(c.nodes for c in part),
            "collectives": sorted({str(c.kind) for c in part}),
        }
    return out


def _span(values: Any) -> list[int]:
    found = list(values)
    return [min(found), max(found)]
