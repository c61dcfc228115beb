"""Fitting a bundle of kernel models, and adapting one to a few measured kernels."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
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
from perfmodel.measure.kernels.tables import Checked, check, fitting_rows, merge, read_tables
from perfmodel.measure.kernels.train import SEED, train_model

if TYPE_CHECKING:
    import pandas as pd

REBUILD = "python -m perfmodel.measure.kernels.rebuild datasets/bundles/kernels"
"""Command that builds the shipped bundle from the corpus that PERFMODEL_CORPUS names."""


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
    parts, reasons = _usable(tables)
    if not parts:
        raise InputError(f"no row can be fitted: {min(reasons, default='no usable latency_us')}")
    if base is not None:
        opened = base if isinstance(base, KernelBundle) else KernelBundle.load(base)
        bundle = adapt_bundle(opened, parts)
    else:
        bundle = _fit(parts)
    bundle.save(out)
    return bundle


def _usable(tables: Iterable[str | Path | pd.DataFrame]) -> tuple[list[Checked], set[str]]:
    """Rows to fit, table by table (one frame of everything would not fit small machines)."""
    parts: list[Checked] = []
    reasons: set[str] = set()
    for table in tables:
        checked, refusals = check(read_tables([table]))
        parts.extend(fitting_rows(checked))
        reasons |= {str(r) for r in set(refusals.tolist()) if r}
    return merge(parts), reasons


def _fit(parts: Sequence[Checked]) -> KernelBundle:
    models: dict[str, LearnedModel] = {}
    entries: dict[str, Any] = {}
    for part in parts:
        for name, mine in by_model(part):
            fitted = with_spread(train_model(name, mine), mine)
            models[name] = fitted.model
            entries[name] = {
                **describe_model(fitted.model),
                "rows": len(mine.index),
                "held_out_error": fitted.errors,
            }
    return KernelBundle(manifest=_manifest(parts, entries), models=models)


def _manifest(parts: Sequence[Checked], entries: Mapping[str, Any]) -> dict[str, Any]:
    import sklearn
    import xgboost

    names, counts = np.unique(
        np.concatenate([part.source for part in parts]).astype(str), return_counts=True
    )
    return {
        "kind": "kernels",
        "schema_version": SCHEMA_VERSION,
        "models": dict(entries),
        "sources": {
            name: {"rows": int(rows), **ATTRIBUTION.get(name, {})}
            for name, rows in zip(names.tolist(), counts, strict=True)
            if name
        },
        "versions": {
            "python": platform.python_version(), "numpy": np.__version__,
            "scikit-learn": sklearn.__version__, "xgboost": xgboost.__version__,
        },
        "seed": SEED,
        "rebuild": REBUILD,
    }  # fmt: skip
