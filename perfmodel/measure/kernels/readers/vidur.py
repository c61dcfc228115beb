"""Vidur's profiles: `mlp.csv` files, one row for all operators of a layer at one token count.

Columns: time_stats.OPERATOR.median (ms), n_head, n_kv_head, n_embd, n_expanded_embd, vocab_size,
use_gated_mlp, num_tokens, num_tensor_parallel_workers. The folders above name the device. fp16.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from perfmodel.measure.kernels.readers.form import (
    MS_TO_US,
    KernelTable,
    collect,
    read_file,
    table_files,
)

if TYPE_CHECKING:
    import pandas as pd

    Column: TypeAlias = "pd.Series[float]"

_NEEDED = (
    "n_head", "n_embd", "n_expanded_embd", "use_gated_mlp", "num_tokens",
    "num_tensor_parallel_workers",
)  # fmt: skip
_FOLDERS_ABOVE = 2  # DEVICE/MODEL/mlp.csv; MODEL may itself be ORGANISATION/NAME


def read_vidur(folder: str | Path, gpu: str | None = None) -> KernelTable:
    """Read every `mlp.csv` under `folder`.

    Parameters
    ----------
    folder : path
        A folder of DEVICE/MODEL/mlp.csv.
    gpu : str, optional
        The device, where the folders do not name it.

    Raises
    ------
    InputError
        If there is no such folder, or a file is not a table.
    """
    frames: list[pd.DataFrame] = []
    skipped: dict[str, int] = {}
    root = Path(folder)
    for path in table_files(root):
        raw = read_file(path)
        missing = [c for c in _NEEDED if c not in raw.columns]
        if missing:
            skipped[f"{path.name}: no {missing[0]}"] = len(raw)
            continue
        above = path.relative_to(root).parts[:-1]
        device = gpu or (above[0] if len(above) >= _FOLDERS_ABOVE else root.name)
        frames.extend(_tables(raw, device))
    return collect(frames, skipped)


def _tables(raw: pd.DataFrame, device: str) -> list[pd.DataFrame]:
    """One table for each operator a file has times of."""
    import pandas as pd

    out = []
    for name, (op, shape) in _shapes(raw).items():
        column = f"time_stats.{name}.median"
        if column not in raw.columns:
            continue
        out.append(
            pd.DataFrame(
                {
                    "source": "vidur",
                    "gpu": device,
                    "op": op,
                    "direction": "fwd",
                    "dtype": "fp16",
                    "framework": "sarathi-torch",
                    **shape,
                    "latency_us": pd.to_numeric(raw[column], errors="coerce") * MS_TO_US,
                }
            )
        )
    return out


def _shapes(raw: pd.DataFrame) -> dict[str, tuple[Column, dict[str, Column]]]:
    """Operator name and shape of each profiled piece; tensor parallelism divides the width."""
    workers, tokens, hidden = (
        raw[c].astype(float) for c in ("num_tensor_parallel_workers", "num_tokens", "n_embd")
    )
    heads = raw["n_head"].astype(float)
    kv_heads = raw["n_kv_head"].astype(float) if "n_kv_head" in raw.columns else heads
    head_dim = hidden / heads
    inner = raw["n_expanded_embd"].astype(float) / workers
    is_gated = raw["use_gated_mlp"].astype(bool)
    one = tokens * 0.0 + 1.0

    def gemm(n: Column, k: Column) -> tuple[Column, dict[str, Column]]:
        return _named("linear", tokens), {"batch": one, "m": tokens, "n": n, "k": k}

    def rows(op: Column, cols: Column) -> tuple[Column, dict[str, Column]]:
        return op, {"rows": tokens, "cols": cols}

    # Models with a gated MLP normalise by root mean square (Llama and its kin).
    norm = _named("layernorm", tokens).where(~is_gated, "rmsnorm")
    pieces = {
        "attn_pre_proj": gemm((heads + 2 * kv_heads) * head_dim / workers, hidden),
        "attn_post_proj": gemm(hidden, heads * head_dim / workers),
        "mlp_up_proj": gemm(inner.where(~is_gated, 2 * inner), hidden),
        "mlp_down_proj": gemm(hidden, inner),
        "input_layernorm": rows(norm, hidden),
        "post_attention_layernorm": rows(norm, hidden),
        "mlp_act": rows(_named("gelu", tokens).where(~is_gated, "silu_mul"), inner),
        "attn_rope": rows(_named("rope", tokens), (heads + kv_heads) * head_dim / workers),
        "add": rows(_named("add", tokens), hidden),
    }
    if "vocab_size" in raw.columns:
        height = raw["vocab_size"].astype(float) / workers
        shape = {"num_tables": one, "rows_per_table": height, "dim": hidden, "batch": tokens}
        pieces["emb"] = (_named("embedding", tokens), {**shape, "pooling": one})
    return pieces


def _named(op: str, like: Column) -> Column:
    import pandas as pd

    return pd.Series([op] * len(like), index=like.index, dtype=object)
