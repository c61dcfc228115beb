"""A user's log becomes measurements that the cost model of this run uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.cost.collectives.curves import OwnCurve
from perfmodel.cost.collectives.paths import comm_path
from perfmodel.errors import InputError
from perfmodel.hardware.records import Cluster
from perfmodel.measure.collectives.frame import check_columns, dtype_of
from perfmodel.measure.collectives.nccl_tests import import_nccl_tests
from perfmodel.measure.collectives.param_comms import import_param_comms
from perfmodel.measure.collectives.platforms import group_of
from perfmodel.measure.collectives.table import (
    COLUMNS,
    ImportResult,
    Skip,
    kind_of,
    read_text,
)
from perfmodel.units import US

if TYPE_CHECKING:
    import pandas as pd


def own_curves(
    table: pd.DataFrame, cluster: Cluster
) -> tuple[tuple[OwnCurve, ...], tuple[Skip, ...]]:
    """Curves of a table measured on the machine that `cluster` describes.

    Parameters
    ----------
    table : DataFrame
        Collective table, e.g. of `import_nccl_tests`. Rows without a number of nodes are taken to
        fill whole nodes of the cluster.
    cluster : Cluster
        Gives the links; the GPU names in the table are not looked at.

    Returns
    -------
    curves, skipped
        For `CollectiveModel(own=curves)`; skipped settings do not fit the cluster.

    Raises
    ------
    InputError
        If the table lacks columns.
    """
    check_columns(table)
    keys = ["collective", "dtype", "n_ranks", "nodes"]
    work = table.reindex(columns=[*keys, "bytes", "time_us"])
    work = work[(work["time_us"] > 0) & (work["bytes"] > 0)]
    curves, skipped = [], []
    for values, part in work.groupby(keys, dropna=False, sort=True):
        try:
            curves.append(_curve(dict(zip(keys, values, strict=True)), part, cluster))
        except InputError as error:
            name = f"{values[0]} on {values[2]} ranks"
            skipped.append(Skip(name, 0, str(error)))
    return tuple(curves), tuple(skipped)


@dataclass(frozen=True, slots=True)
class OwnLogs:
    """Measurements for `CollectiveModel(own=...)`, and what to tell the user about them."""

    curves: tuple[OwnCurve, ...]
    notes: tuple[str, ...]
    skipped: tuple[Skip, ...]
    table: pd.DataFrame


def read_own_logs(paths: Sequence[str | PathLike[str]], cluster: Cluster) -> OwnLogs:
    """Curves from a user's nccl-tests or PARAM logs, or collective tables, for runs on `cluster`.

    Raises
    ------
    InputError
        If a file cannot be read, or no row of any of them can be used.
    """
    import pandas as pd

    results = [_import(Path(path)) for path in paths]
    table = pd.concat([result.table for result in results], ignore_index=True)
    skipped = [skip for result in results for skip in result.skipped]
    curves, misfits = own_curves(table, cluster)
    skipped += misfits
    if not curves:
        reason = f": {skipped[0].reason}" if skipped else ""
        names = ", ".join(str(path) for path in paths)
        raise InputError(f"{names}: no collective timing could be used{reason}")
    shapes = sorted({f"{c.kind} on {c.path.num_ranks} ranks" for c in curves})
    note = f"collectives follow {len(table)} timings of your own logs: {', '.join(shapes)}"
    return OwnLogs(curves=curves, notes=(note,), skipped=tuple(skipped), table=table)


def _import(path: Path) -> ImportResult:
    """A log of either benchmark, or a table that `import` wrote."""
    import pandas as pd

    if path.suffix == ".parquet" and path.is_file():
        return ImportResult(table=pd.read_parquet(path), skipped=[])
    text = read_text(path)
    if path.suffix == ".csv" and text.startswith(COLUMNS[0]):
        return ImportResult(table=pd.read_csv(path), skipped=[])
    is_param = "COMMS-RES" in text
    return import_param_comms([path]) if is_param else import_nccl_tests([path])


def _curve(record: dict[str, Any], part: pd.DataFrame, cluster: Cluster) -> OwnCurve:
    num_ranks = int(record["n_ranks"])
    nodes = record["nodes"]
    num_nodes = -(-num_ranks // cluster.node.num_gpus) if nodes != nodes else int(nodes)
    if num_ranks % num_nodes:
        raise InputError(f"{num_ranks} ranks do not divide over {num_nodes} nodes")
    # A benchmark may have run on more or fewer nodes of the same kind than the run will use.
    measured = replace(cluster, num_nodes=max(cluster.num_nodes, num_nodes))
    medians = part.groupby("bytes")["time_us"].median()
    return OwnCurve(
        kind=kind_of(str(record["collective"])),
        dtype=dtype_of(record["dtype"]),
        path=comm_path(measured, group_of(num_nodes, num_ranks // num_nodes)),
        num_bytes=medians.index.to_numpy(dtype=float),
        seconds=np.asarray(medians, dtype=float) * US,
    )
