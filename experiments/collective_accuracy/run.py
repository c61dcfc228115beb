"""Accuracy of the collective model on held-out sources, and the shipped bundle.

    python experiments/collective_accuracy/run.py [--bundle FOLDER] [--results FOLDER]

needs PERFMODEL_CORPUS (collectives/measured.parquet below it).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from perfmodel.cost.collectives import CollectiveModel
from perfmodel.hardware.clusters import cluster_from_names
from perfmodel.hardware.records import GroupShape
from perfmodel.measure.collectives import EvaluateResult, evaluate_collectives, fit_collectives
from perfmodel.measure.collectives.frame import MIXED_SOURCES
from perfmodel.program.work import Collective, CollectiveKind

HERE = Path(__file__).parent
PROTOCOLS = (None, "sizes", "larger", "ranks", "three-points")
COLUMNS = (
    "rows",
    "curves",
    "sources",
    "geomean_error",
    "bias",
    "median",
    "p90",
    "worst",
    "coverage",
)


def measured() -> pd.DataFrame:
    """The corpus table without sources whose runs mix settings."""
    root = os.environ.get("PERFMODEL_CORPUS")
    if not root:
        raise SystemExit("set PERFMODEL_CORPUS to the folder of the measured corpus")
    table = pd.read_parquet(Path(root) / "collectives" / "measured.parquet")
    return table[~table["source"].str.contains("|".join(MIXED_SOURCES))]


def lines_of(name: str, result: EvaluateResult) -> Iterator[dict[str, object]]:
    """One line for all rows and one for each case."""
    cases: Mapping[str, Mapping[str, float]] = {"all": result.summary, **result.by_case}
    for case, figures in cases.items():
        yield {"protocol": name, "case": case, **{k: figures.get(k) for k in COLUMNS}}


def accuracy(table: pd.DataFrame, results: Path) -> None:
    """Must-show table: every protocol, always without the row's own source in the fit."""
    lines: list[dict[str, object]] = []
    for protocol in PROTOCOLS:
        result = evaluate_collectives(table, leave_out="source", protocol=protocol)
        name = protocol or "nothing of one's own"
        lines += lines_of(name, result)
        by_source = pd.DataFrame(result.by_source).T[list(COLUMNS)].round(4)
        by_source.to_csv(results / f"by_source_{(protocol or 'none').replace('-', '_')}.csv")
    frame = pd.DataFrame(lines).round(4)
    frame.to_csv(results / "accuracy.csv", index=False)
    print(frame.to_string(index=False))


def speed() -> None:
    """Seconds for 100,000 predictions of every kind on ten nodes."""
    cluster = cluster_from_names("dgx_h100", 10)
    works = [
        Collective(
            kind=kind, num_bytes=float(size), group=GroupShape(ranks_per_node=local, num_nodes=10)
        )
        for kind in CollectiveKind
        for local in (1, 2, 4, 8)
        for size in np.logspace(1, 10, 3125)
    ]
    start = time.perf_counter()
    CollectiveModel().estimate(works, cluster)
    print(f"{len(works)} predictions in {time.perf_counter() - start:.2f} s")


def main() -> None:
    """Run as described at the top."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, help="also fit on everything and write a bundle")
    parser.add_argument("--results", type=Path, default=HERE)
    parser.add_argument("--only-bundle", action="store_true")
    options = parser.parse_args()
    table = measured()
    if options.bundle:
        command = f"python experiments/collective_accuracy/run.py --bundle {options.bundle}"
        print(
            fit_collectives(table, options.bundle, command=command).manifest[
                "held_out_source_error"
            ]
        )
    if not options.only_bundle:
        accuracy(table, options.results)
        speed()


if __name__ == "__main__":
    main()
