"""What `perfmodel plan` prints for a transformer: the layouts, the front, why the winner wins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.report.quantity import bullets, duration, sureness, table
from perfmodel.units import MS

_AXES = ("dp", "tp", "pp", "vp", "cp", "ep", "micro_batch", "recompute", "shard")


def layouts_text(document: Mapping[str, Any]) -> str:
    """Text of the JSON document of a layout search."""
    lines = [
        f"{document['evaluated']:,} layouts scored in {document['score_seconds']:.1f} s, "
        f"{document['fitting']:,} fit, {document['simulated']} simulated "
        f"({document['seconds']:.0f} s in all)",
        "",
        *table([_row(x) for x in document["top"]]),
    ]
    front = document["front"]
    if len(front) > 1:
        lines += ["", "Less memory for more time", *table([_row(x) for x in front])]
    return "\n".join(lines + bullets("Why the first: the others lose", document["why"]))


def _row(layout: Mapping[str, Any]) -> dict[str, Any]:
    plan = layout["plan"]
    row = {a.replace("_", " "): _plain(plan[a]) for a in _AXES}
    row["seq. par."] = plan["sequence_parallel"]
    row["iteration"] = duration(layout["iteration_time_ms"] * MS)
    row["GiB"] = round(layout["memory_gib"], 1)
    row["likely to fit"] = sureness(layout["probability_fits"])
    row["bound by"] = layout["bound_by"]
    return row


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def sizes_lines(more: Mapping[str, Any]) -> list[str]:
    """The best layout on each number of GPUs; nothing where only one was searched."""
    if not more:
        return []
    rows = []
    for size in more["sizes"]:
        row = {"GPUs": str(size["gpus"])} | _row(size)
        row[f"{size['throughput_unit']} a GPU"] = size["throughput_per_gpu"]
        if size["cost"] is not None:
            row["cost"] = size["cost"]
        rows.append(row)
    lines = ["", f"Best layout on each number of GPUs ({more['gpus']} chosen)", *table(rows)]
    return lines + bullets("No layout", more["refused"])
