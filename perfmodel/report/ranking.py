"""What `perfmodel rank` prints: the plans, and why the best one beats the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.report.quantity import bullets, duration, table
from perfmodel.units import MS

_SMALLEST_SHARE = 0.02  # causes below this share of the difference are not worth a line
_SHOWN = 40


def ranking_text(document: Mapping[str, Any]) -> str:
    """Text of a ranking's JSON document."""
    plans = document["ranking"]
    lines = table([_row(p) for p in plans[:_SHOWN]])
    if len(plans) > _SHOWN:
        lines.append(f"... and {len(plans) - _SHOWN} slower ones")
    lines += ["", *_why(plans, document["explanation"])]
    lines += bullets("Assumed", document["assumptions"])
    return "\n".join(lines + bullets("Warnings", document["warnings"]))


def _row(plan: Mapping[str, Any]) -> dict[str, Any]:
    low, high = plan["interval_ms"]
    return {
        "plan": plan["plan"],
        "iteration": duration(plan["iteration_time_ms"] * MS),
        "80 % interval": f"{duration(low * MS)} to {duration(high * MS)}",
        "GiB": round(plan["memory_gib"], 1),
        "fits": plan["fits"],
        "exposed comm.": duration(plan["exposed_communication_ms"] * MS),
        "straggler": plan["straggler"],
        "longest wait": duration(plan["straggler_wait_ms"] * MS),
        "too close to call": plan["too_close_to_call"],
    }


def _why(plans: Any, explanation: Mapping[str, Any] | None) -> list[str]:
    if explanation is None:
        return []
    gap = explanation["difference_ms"]
    first, second = plans[:2]
    if gap < 0:
        return [f"{second['plan']} is faster than {first['plan']} but does not fit in memory"]
    if gap == 0:
        return [f"{first['plan']} and {second['plan']} take the same time"]
    lines = [
        f"{first['plan']} beats {second['plan']} by {duration(gap * MS)} "
        f"({gap / second['iteration_time_ms']:.1%}); on the critical path of {second['plan']}:"
    ]
    shown = {
        c: ms
        for c, ms in explanation["by_cause_ms"].items()
        if abs(ms) > _SMALLEST_SHARE * gap and abs(ms) > 0
    }
    lines += [
        f"  {cause.replace('_', ' ')}: {duration(abs(ms) * MS)} {'more' if ms > 0 else 'less'}"
        for cause, ms in shown.items()
    ]
    if second["too_close_to_call"]:
        share = second["chance_to_win"]
        lines.append(
            f"Too close to call: {second['plan']} is the faster one with {share:.0%} probability, "
            "constants that both share changed together"
        )
    return lines


def embedding_plan_text(document: Mapping[str, Any]) -> str:
    """Text of the document of an embedding plan search."""
    low, high = document["interval_ms"]
    lines = [
        f"Iteration: {duration(document['iteration_time_ms'] * MS)} "
        f"({duration(low * MS)} to {duration(high * MS)} with 80 % probability)",
        f"Memory: {document['memory_gib']:.1f} of {document['capacity_gib']:.1f} GiB "
        f"on the fullest GPU",
    ]
    if document["gain"] is not None:
        lines.append(
            f"{document['gain']:.1%} faster than {document['best_rule']}, the best usual rule "
            f"({duration(document['best_rule_ms'] * MS)})"
        )
    lines += [
        f"Embedding work of the slowest GPU is {document['gap']:.1%} above a lower bound, by the "
        "additive rating that the search uses",
        f"{document['evaluated']:,} placements rated, {document['simulated']:,} plans simulated, "
        f"{duration(document['seconds'])}",
        "",
        *table(_kinds(document["plan"]["embedding_sharding"])),
    ]
    lines += bullets("Assumed", document["assumptions"])
    return "\n".join(lines + bullets("Warnings", document["warnings"]))


def _kinds(placements: Any) -> list[dict[str, Any]]:
    """How many tables are cut in each way."""
    counts: dict[tuple[str, int], int] = {}
    for placed in placements:
        key = (placed["kind"], len(placed["ranks"]))
        counts[key] = counts.get(key, 0) + 1
    return [
        {"kind": kind, "shards": shards, "tables": number}
        for (kind, shards), number in sorted(counts.items())
    ]
