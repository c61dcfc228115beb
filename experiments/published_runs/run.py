"""Predicts all published runs, fits the execution bundle, and writes the result tables.

    python experiments/published_runs/run.py [ROWS.jsonl …] [--bundle OUT] [--results FOLDER]

Default rows: `datasets/published_runs/runs.jsonl`, low confidence left out. Six passes over
all rows, about four minutes on two free cores.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfmodel.cost.execution import write_execution
from perfmodel.locations import datasets_path
from perfmodel.measure.fanout import Pool, print_progress
from perfmodel.measure.intervals import build_execution
from perfmodel.measure.published import read_rows
from perfmodel.measure.validate import ValidateResult, result_of

HERE = Path(__file__).resolve().parent
COLUMNS = (
    "rows", "groups", "geomean_error_factor", "row_factor", "bias", "mape", "median_ape",
    "p90_ape", "worst", "interval_coverage",
)  # fmt: skip


def main() -> None:
    """Fit, predict in every protocol, write the bundle and the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", type=Path)
    parser.add_argument("--bundle", type=Path, default=HERE / "bundle.json")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    args = parser.parse_args()
    files = args.rows or [datasets_path("published_runs", "runs.jsonl")]
    rows = [r for file in files for r in read_rows(file) if r.get("confidence") != "low"]
    command = (
        "python experiments/published_runs/run.py --bundle datasets/bundles/execution/bundle.json"
    )
    with Pool() as pool:
        build = build_execution(
            rows,
            data=[f.name for f in files],
            command=command,
            pool=pool,
            progress=print_progress,
        )
    write_execution(build.bundle, args.bundle)
    write_json(args.results / "parameters.json", build.fitted.to_dict())
    summary = {}
    for name, answers in build.protocols.items():
        result = result_of(build.rows, answers, build.bundle.spread)
        write_table(args.results / f"{name}.csv", result)
        write_rows(args.results / f"{name}_rows.csv", result.rows)
        summary[name] = headline(result.summary)
    write_json(args.results / "summary.json", summary)


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
    """Every row: measured, predicted, interval, or why it was refused."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(
            ("id", "group", "measured_ms", "predicted_ms", "low_ms", "high_ms", "refused")
        )
        for row in rows:
            low, high = row["interval_ms"] or (None, None)
            times = [None if t is None else round(t, 4) for t in (row["predicted_ms"], low, high)]
            writer.writerow(
                (row["id"], row["group"], row["measured_ms"], *times, row["refused"] or "")
            )


if __name__ == "__main__":
    main()
