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
