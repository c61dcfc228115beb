"""A user's log becomes measurements that the cost model of this run uses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.cost.collectives.curves import OwnCurve
from perfmodel.cost.collectives.paths import comm_path
from perfmodel.errors import InputError
from perfmodel.hardware.records import Cluster
from perfmodel.measure.collectives.frame import check_columns, dtype_of
from perfmodel.measure.collectives.platforms import group_of
from perfmodel.measure.collectives.table import Skip, kind_of
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
