"""Compares the memory model with published peaks and out-of-memory reports; fits nothing.

    python experiments/published_runs/memory.py [ROWS.jsonl …] [--out FILE]

Default rows: `datasets/published_runs/*.jsonl`. A row counts as fitting if it has a measured time
(the published ones did run), as out of memory if its metric says so.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.errors import PerfmodelError
from perfmodel.locations import datasets_path
from perfmodel.measure.published import read_rows, run_from_row
from perfmodel.measure.scoring import source_of
from perfmodel.memory import MemoryEstimate, estimate_memory
from perfmodel.units import GB

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "memory.json")
    args = parser.parse_args()
    files = args.rows or sorted(datasets_path("published_runs").glob("*.jsonl"))
    found = list(estimates(row for file in files for row in read_rows(file)))
    result = {"peaks": peaks(found), "verdicts": verdicts(found)}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps(result, indent=1))


Found = tuple[Mapping[str, Any], MemoryEstimate]


def estimates(rows: Iterable[Mapping[str, Any]]) -> Iterable[Found]:
    """Every row that can be read, with its estimate."""
    for row in rows:
        try:
            run = run_from_row(row)
            yield row, estimate_memory(run.workload, run.plan, run.stack, run.cluster)
        except PerfmodelError as error:
            print(f"{row.get('id')}: {error}")


def peaks(found: Iterable[Found]) -> dict[str, float]:
    """Error of the peak over the rows that print one (their GB are taken as 10^9 bytes)."""
    ratios, inside = [], []
    for row, estimate in found:
        if row.get("memory_gib") and row.get("confidence") != "low":
            printed = row["memory_gib"] * GB
            ratios.append(estimate.peak_bytes / printed)
            inside.append(estimate.interval[0] <= printed <= estimate.interval[1])
    errors = np.abs(np.array(ratios) - 1)
    return {
        "rows": len(errors),
        "mape": round(float(errors.mean()), 4),
        "median_ape": round(float(np.median(errors)), 4),
        "p90_ape": round(float(np.quantile(errors, 0.9)), 4),
        "worst": round(float(errors.max()), 4),
        "bias": round(float(np.exp(np.log(ratios).mean())), 4),
        "interval_coverage": round(float(np.mean(inside)), 4),
    }


def verdicts(found: Iterable[Found]) -> dict[str, dict[str, float]]:
    """Confusion of the verdict by source, and balanced accuracy where both kinds occur."""
    counts: dict[str, Counter[str]] = {}
    for row, estimate in found:
        is_oom = (row.get("measured") or {}).get("metric") == "oom"
        truth = "oom" if is_oom else "ran"
        said = "fits" if estimate.fits else "oom"
        counts.setdefault(source_of(row), Counter())[f"{truth}_said_{said}"] += 1
    return {source: _accuracy(c) for source, c in sorted(counts.items())}


def _accuracy(count: Counter[str]) -> dict[str, float]:
    ran = count["ran_said_fits"] + count["ran_said_oom"]
    oom = count["oom_said_oom"] + count["oom_said_fits"]
    result: dict[str, float] = dict(count)
    if ran and oom:
        balanced = (count["ran_said_fits"] / ran + count["oom_said_oom"] / oom) / 2
        result["balanced_accuracy"] = round(balanced, 4)
    return result


if __name__ == "__main__":
    main()
