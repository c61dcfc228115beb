"""Guards accuracy like code: errors on the bundled published runs may not get worse.

Compares the group-averaged error factor of every family (high and medium confidence, shipped
bundle) with `datasets/accuracy_record.json`. `--update` writes what was measured as the new record.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

RECORD = Path(__file__).resolve().parents[2] / "datasets" / "accuracy_record.json"
TOLERANCE = 0.002
"""Slack for another build of numpy or another processor; real changes are larger."""
DIGITS = 4


def measure() -> dict[str, dict[str, float | int]]:
    """Error factor, rows and groups of every family, and how many rows were refused."""
    command = [sys.executable, "-m", "perfmodel", "validate", "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    summary = json.loads(done.stdout)["summary"]
    found: dict[str, dict[str, float | int]] = {
        family: {
            "factor": round(scores["geomean_error_factor"], DIGITS),
            "rows": scores["rows"],
            "groups": scores["groups"],
        }
        for family, scores in summary["by_family"].items()
    }
    found["refused"] = {"rows": summary["failed"]}
    return found


def compare(found: dict, record: dict) -> tuple[list[str], list[str]]:
    """Sentences about what got worse, and about what got better."""
    worse, better = [], []
    for family, old in record.items():
        new = found.get(family, {"rows": 0})
        if family == "refused":
            if new["rows"] > old["rows"]:
                worse.append(f"{new['rows']} rows are refused, {old['rows']} in the record")
            continue
        if new["rows"] < old["rows"]:
            worse.append(f"{family}: {new['rows']} rows predicted, {old['rows']} in the record")
        change = new.get("factor", float("inf")) - old["factor"]
        sentence = f"{family}: factor {new.get('factor')}, record {old['factor']}"
        if change > TOLERANCE:
            worse.append(sentence)
        elif change < -TOLERANCE:
            better.append(sentence)
    return worse, better


def main() -> int:
    """Measure and compare; 1 if anything got worse."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the record anew")
    options = parser.parse_args()
    found = measure()
    print(json.dumps(found, indent=1))
    if options.update:
        RECORD.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        print(f"{RECORD.name} written")
        return 0
    worse, better = compare(found, json.loads(RECORD.read_text("utf-8")))
    for sentence in better:
        print(f"better: {sentence}; python experiments/accuracy_gate/run.py --update keeps it")
    for sentence in worse:
        print(f"WORSE: {sentence}", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
