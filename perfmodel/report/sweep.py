"""What `perfmodel sweep` prints: the points, the best ones, why, and the whole training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.report.quantity import bullets, duration, significant, table
from perfmodel.units import MS

_AXES = ("cluster", "gpus", "seq", "batch", "micro_batch")


def sweep_text(document: Mapping[str, Any]) -> str:
    """Text of a sweep's JSON document."""
    points = document["points"]
    varied = [a for a in _AXES if len({p[a] for p in points}) > 1] or ["batch"]
    lines = table([_row(p, varied) for p in points])
    best = document["best"]
    lines += ["", *_best("Fastest that fits", best["throughput"], varied)]
    small = best["smallest_batch_within_2_percent"]
    if small and small["batch"] != best["throughput"]["batch"]:
        lines += _best("Smallest batch within 2 % of it", small, varied)
    if best["cost"]:
        lines += _best("Cheapest", best["cost"], varied)
    lines.append(f"Limit: {document['why']['constraint']} ({document['why']['sentence']})")
    chosen = best["cost"] or best["throughput"]
    if chosen and document["is_amount_stated"]:
        lines += ["", *training_lines(chosen["training"])]
    elif best["cost"]:
        lines.append(f"Costs are for {document['cost_of_samples']:,.0f} samples")
    reasons = dict.fromkeys(r["reason"] for r in document["refused"])
    return "\n".join(lines + bullets(f"No run ({len(document['refused'])})", list(reasons)[:10]))


def _row(point: Mapping[str, Any], varied: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = {a.replace("_", " "): _show(point[a]) for a in varied}
    row |= {
        "iteration": duration(point["iteration_time_ms"] * MS),
        point["throughput_unit"]: point["throughput"],
        "GiB": round(point["memory_gib"], 1),
        "fits": point["fits"],
        "bound by": point["bound_by"],
    }
    if point["cost"] is not None:
        row["cost"] = point["cost"]
    return row


def _best(title: str, point: Mapping[str, Any] | None, varied: list[str]) -> list[str]:
    if point is None:
        return [f"{title}: none"]
    where = ", ".join(f"{a.replace('_', ' ')} {_show(point[a])}" for a in varied)
    rate = f"{significant(point['throughput'])} {point['throughput_unit']}"
    cost = "" if point["cost"] is None else f", cost {significant(point['cost'])}"
    return [f"{title}: {where} ({rate}{cost})"]


def _show(value: Any) -> str:
    is_whole = isinstance(value, float) and value == int(value)
    return f"{value:.0f}" if is_whole else str(value)


def training_lines(training: Mapping[str, Any]) -> list[str]:
    """Days, GPU-hours, energy and money of a whole training, with 80 % intervals."""
    lines = [
        f"Training on {significant(training['samples'])} samples "
        f"({training['iterations']:,.0f} iterations)",
        _amount("days", training["days"], training["days_interval"]),
        _amount("GPU-hours", training["gpu_hours"], training["gpu_hours_interval"]),
        f"  {significant(training['energy_kwh_at_board_power'])} kWh at most, GPUs at board power",
    ]
    if training["cost"] is not None:
        lines.append(_amount("cost", training["cost"], training["cost_interval"]))
    return lines


def _amount(name: str, value: float, interval: tuple[float, float]) -> str:
    low, high = (significant(v) for v in interval)
    return f"  {significant(value)} {name} (80 %: {low} to {high})"
