"""aiconfigurator's tables: SYSTEM/BACKEND/VERSION/OP_perf files (CSV text or parquet).

The package `aiconfigurator-core` ships them under `systems/data`. Latencies are in ms. Only the
formats the cost models know are kept (bf16, fp16, fp8); block-scaled and 4-bit ones are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
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

_DTYPES = {"bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "fp8": "fp8"}
_GEMM = {"m": "m", "n": "n", "k": "k"}
_ATTENTION = {
    "batch_size": "batch", "isl": "seq_len", "num_heads": "num_heads",
    "num_key_value_heads": "num_kv_heads", "head_dim": "head_dim", "window_size": "window",
}  # fmt: skip
_MOE = {
    name: name
    for name in (
        "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size",
        "moe_ep_size", "distribution",
    )
}  # fmt: skip
# Start of the file name -> operator, column that holds the format, columns of the shape.
_TABLES: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "gemm_perf": ("linear", "gemm_dtype", _GEMM),
    "context_attention_perf": ("attention", "attn_dtype", _ATTENTION),
    "encoder_attention_perf": ("attention", "attn_dtype", _ATTENTION),
    "moe_perf": ("moe", "moe_dtype", _MOE),
}
_SYSTEM_LEVEL = 3  # SYSTEM/BACKEND/VERSION above the file


def read_aiconfigurator(folder: str | Path, gpu: str | None = None) -> KernelTable:
    """Read the GEMM, attention and expert tables under `folder`.

    Parameters
    ----------
    folder : path
        A folder of SYSTEM/BACKEND/VERSION/OP_perf files, or one such VERSION folder.
    gpu : str, optional
        The device, where neither a `device` column nor the folders name it.

    Raises
    ------
    InputError
        If there is no such folder, or a file is not a table.
    """
    frames: list[pd.DataFrame] = []
    skipped: dict[str, int] = {}
    for path in table_files(folder):
        entry = next((_TABLES[start] for start in _TABLES if path.stem.startswith(start)), None)
        if entry is None:
            skipped["tables of other operators"] = skipped.get("tables of other operators", 0) + 1
            continue
        table = _table(path, entry, gpu, skipped)
        if table is not None:
            frames.append(table)
    return collect(frames, skipped)


def _table(
    path: Path,
    entry: tuple[str, str, Mapping[str, str]],
    gpu: str | None,
    skipped: dict[str, int],
) -> pd.DataFrame | None:
    import pandas as pd

    op, dtype_column, columns = entry
    raw = read_file(path)
    if "latency" not in raw.columns:
        skipped[f"{path.name}: no latency"] = len(raw)
        return None
    formats = _column(raw, dtype_column, "bfloat16")
    dtype = formats.map(_DTYPES)
    for name, count in formats[dtype.isna()].value_counts().items():
        key = f"format {name}"
        skipped[key] = skipped.get(key, 0) + int(count)
    system = path.parents[2].name if len(path.parents) >= _SYSTEM_LEVEL else ""
    out = pd.DataFrame(
        {
            "source": "aiconfigurator",
            "gpu": gpu or _column(raw, "device", system),
            "op": op,
            "direction": "fwd",
            "dtype": dtype,
            "framework": _column(raw, "framework", path.parents[1].name).str.lower(),
            "framework_version": _column(raw, "version", path.parent.name),
            "kernel": _column(raw, "kernel_source", ""),
            "latency_us": pd.to_numeric(raw["latency"], errors="coerce") * MS_TO_US,
        }
    )
    for theirs, ours in columns.items():
        if theirs in raw.columns:
            out[ours] = raw[theirs].to_numpy()
    if op == "attention":
        out["causal"] = not path.stem.startswith("encoder")
    return out[dtype.notna()]


def _column(raw: pd.DataFrame, name: str, default: str) -> pd.Series[str]:
    import pandas as pd

    if name in raw.columns:
        return raw[name].astype(object).where(raw[name].notna(), default).astype(str)
    return pd.Series([default] * len(raw), index=raw.index, dtype=object)
