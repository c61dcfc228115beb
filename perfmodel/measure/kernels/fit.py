"""Fitting a bundle of kernel models, and adapting one to a few measured kernels."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.cost.kernels.bundle import SCHEMA_VERSION, KernelBundle, describe_model
from perfmodel.cost.kernels.learned import LearnedModel
from perfmodel.errors import InputError
from perfmodel.measure.kernels.adapt import adapt_bundle
from perfmodel.measure.kernels.attribution import ATTRIBUTION
from perfmodel.measure.kernels.evaluate import by_model
from perfmodel.measure.kernels.spread import with_spread
from perfmodel.measure.kernels.tables import Checked, check, fitting_rows, read_tables
from perfmodel.measure.kernels.train import train_model

if TYPE_CHECKING:
    import pandas as pd


def fit_kernels(
    tables: Iterable[str | Path | pd.DataFrame],
    out: str | Path,
    base: str | Path | KernelBundle | None = None,
) -> KernelBundle:
    """Fit kernel models on measured tables and write them as a bundle.

    Parameters
    ----------
    tables : iterable of path or DataFrame
        Kernel tables. Rows flagged `suspect` or `launch_bound` are not fitted.
    out : path
        Folder of the bundle.
    base : path or KernelBundle, optional
        Adapt this bundle to the rows instead: for a GPU of which only a few kernels are measured.

    Returns
    -------
    KernelBundle
        Its manifest holds sources, rows, held-out error, shape ranges and library versions.

    Raises
    ------
    InputError
        If a table cannot be read, or no row of it can be fitted.
    """
    frame = read_tables(tables)
    parts, refusals = check(frame)
    parts = fitting_rows(parts)
    if not parts:
        reasons = sorted({str(r) for r in refusals if r}) or ["none has a usable latency_us"]
        raise InputError(f"no row can be fitted: {reasons[0]}")
    if base is not None:
        opened = base if isinstance(base, KernelBundle) else KernelBundle.load(base)
        bundle = adapt_bundle(opened, parts)
    else:
        bundle = _fit(parts, frame)
    bundle.save(out)
    return bundle


def _fit(parts: Iterable[Checked], frame: pd.DataFrame) -> KernelBundle:
    models: dict[str, LearnedModel] = {}
    entries: dict[str, Any] = {}
    for part in parts:
        for name, mine in by_model(part):
            model = with_spread(train_model(name, mine), mine, "source")
            models[name] = model
            entries[name] = {**describe_model(model), "rows": len(mine.index)}
    return KernelBundle(manifest=_manifest(frame, entries), models=models)


def _manifest(frame: pd.DataFrame, entries: Mapping[str, Any]) -> dict[str, Any]:
    import sklearn
    import xgboost

    sources = frame["source"].value_counts().to_dict() if "source" in frame.columns else {}
    return {
        "kind": "kernels",
        "schema_version": SCHEMA_VERSION,
        "models": dict(entries),
        "sources": {
            name: {"rows": int(rows), **ATTRIBUTION.get(name, {})}
            for name, rows in sorted(sources.items())
            if name
        },
        "versions": {
            "python": platform.python_version(), "numpy": np.__version__,
            "scikit-learn": sklearn.__version__, "xgboost": xgboost.__version__,
        },
        "seed": 0,
    }  # fmt: skip
