"""A prediction as text and as the JSON of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.plan.records import Plan, Recompute, Shard
from perfmodel.prediction import Prediction
from perfmodel.report.quantity import bullets, duration, gib, percent, shares, significant, sureness
from perfmodel.run import Run
from perfmodel.units import GIB, MS

_SHARDED = {
    Shard.OPTIMIZER: "optimiser state sharded (ZeRO-1)",
    Shard.GRADIENTS: "gradients sharded (ZeRO-2)",
    Shard.PARAMETERS: "parameters sharded (ZeRO-3)",
}
_RANKS_SHOWN = 4


def prediction_dict(prediction: Prediction) -> dict[str, Any]:
    """JSON document of `perfmodel predict --json`; times in ms, memory in GiB."""
    memory = prediction.memory
    return {
        "iteration_time_ms": prediction.iteration_time_s / MS,
        "interval_ms": [t / MS for t in prediction.interval_s],
        "throughput": {
            "value": prediction.throughput.value,
            "unit": prediction.throughput.unit,
        },
        "memory_gib": {
            "peak": memory.peak_bytes / GIB,
            "by_rank": _scaled(memory.by_rank, GIB),
            "by_part": _scaled(memory.by_part, GIB),
            "capacity": memory.capacity_bytes / GIB,
            "interval": [b / GIB for b in memory.interval],
            "probability_fits": memory.probability_fits,
        },
        "fits": prediction.fits,
        "breakdown_ms": _scaled(prediction.breakdown_s, MS),
        "exposed_communication_ms": prediction.exposed_communication_s / MS,
        "critical_path": path_rows(prediction),
        "bound_by": prediction.bound_by,
        "mfu": prediction.mfu,
        "hfu": prediction.hfu,
        "assumptions": list(prediction.assumptions),
        "warnings": list(prediction.warnings),
    }


def _scaled(amounts: Mapping[Any, float], unit: float) -> dict[str, float]:
    return {str(k): v / unit for k, v in amounts.items()}


def path_rows(prediction: Prediction) -> list[dict[str, Any]]:
    """Segments of the critical path in order of time; their durations sum to the iteration."""
    segments = prediction.critical_path.segments
    origin = segments[0].start_s if segments else 0.0
    return [
        {
            "start_ms": (segment.start_s - origin) / MS,
            "duration_ms": segment.duration_s / MS,
            "rank": segment.rank,
            "rank_class": segment.class_name,
            "lane": segment.lane,
            "task": segment.name,
            "kind": str(segment.kind),
            "causes": _scaled(segment.causes, 1.0),
        }
        for segment in segments
    ]


def prediction_text(prediction: Prediction, run: Run, *, explain: bool = False) -> str:
    """What `perfmodel predict` prints: verdict, time, memory, what binds, assumptions."""
    lines = [verdict(prediction, run), _spread(run.plan, run), ""]
    total = prediction.iteration_time_s
    causes = _scaled(prediction.breakdown_s, 1.0)
    lines += [f"Where the {duration(total)} go", *shares(causes, duration, total)]
    lines += ["", *_memory(prediction), "", _bound(prediction)]
    if explain:
        lines += ["", *_path(prediction)]
    lines += bullets("Assumptions", prediction.assumptions)
    lines += bullets("Warnings", prediction.warnings)
    return "\n".join(lines)


def verdict(prediction: Prediction, run: Run) -> str:
    """One line: what, how long, how sure, how fast, whether it fits."""
    low, high = prediction.interval_s
    rate = f"{significant(prediction.throughput.value)} {prediction.throughput.unit}"
    fits = "fits in memory" if prediction.fits else "OUT OF MEMORY"
    return (
        f"{run.workload.name} on {run.cluster.num_gpus} x {run.cluster.gpu.title}: "
        f"{duration(prediction.iteration_time_s)} an iteration "
        f"(80 %: {duration(low)} to {duration(high)}), {rate}, {fits}"
    )


def _spread(plan: Plan, run: Run) -> str:
    axes = [f"{a} {getattr(plan, a)}" for a in ("dp", "tp", "pp", "vp", "cp", "ep")]
    parts = [" x ".join(a for a in axes if not a.endswith(" 1")) or "one GPU"]
    parts.append(
        f"batch {run.workload.global_batch:g} in micro-batches of {plan.micro_batch:g}, "
        f"{run.workload.precision.compute}"
    )
    if plan.shard in _SHARDED:
        how = "FSDP, " if plan.uses_fsdp else ""
        parts.append(f"{how}{_SHARDED[plan.shard]}")
    if plan.recompute is not Recompute.NONE:
        parts.append(f"{plan.recompute} recompute")
    parts.append(run.stack.title)
    return "; ".join(parts)


def _memory(prediction: Prediction) -> list[str]:
    memory = prediction.memory
    lines = [
        f"Memory of the fullest rank: {gib(memory.peak_bytes)} of "
        f"{gib(memory.capacity_bytes)} ({sureness(memory.probability_fits)} likely to fit)",
        *shares(memory.by_part, gib),
    ]
    if len(memory.by_rank) > 1:
        fullest = sorted(memory.by_rank.items(), key=lambda item: -item[1])[:_RANKS_SHOWN]
        more = len(memory.by_rank) - len(fullest)
        named = [f"{name} {gib(b)}" for name, b in fullest]
        lines.append("  by rank: " + ", ".join(named + ([f"{more} more"] if more else [])))
    return lines


def _bound(prediction: Prediction) -> str:
    text = f"Bound by {prediction.bound_by}"
    if prediction.mfu is not None and prediction.hfu is not None:
        text += f"; model FLOP utilisation {percent(prediction.mfu)}"
        if prediction.hfu > prediction.mfu:
            text += f" ({percent(prediction.hfu)} with recomputation)"
    exposed = prediction.exposed_communication_s
    share = exposed / prediction.iteration_time_s
    return f"{text}; exposed communication {duration(exposed)} ({percent(share)})"


def _path(prediction: Prediction) -> list[str]:
    """The critical path, equal neighbours joined: 48 layers are one line."""
    lines = ["Critical path (start, duration, where: what)"]
    for row in joined(path_rows(prediction)):
        times = f" x {row['times']}" if row["times"] > 1 else ""
        kind = "" if row["kind"] == "work" else f" ({row['kind']})"
        lines.append(
            f"  {duration(row['start_ms'] * MS):>9}  {duration(row['duration_ms'] * MS):>9}  "
            f"{row['rank_class']} {row['lane']}: {row['task']}{kind}{times}"
        )
    return lines


_SAME = ("rank_class", "lane", "task", "kind")


def joined(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Consecutive segments of one task name, kind and lane as one, with `times`."""
    out: list[dict[str, Any]] = []
    for row in rows:
        last = out[-1] if out else None
        if last and all(last[k] == row[k] for k in _SAME):
            last["duration_ms"] += row["duration_ms"]
            last["times"] += 1
        else:
            out.append({**row, "times": 1})
    return out
