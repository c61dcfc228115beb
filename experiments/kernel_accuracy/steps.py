"""Operators inside whole fp32 training steps, on GPUs left out: forward and backward.

    python experiments/kernel_accuracy/steps.py

Models are trained on single forward kernels of all other silicon; nothing of the steps is fitted
but the backward ratios of `perfmodel.cost.kernels.backward`, which are medians over all GPUs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pandas as pd

from perfmodel.cost.kernels.bundle import KernelBundle, describe_model
from perfmodel.measure.kernels.evaluate import by_model, errors, evaluate_kernels
from perfmodel.measure.kernels.readers import read_steps
from perfmodel.measure.kernels.tables import check, fitting_rows, read_tables, take
from perfmodel.measure.kernels.train import train_model

TABLES = ("gemm", "elementwise", "norm", "softmax")
LEFT_OUT = {"A100-PCIE-80GB": "ga100", "L4": "ad104", "V100-PCIE-32GB": "gv100"}
SHORTEST_US = 60.0  # shorter operators are launch-bound in eager steps


def bundle_without(parts: list, silicon: str) -> KernelBundle:
    """Models for unseen GPUs from everything but `silicon`."""
    models = {}
    for part in parts:
        for name, mine in by_model(part):
            kept = take(mine, mine.rows.labels["silicon"] != silicon)
            models[name] = train_model(name, kept, branches=("transfer",))
    manifest = {"models": {n: describe_model(m) for n, m in models.items()}}
    return KernelBundle(manifest=manifest, models=models)


def main() -> int:
    """Print errors by direction and operator."""
    corpus = os.environ.get("PERFMODEL_CORPUS")
    if not corpus:
        print("PERFMODEL_CORPUS is not set", file=sys.stderr)
        return 2
    folder = Path(corpus) / "kernels"
    tables = [pd.read_parquet(folder / f"{name}.parquet") for name in TABLES]
    fp32 = [t[(t["dtype"] == "fp32")] for t in tables]
    parts = [part for t in fp32 for part in fitting_rows(check(read_tables([t]))[0])]
    steps = read_steps(pd.read_parquet(folder / "model_ops.parquet")).frame
    judged = []
    for gpu, silicon in LEFT_OUT.items():
        mine = steps[(steps["gpu"] == gpu) & (steps["latency_us"] > SHORTEST_US)]
        rows = evaluate_kernels([mine], bundle=bundle_without(parts, silicon)).rows
        judged.append(rows[rows["is_judged"]])
    rows = pd.concat(judged)
    for keys in (["direction"], ["direction", "gpu"], ["direction", "step_op"]):
        table = {key: errors(group) for key, group in rows.groupby(keys)}
        print(pd.DataFrame(table).T.round(3).to_string(), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
