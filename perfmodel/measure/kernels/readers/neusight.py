"""NeuSight's collector: a folder of CSV files, one row a timing, one operator in each file.

Columns: OPName, Device, Latency (ms), Kernel Name, Grid and Block sizes, and B,M,N,K (matrix
products: [B,M,N] times [B,N,K]), B,H (vectors), or the sizes of a convolution. fp32, TF32 off.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfmodel.measure.kernels.readers.form import (
    MS_TO_US,
    KernelTable,
    collect,
    read_file,
    table_files,
)

if TYPE_CHECKING:
    import pandas as pd

_OPS = {
    "bmm": "bmm", "linear": "linear", "ln": "layernorm", "softmax": "softmax", "conv": "conv2d",
    **{op: op for op in (
        "add", "mul", "div", "pow", "addu", "mulu", "divu", "powu", "tanh", "relu", "gelu",
        "dropout",
    )},
}  # fmt: skip
# Column of the file -> column of ours. The collector's middle size N is the one summed over.
_MATRIX = {"B": "batch", "M": "m", "K": "n", "N": "k"}
_VECTOR = {"B": "rows", "H": "cols"}
_CONVOLUTION = {
    "B": "batch", "Input_Channel": "in_channels", "Output_Channel": "out_channels",
    "Kernel_Szie": "kernel_size", "Kernel_Size": "kernel_size", "Input_Size": "image_size",
    "Stride": "stride", "Padding": "padding",
}  # fmt: skip


def read_neusight(folder: str | Path) -> KernelTable:
    """Read every CSV file under `folder`; repeats of one configuration become their median.

    Raises
    ------
    InputError
        If there is no such folder, or a file is not a table.
    """
    frames: list[pd.DataFrame] = []
    skipped: dict[str, int] = {}
    for path in table_files(folder):
        raw = read_file(path)
        if not {"OPName", "Device", "Latency"} <= set(raw.columns):
            skipped[f"{path.name}: no OPName, Device, Latency"] = len(raw)
            continue
        for name, rows in raw.groupby("OPName", sort=True):
            op = _OPS.get(str(name).lower())
            if op is None:
                skipped[f"operator {name}"] = skipped.get(f"operator {name}", 0) + len(rows)
            else:
                frames.append(_table(rows, op))
    result = collect(frames, skipped)
    return KernelTable(frame=_median_of_repeats(result.frame), skipped=result.skipped)


def _table(rows: pd.DataFrame, op: str) -> pd.DataFrame:
    import pandas as pd

    columns = {"bmm": _MATRIX, "linear": _MATRIX, "conv2d": _CONVOLUTION}.get(op, _VECTOR)
    out = pd.DataFrame(
        {
            "source": "neusight",
            "gpu": rows["Device"].astype(str).str.strip(),
            "op": op,
            "direction": "fwd",
            "dtype": "fp32",
            "framework": "torch-eager",
            "latency_us": pd.to_numeric(rows["Latency"], errors="coerce") * MS_TO_US,
        }
    )
    for theirs, ours in columns.items():
        if theirs in rows.columns:
            out[ours] = rows[theirs].to_numpy()
    return out


def _median_of_repeats(frame: pd.DataFrame) -> pd.DataFrame:
    keys = [c for c in frame.columns if c != "latency_us"]
    if not len(frame):
        return frame
    return frame.groupby(keys, sort=True, dropna=False, as_index=False)["latency_us"].median()
