"""Predicts all published runs, fits the execution bundle, and writes the result tables.

    python experiments/published_runs/run.py [ROWS.jsonl …] [--bundle OUT] [--results FOLDER]

Default rows: `datasets/published_runs/*.jsonl`. Takes about ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfmodel.cost.execution import ExecutionBundle, load_execution, write_execution
from perfmodel.locations import datasets_path
from perfmodel.measure.fanout import Pool, print_progress
from perfmodel.measure.intervals import build_execution
from perfmodel.measure.published import read_rows
from perfmodel.measure.validate import ValidateResult, validate

HERE = Path(__file__).resolve().parent
COLUMNS = (
    "rows", "groups", "geomean_error_factor", "row_factor", "bias", "mape", "median_ape",
    "p90_ape", "worst", "interval_coverage",
)  # fmt: skip


def main() -> None:
    """Fit, validate in every protocol, write tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", type=Path)
    parser.add_argument("--bundle", type=Path, help="write the fitted bundle here")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    args = parser.parse_args()
    files = args.rows or sorted(datasets_path("published_runs").glob("*.jsonl"))
    rows = [row for file in files for row in read_rows(file)]
    if args.bundle:
        good = [r for r in rows if r.get("confidence") != "low"]
        command = f"python experiments/published_runs/run.py --bundle {args.bundle.name}"
        with Pool() as pool:
            fitted, bundle = build_execution(
                good,
                data=[f.name for f in files],
                command=command,
                pool=pool,
                progress=print_progress,
            )
        write_execution(bundle, args.bundle)
        write_json(args.results / "parameters.json", fitted.to_dict())
    shipped = load_execution(args.bundle)
    priors = ExecutionBundle(spread=shipped.spread)
    protocols = {
        "priors": validate(rows, bundle=priors),
        "in_sample": validate(rows, bundle=shipped),
        "leave_group_out": validate(rows, bundle=shipped, leave_out="group"),
        "leave_source_out": validate(rows, bundle=shipped, leave_out="source"),
    }
    for name, result in protocols.items():
        write_table(args.results / f"{name}.csv", result)
        write_rows(args.results / f"{name}_rows.csv", result.rows)
    write_json(
        args.results / "summary.json", {n: headline(r.summary) for n, r in protocols.items()}
    )


def headline(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of all rows and the sweeps, rounded."""
    return {
        k: round(v, 4) if isinstance(v, float) else v
        for k, v in summary.items()
        if not k.startswith("by_")
    }


def write_json(path: Path, content: object) -> None:
    """Write JSON, making the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def write_table(path: Path, result: ValidateResult) -> None:
    """One line for all rows and one for every family, GPU, source, scale and confidence."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("by", "value", *COLUMNS))
        writer.writerow(("all", "", *figures(result.summary)))
        for key, parts in result.summary.items():
            if key.startswith("by_"):
                for value, part in parts.items():
                    writer.writerow((key[3:], value, *figures(part)))


def figures(part: Mapping[str, Any]) -> list[Any]:
    """The columns of a table, rounded to what is meaningful."""
    return [round(v, 4) if isinstance(v := part.get(c), float) else v for c in COLUMNS]


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Every row: measured, predicted, interval, error."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(
            ("id", "group", "measured_ms", "predicted_ms", "low_ms", "high_ms", "error")
        )
        for row in rows:
            low, high = row["interval_ms"] or (None, None)
            times = [None if t is None else round(t, 4) for t in (row["predicted_ms"], low, high)]
            writer.writerow(
                (row["id"], row["group"], row["measured_ms"], *times, row["error"] or "")
            )


if __name__ == "__main__":
    main()
