"""Guards accuracy like code: errors on the bundled published runs may not get worse.

Compares the group-averaged error factor of every family (high and medium confidence, shipped
bundle) with `datasets/accuracy_record.json`. `--update` measures anew, with every fitted parameter
refitted without the row's group and without its source too, and writes the record.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "datasets" / "accuracy_record.json"
README = ROOT / "README.md"
EXAMPLE = "datasets/examples/gpt3_175b_1024gpu.yaml"
TOLERANCE = 0.002
"""Slack for another build of numpy or another processor; real changes are larger."""
DIGITS = 4

Scores = dict[str, dict[str, Any]]


def measure(*options: str) -> Scores:
    """Error factor, median, p90, worst, rows and groups of every family, and rows refused."""
    command = [sys.executable, "-m", "perfmodel", "validate", "--json", *options]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    summary = json.loads(done.stdout)["summary"]
    found = {
        family: {
            "factor": round(scores["geomean_error_factor"], DIGITS),
            "median": round(scores["median_ape"], DIGITS),
            "p90": round(scores["p90_ape"], DIGITS),
            "worst": round(scores["worst"], DIGITS),
            "coverage": round(scores["interval_coverage"], DIGITS),
            "rows": scores["rows"],
            "groups": scores["groups"],
        }
        for family, scores in {"all": summary, **summary["by_family"]}.items()
    }
    found["all"]["refused"] = summary["failed"]
    return found


def compare(found: Scores, record: Scores) -> tuple[list[str], list[str]]:
    """Sentences about what got worse, and about what got better."""
    worse, better = [], []
    if found["all"]["refused"] > record["all"]["refused"]:
        worse.append(f"{found['all']['refused']} rows refused, record {record['all']['refused']}")
    for family, old in record.items():
        new = found.get(family, {"rows": 0, "factor": float("inf")})
        if new["rows"] < old["rows"]:
            worse.append(f"{family}: {new['rows']} rows predicted, record {old['rows']}")
        sentence = f"{family}: factor {new['factor']}, record {old['factor']}"
        if new["factor"] > old["factor"] + TOLERANCE:
            worse.append(sentence)
        elif new["factor"] < old["factor"] - TOLERANCE:
            better.append(sentence)
    return worse, better


def update() -> None:
    """Write the record anew."""
    record = {
        "schema_version": 1,
        "command": "python experiments/accuracy_gate/run.py --update",
        "shipped": measure(),
        "held_out_group": measure("--leave-out", "group"),
        "held_out_source": measure("--leave-out", "source"),
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    command = [sys.executable, "-m", "perfmodel", "predict", EXAMPLE]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    shown = f"```console\n$ perfmodel predict {EXAMPLE}\n{done.stdout}```"
    text = README.read_text("utf-8")
    text = replaced(replaced(text, "accuracy", table(record)), "prediction", shown)
    README.write_text(text, "utf-8")


def replaced(text: str, name: str, content: str) -> str:
    """`text` with what stands between the two comments of `name` replaced."""
    start, end = f"<!-- {name}: written by experiments/accuracy_gate -->", f"<!-- end of {name} -->"
    before, after = text.split(start)[0], text.split(end)[1]
    return f"{before}{start}\n{content}\n{end}{after}"


NAMES = {"all": "all", "transformer": "transformers", "dlrm": "recommenders", "cnn": "CNNs"}


def table(record: dict[str, Any]) -> str:
    """Errors as the README quotes them."""
    lines = [
        "| runs | groups | error factor, group held out | source held out | median | "
        "90 % of runs within | worst | inside the 80 % interval |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for family, name in NAMES.items():
        group, source = (record[key][family] for key in ("held_out_group", "held_out_source"))
        lines.append(
            f"| {group['rows']} {name} | {group['groups']} | {group['factor']:.2f} | "
            f"{source['factor']:.2f} | {group['median']:.0%} | {group['p90']:.0%} | "
            f"{group['worst']:.0%} | {group['coverage']:.0%} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure and compare; 1 if anything got worse."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the record anew (minutes)")
    if parser.parse_args().update:
        update()
        print(f"{RECORD.name} written; the README quotes it")
        return 0
    found = measure()
    print(json.dumps(found, indent=1))
    worse, better = compare(found, json.loads(RECORD.read_text("utf-8"))["shipped"])
    for sentence in better:
        print(f"better: {sentence}; --update keeps it")
    for sentence in worse:
        print(f"WORSE: {sentence}", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
