"""Accuracy of the kernel models on rows they did not see, by operator, format and GPU.

    python experiments/kernel_accuracy/run.py shape|group|gpu|source|few [TABLE...]
    python experiments/kernel_accuracy/run.py bundle

`few` leaves a GPU out with its siblings and gives back 20 of its rows for each operator; `bundle`
prints what the shipped bundle's manifest says of its own held-out rows. Needs PERFMODEL_CORPUS but
for the last. Results go to `results/PROTOCOL.csv`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pandas as pd

from perfmodel.measure.kernels.evaluate import errors, evaluate_kernels
from perfmodel.measure.kernels.few import evaluate_few_shots
from perfmodel.measure.kernels.rebuild import TABLES

HERE = Path(__file__).parent
MANIFEST = HERE.parents[1] / "datasets" / "bundles" / "kernels" / "manifest.json"
KEYS = ["op", "dtype", "gpu"]
# Stored in NeuSight's repository (commit 6945927d): mean absolute percentage error of operators
# summed over whole models on the GPUs it was not trained on (H100, L4, A100-80). Sums average
# errors out, so these are no like-for-like comparison with single kernels.
NEUSIGHT_MAPE = {"bmm": 13.8, "linear": 13.9, "add": 19.3, "softmax": 13.9, "layernorm": 56.7}


def evaluate(protocol: str, names: list[str], corpus: Path) -> pd.DataFrame:
    """Errors of every operator, format and GPU of the named tables."""
    pieces = []
    for name in names:
        table = pd.read_parquet(corpus / "kernels" / f"{name}.parquet")
        if "direction" in table:
            table = table[table["direction"] == "fwd"]
        table = table[~table["gpu"].astype(str).str.startswith("unstated")]
        # GEMMs have a model for each format; all others learn from all formats together.
        is_split = name == "gemm"
        for part in [g for _, g in table.groupby("dtype", observed=True)] if is_split else [table]:
            if protocol == "few":
                pieces.append(evaluate_few_shots([part]))
                continue
            rows = evaluate_kernels([part], leave_out=protocol).rows
            judged = rows[rows["is_judged"]]
            found = {key: errors(group) for key, group in judged.groupby(KEYS)}
            pieces.append(pd.DataFrame(found).T.rename_axis(KEYS).reset_index())
    return pd.concat(pieces, ignore_index=True)


def from_manifest() -> pd.DataFrame:
    """Held-out errors that the bundle reports of itself."""
    manifest = json.loads(MANIFEST.read_text(encoding="utf-8"))
    rows = [
        {"model": model, "held_out": protocol, "name": name, **values}
        for model, entry in manifest["models"].items()
        for protocol, found in entry["held_out_error"].items()
        for name, values in found.items()
    ]
    return pd.DataFrame(rows)


def main(arguments: list[str]) -> int:
    """Evaluate, print, write."""
    protocol, *names = arguments or ["bundle"]
    if protocol == "bundle":
        table = from_manifest()
    else:
        corpus = os.environ.get("PERFMODEL_CORPUS")
        if not corpus:
            print("PERFMODEL_CORPUS is not set", file=sys.stderr)
            return 2
        table = evaluate(protocol, names or list(TABLES), Path(corpus))
        table["neusight_mape"] = table["op"].map(NEUSIGHT_MAPE)
    numbers = table.select_dtypes("number").columns
    table[numbers] = table[numbers].round(4)
    target = HERE / "results" / f"{protocol}{'-' + '-'.join(names) if names else ''}.csv"
    target.parent.mkdir(exist_ok=True)
    table.to_csv(target, index=False)
    print(table.to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
