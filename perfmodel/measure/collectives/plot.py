"""Measured points against the model's curve: the numbers, and a picture of them."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.cost.collectives.curves import OwnCurve
from perfmodel.cost.collectives.model import CollectiveModel
from perfmodel.errors import InputError, MissingCapabilityError
from perfmodel.units import US

if TYPE_CHECKING:
    import pandas as pd

_POINTS_PER_OCTAVE = 2
_Z80 = 1.2816


def curve_table(curves: Sequence[OwnCurve], model: CollectiveModel) -> pd.DataFrame:
    """Measured points and the model's curve with its 80 % interval, for each own curve.

    Returns
    -------
    DataFrame
        `collective, n_ranks, nodes, bytes, measured_us` (null between measured sizes),
        `predicted_us, lo_us, hi_us`.
    """
    import pandas as pd

    pieces = []
    for curve in curves:
        low, high = np.log2(curve.num_bytes[[0, -1]])
        between = 2 ** np.arange(low, high, 1 / _POINTS_PER_OCTAVE)
        size = np.unique(np.concatenate([curve.num_bytes, between]))
        seconds, sigma = model.predict(curve.kind, size, curve.path, curve.dtype)
        measured = np.full(len(size), np.nan)
        measured[np.searchsorted(size, curve.num_bytes)] = curve.seconds / US
        pieces.append(
            pd.DataFrame(
                {
                    "collective": str(curve.kind),
                    "n_ranks": curve.path.num_ranks,
                    "nodes": curve.path.num_nodes,
                    "bytes": size,
                    "measured_us": measured,
                    "predicted_us": seconds / US,
                    "lo_us": seconds * np.exp(-_Z80 * sigma) / US,
                    "hi_us": seconds * np.exp(_Z80 * sigma) / US,
                }
            )
        )
    if not pieces:
        raise InputError("there is no measured curve to plot")
    return pd.concat(pieces, ignore_index=True)


def plot_curves(
    curves: Sequence[OwnCurve], model: CollectiveModel, out: str | PathLike[str]
) -> None:
    """Write a picture (format by the suffix of `out`): points measured, line and band predicted.

    Raises
    ------
    MissingCapabilityError
        If matplotlib is not installed.
    InputError
        If there is no curve.
    """
    table = curve_table(curves, model)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingCapabilityError(
            "plots need matplotlib: pip install 'perfmodel[report]'"
        ) from None
    figure: Any = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for (name, ranks, _), part in table.groupby(["collective", "n_ranks", "nodes"], sort=True):
        (line,) = axes.plot(part["bytes"], part["predicted_us"], label=f"{name}, {ranks} ranks")
        axes.fill_between(
            part["bytes"], part["lo_us"], part["hi_us"], color=line.get_color(), alpha=0.15
        )
        axes.plot(part["bytes"], part["measured_us"], "o", markersize=4, color=line.get_color())
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="microseconds")
    axes.set_title("points: measured; line and band: model with 80 % interval")
    axes.legend()
    figure.savefig(Path(out))
