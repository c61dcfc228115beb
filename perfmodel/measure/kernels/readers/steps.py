"""Operators inside whole training steps (`model_ops` tables): a kernel table comes out.

Shapes are texts: `input_shapes` "[[8, 512, 1024]]", `output_shape` "(8, 512, 1024)".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from perfmodel.measure.kernels.readers.form import KernelTable

if TYPE_CHECKING:
    import pandas as pd

_ROWWISE = {"softmax": "softmax", "layernorm": "layernorm"}
_ELEMENTWISE = {
    "tanh": "tanh", "gelu": "gelu", "relu": "relu", "dropout": "dropout", "pow": "powu",
    "truediv": "divu", "add": "add", "mul": "mul", "where": "mul", "masked_fill": "mulu",
    "max": "mulu", "contiguous": "mulu", "sub": "mulu",
}  # fmt: skip
# Operators that read two full inputs, or one and a scalar or a broadcast row.
_BINARY = {"add": "addu", "mul": "mulu"}
_TWO_INPUTS = 2


def read_steps(frame: pd.DataFrame) -> KernelTable:
    """Kernel table of the operators whose shapes say what they do; the others are counted."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    skipped: dict[str, int] = {}
    names = ["gpu", "dtype", "op", "direction", "input_shapes", "output_shape", "latency_us"]
    columns = [c for c in ("source", "model", "mode", "count") if c in frame.columns]
    for record in frame[names + columns].to_dict("records"):
        shape = _shape(str(record["op"]), *_sizes(record))
        if shape is None:
            key = f"operator {record['op']}"
            skipped[key] = skipped.get(key, 0) + 1
            continue
        kept = {c: record[c] for c in ("gpu", "dtype", "direction", "latency_us", *columns)}
        rows.append({**kept, "step_op": record["op"], "framework": "torch-eager", **shape})
    return KernelTable(frame=pd.DataFrame(rows), skipped=skipped)


def _sizes(record: Mapping[str, Any]) -> tuple[list[list[int]], list[int]]:
    inputs = json.loads(record["input_shapes"])
    text = record["output_shape"].strip("()[] ").rstrip(",")
    return inputs, [int(v) for v in text.split(",") if v.strip()]


def _shape(op: str, inputs: Sequence[list[int]], output: list[int]) -> dict[str, Any] | None:
    """Operator and shape columns of one kernel, None where they cannot be told."""
    if not inputs or not output or min(output) < 1:
        return None
    if op == "linear":
        m = prod(output[:-1])
        return {"op": "linear", "batch": 1, "m": m, "n": output[-1], "k": inputs[0][-1]}
    if op == "addmm" and len(inputs) > 1:
        return {"op": "linear", "batch": 1, "m": output[0], "n": output[-1], "k": inputs[1][-1]}
    if op in ("matmul", "bmm") and len(output) > 2:
        m, n = output[-2:]
        return {"op": "bmm", "batch": prod(output[:-2]), "m": m, "n": n, "k": inputs[0][-1]}
    if op in _ROWWISE:
        return {"op": _ROWWISE[op], "rows": prod(output[:-1]), "cols": output[-1]}
    if op in _ELEMENTWISE:
        full = sum(prod(shape) == prod(output) for shape in inputs)
        name = _ELEMENTWISE[op]
        name = _BINARY.get(name, name) if full < _TWO_INPUTS else name
        return {"op": name, "rows": prod(output[:-1]), "cols": output[-1]}
    return None
