"""Results of `validate` and `calibrate` as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.report.quantity import duration, percent, significant, table
from perfmodel.units import MS

_WORST_SHOWN = 5
_COLUMNS = ("", "rows", "groups", "factor", "bias", "median", "p90", "worst", "in interval")


def validation_text(document: Mapping[str, Any], held_out: str | None) -> str:
    """Verdict, errors by family, GPU, source and scale, sweeps, worst rows, refusals."""
    summary = document["summary"]
    lines = [_verdict(summary, held_out), "", *table([score_row("all", summary)], _COLUMNS)]
    for key in [k for k in summary if k.startswith("by_")]:
        parts = [score_row(name, scores) for name, scores in summary[key].items()]
        lines += ["", key.replace("_", " "), *table(parts, _COLUMNS)]
    lines += ["", *_sweeps(summary), *_worst(document["rows"]), *_refused(document["rows"])]
    return "\n".join(lines).rstrip()


def _verdict(summary: Mapping[str, Any], held_out: str | None) -> str:
    if not summary.get("rows"):
        return f"no row was predicted ({summary.get('failed', 0)} refused)"
    how = f", parameters refitted without each row's {held_out}" if held_out else ""
    return (
        f"{summary['rows']} runs in {summary['groups']} groups: predictions are off by a factor of "
        f"{summary['geomean_error_factor']:.3f} on average{how}; median error "
        f"{percent(summary['median_ape'])}, 90 % of runs within {percent(summary['p90_ape'])}; "
        f"{summary['failed']} refused"
    )


def score_row(name: str, scores: Mapping[str, Any]) -> dict[str, Any]:
    """One line of a table of errors."""
    if not scores.get("rows"):
        return {"": name, "rows": 0}
    inside = scores.get("interval_coverage")
    return {
        "": name,
        "rows": scores["rows"],
        "groups": scores["groups"],
        "factor": f"{scores['geomean_error_factor']:.3f}",
        "bias": f"{scores['bias']:.2f}",
        "median": percent(scores["median_ape"]),
        "p90": percent(scores["p90_ape"]),
        "worst": percent(scores["worst"]),
        "in interval": None if inside is None else percent(inside),
    }


def _sweeps(summary: Mapping[str, Any]) -> list[str]:
    sweeps = summary.get("sweeps") or {}
    if not sweeps.get("sweeps"):
        return []
    return [
        f"{sweeps['sweeps']} sweeps over plans of one model and cluster: Spearman "
        f"{sweeps['spearman']:.2f}; the plan predicted fastest is "
        f"{percent(sweeps['top1_regret'])} slower than the best on average",
        "",
    ]


def _worst(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    known = [r for r in rows if r["predicted_ms"]]
    worst = sorted(known, key=_distance, reverse=True)[:_WORST_SHOWN]
    lines = [
        f"  {r['id']}: {duration(r['predicted_ms'] * MS)} predicted, "
        f"{duration(r['measured_ms'] * MS)} measured"
        for r in worst
    ]
    return ["largest misses", *lines, ""] if lines else []


def _distance(row: Mapping[str, Any]) -> float:
    ratio = float(row["predicted_ms"] / row["measured_ms"])
    return max(ratio, 1 / ratio)


def _refused(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    refused = [f"  {r['id']}: {r['refused']}" for r in rows if r["refused"]]
    return ["refused", *refused] if refused else []


def calibration_text(document: Mapping[str, Any], out: str) -> str:
    """Errors before and after, and the parameters that the runs identify."""
    parameters = document["parameters"]
    before, after = document["before"], document["after"]
    lines = [f"{out} written: {len(parameters)} parameters fitted"]
    if after.get("rows"):
        lines[0] += (
            f" to {after['rows']} runs; error factor {before['geomean_error_factor']:.3f} before, "
            f"{after['geomean_error_factor']:.3f} after (in sample)"
        )
    rows = [
        {
            "parameter": p["name"],
            "value": significant(p["value"], 4),
            "prior": significant(p["prior"], 4),
            "information": percent(p["information"]),
        }
        for p in parameters
    ]
    lines += ["", *table(rows)]
    lines += [f"refused: {f.get('id')}: {f.get('error')}" for f in document.get("failed", ())]
    return "\n".join(lines)
