"""The best layout of a transformer on a cluster: every one scored, the best ones simulated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.execution import ExecutionBundle, load_execution
from perfmodel.cost.protocol import CostModel
from perfmodel.errors import InputError, PerfmodelError
from perfmodel.plan.records import Plan
from perfmodel.predict import default_models, predict
from perfmodel.prediction import Prediction
from perfmodel.run import Run
from perfmodel.search.layout_memory import LayoutMemory
from perfmodel.search.layout_space import (
    RECOMPUTES,
    SHARDS,
    Limits,
    Shape,
    chunk_counts,
    layout_plan,
    micro_batches,
    sequence_parallels,
    shapes,
    shards,
)
from perfmodel.search.layout_times import Entry, LayoutTimes
from perfmodel.search.outcome import Outcome
from perfmodel.search.price_book import PriceBook
from perfmodel.units import GIB, MS

SHORTLIST = 24
"""Layouts that are simulated at least; further ones while they claim to beat the best of them."""
_MOST = 4  # times SHORTLIST, where the closed form is too hopeful (host-bound pipelines)
TOP = 10
# Beside the fastest, the fastest under each of these shares of the device's memory is simulated:
# the front of time against memory.
_MEMORY_LEVELS = (0.9, 0.75, 0.6, 0.45, 0.3, 0.2)


_PER_AXIS = 1e-3  # a layout with one axis more must gain this share of the time


@dataclass(frozen=True, slots=True)
class Scored:
    """Layouts of one shape: seconds and bytes over (sequence, micro, vp, recompute, shard)."""

    entry: Entry
    seconds: NDArray[np.float64]
    memory: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One simulated layout; `score_s` is what the closed form said."""

    plan: Plan
    prediction: Outcome
    score_s: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; times in ms, memory in GiB."""
        p = self.prediction
        return {
            "plan": plan_fields(self.plan),
            "iteration_time_ms": p.iteration_time_s / MS,
            "interval_ms": [t / MS for t in p.interval_s],
            "throughput": p.throughput.value,
            "throughput_unit": p.throughput.unit,
            "memory_gib": p.memory.peak_bytes / GIB,
            "fits": p.fits,
            "probability_fits": p.memory.probability_fits,
            "mfu": p.mfu,
            "bound_by": p.bound_by,
            "breakdown_ms": {str(k): v / MS for k, v in p.breakdown_s.items()},
            "score_ms": self.score_s / MS,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSearch:
    """Simulated layouts by time, the front of time and memory, and the reason of the winner."""

    layouts: tuple[Layout, ...]
    evaluated: int
    fitting: int
    seconds: float
    score_seconds: float

    @property
    def best(self) -> Layout:
        """The fastest that fits."""
        return self.layouts[0]

    def front(self) -> tuple[Layout, ...]:
        """Layouts that no other beats in both time and memory, fastest first."""
        out: list[Layout] = []
        for layout in self.layouts:
            peak = layout.prediction.memory.peak_bytes
            if not out or peak < out[-1].prediction.memory.peak_bytes:
                out.append(layout)
        return tuple(out)

    def why(self) -> list[str]:
        """What the winner gains over the next layouts that differ in one respect."""
        return [sentence for other in self.layouts[1:TOP] if (sentence := _gain(self.best, other))]

    def to_dict(self) -> dict[str, Any]:
        """The document of `perfmodel plan --json`."""
        best = self.best.to_dict()
        return best | {
            "evaluated": self.evaluated,
            "fitting": self.fitting,
            "simulated": len(self.layouts),
            "seconds": self.seconds,
            "score_seconds": self.score_seconds,
            "top": [layout.to_dict() for layout in self.layouts[:TOP]],
            "front": [layout.to_dict() for layout in self.front()],
            "why": self.why(),
        }


def plan_fields(plan: Plan) -> dict[str, Any]:
    """The `plan` section of a RUN file for a layout."""
    fields: dict[str, Any] = {a: getattr(plan, a) for a in ("dp", "tp", "pp", "vp", "cp", "ep")}
    fields |= {
        "sequence_parallel": plan.sequence_parallel,
        "micro_batch": plan.micro_batch,
        "schedule": str(plan.schedule),
        "recompute": str(plan.recompute),
        "shard": str(plan.shard),
    }
    if plan.uses_fsdp:
        fields["fsdp"] = True
    if plan.lora_rank is not None:
        fields["lora"] = True
    return fields


def _gain(best: Layout, other: Layout) -> str | None:
    """Time by cause that the winner saves against a layout, and what differs."""
    mine, theirs = plan_fields(best.plan), plan_fields(other.plan)
    differs = [f"{k} {theirs[k]}" for k in mine if k in theirs and mine[k] != theirs[k]]
    more = {
        cause: other.prediction.breakdown_s.get(cause, 0.0) - seconds
        for cause, seconds in (
            (c, best.prediction.breakdown_s.get(c, 0.0))
            for c in {*best.prediction.breakdown_s, *other.prediction.breakdown_s}
        )
    }
    slower = other.prediction.iteration_time_s / best.prediction.iteration_time_s - 1
    cause = max(more, key=lambda c: more[c])
    if not differs or slower < 1e-4:
        return None
    name = str(cause).replace("_", " ")
    return (
        f"{', '.join(differs)}: {slower:.1%} slower, most of it {name} (+{more[cause] / MS:.1f} ms)"
    )


def score(
    run: Run,
    limits: Limits,
    *,
    models: Sequence[CostModel] | None = None,
    bundle: ExecutionBundle | None = None,
) -> Iterator[Scored]:
    """Closed-form time and memory of every layout, shape by shape."""
    book = PriceBook(models or default_models(), run.cluster, run.stack, bundle or load_execution())
    times, memory = LayoutTimes(run, book), LayoutMemory(run)
    entries = []
    for shape in shapes(run, limits):
        axes = (
            sequence_parallels(shape, limits),
            micro_batches(run, shape, limits),
            chunk_counts(run, shape, limits),
            shards(run, shape, limits),
        )
        if all(axes):
            entries.append(times.enter(shape, *axes))
    book.price()
    allowed = [r in limits.keep("recompute", RECOMPUTES) for r in RECOMPUTES]
    for entry in entries:
        seconds = times.seconds(entry)
        seconds[:, :, :, ~np.array(allowed), :] = np.inf
        _forbid_uneven_interleaving(run, entry, seconds)
        peaks = memory.peaks(entry.shape, entry.sequence, entry.micro, entry.chunks, entry.shards)
        yield Scored(entry, seconds, peaks)


def _forbid_uneven_interleaving(run: Run, entry: Entry, seconds: NDArray[np.float64]) -> None:
    """Interleaving needs micro-batches in multiples of the stages."""
    count = np.rint(run.workload.global_batch / (entry.shape.dp * entry.micro))
    uneven = (count[:, None] % entry.shape.pp != 0) & (entry.chunks[None, :] > 1)
    seconds[:, uneven] = np.inf


@dataclass(frozen=True, slots=True)
class _Candidate:
    seconds: float
    memory: float
    plan: Plan


def plan_layout(
    run: Run,
    *,
    fixed: Mapping[str, Sequence[Any]] | None = None,
    shortlist: int = SHORTLIST,
    memory_share: float = 1.0,
    bundle: ExecutionBundle | None = None,
    models: Sequence[CostModel] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LayoutSearch:
    """Search the layout with the shortest iteration that fits in memory.

    On a given number of GPUs the fastest layout is also the cheapest and has the highest
    throughput per GPU. Every layout is scored by a closed form on the same work and prices as the
    simulator; the best are simulated.

    Parameters
    ----------
    run : Run
        Workload, stack and cluster; its own plan only says whether FSDP shards.
    fixed : mapping, optional
        Allowed values by axis (tp, pp, cp, ep, vp, micro_batch, recompute, shard,
        sequence_parallel).
    shortlist : int
        How many layouts are simulated, beside a few that need less memory.
    memory_share : float
        Share of the device's memory that may be used, above 0; a margin for what is not known.
    bundle, models : optional
        As for `predict`.
    progress : callable, optional
        Called with (done, total) while simulating.

    Raises
    ------
    InputError
        If no layout divides the run, or none fits in memory.
    """
    start = time.perf_counter()
    limits = Limits(allowed=fixed or {})
    scored = list(score(run, limits, models=models, bundle=bundle))
    evaluated = sum(int(np.isfinite(s.seconds).sum()) for s in scored)
    if not evaluated:
        raise InputError(
            f"no layout divides {run.cluster.num_gpus} GPUs, batch {run.workload.global_batch:g} "
            "and the model; change the batch or what is fixed"
        )
    if not 0 < memory_share <= 1:
        raise InputError(f"memory_share {memory_share} is not above 0 and at most 1")
    capacity = memory_share * run.cluster.gpu.memory_bytes
    fastest, small = _chosen(run, scored, capacity, shortlist)
    score_seconds = time.perf_counter() - start
    if not fastest:
        least = min(float(s.memory[np.isfinite(s.seconds)].min(initial=np.inf)) for s in scored)
        raise InputError(
            f"no layout fits: the smallest needs {least / GIB:.0f} GiB of "
            f"{capacity / GIB:.0f} GiB a GPU; use more GPUs or a smaller model"
        )
    layouts = _simulated(
        run, fastest, small, shortlist,
        partial(predict, bundle=bundle, models=models), progress,
    )  # fmt: skip
    return LayoutSearch(
        layouts=tuple(layouts),
        evaluated=evaluated,
        fitting=sum(int((s.memory <= capacity)[np.isfinite(s.seconds)].sum()) for s in scored),
        seconds=time.perf_counter() - start,
        score_seconds=score_seconds,
    )


def _chosen(
    run: Run, scored: Sequence[Scored], capacity: float, shortlist: int
) -> tuple[list[_Candidate], list[_Candidate]]:
    """The fastest that fit, by score, and the fastest under lower and lower memory."""
    fastest = _best(scored, capacity, _MOST * shortlist)
    small = [best for level in _MEMORY_LEVELS for best in _best(scored, level * capacity, 1)]
    few = [p for p in dict.fromkeys(small) if p not in fastest[:shortlist]]

    def candidates(places: Sequence[tuple[int, int]]) -> list[_Candidate]:
        return [_candidate(run, scored[which], place) for which, place in places]

    return candidates(fastest), candidates(few)


def _best(scored: Sequence[Scored], limit: float, wanted: int) -> list[tuple[int, int]]:
    """(shape, place) of the `wanted` lowest times under a memory limit."""
    found: list[tuple[float, int, int]] = []
    for which, one in enumerate(scored):
        seconds = np.where(one.memory <= limit, one.seconds, np.inf).ravel()
        few = np.argsort(seconds, kind="stable")[:wanted]
        found += [(float(seconds[p]), which, int(p)) for p in few if np.isfinite(seconds[p])]
    return [(which, place) for _, which, place in sorted(found)[:wanted]]


def _candidate(run: Run, one: Scored, place: int) -> _Candidate:
    entry = one.entry
    i, j, v, r, s = np.unravel_index(place, one.seconds.shape)
    plan = layout_plan(
        run,
        entry.shape,
        vp=int(entry.chunks[v]),
        micro_batch=float(entry.micro[j]),
        recompute=RECOMPUTES[r],
        shard=SHARDS[entry.shards[s]],
        sequence_parallel=entry.sequence[i],
    )
    return _Candidate(float(one.seconds.flat[place]), float(one.memory.flat[place]), plan)


def _simulated(
    run: Run,
    fastest: Sequence[_Candidate],
    small: Sequence[_Candidate],
    shortlist: int,
    simulate: Callable[[Run], Prediction],
    progress: Callable[[int, int], None] | None,
) -> list[Layout]:
    """Simulate by score until no other layout claims to be faster than the best one found."""
    layouts: list[Layout] = []
    best = np.inf
    for done, candidate in enumerate([*small, *fastest], 1):
        if done > len(small) + shortlist and candidate.seconds >= best:
            break
        try:
            prediction = Outcome.of(simulate(replace(run, plan=candidate.plan)))
        except PerfmodelError:  # longer than is simulated
            continue
        layouts.append(
            Layout(plan=candidate.plan, prediction=prediction, score_s=candidate.seconds)
        )
        if prediction.fits:
            best = min(best, prediction.iteration_time_s)
        if progress is not None:
            progress(done, max(done, len(small) + min(shortlist, len(fastest))))
    if not layouts:
        raise InputError("none of the best layouts can be simulated; fix pp or vp to a lower value")
    return sorted(layouts, key=_order)


def _order(layout: Layout) -> tuple[bool, float]:
    """Those that fit by time; of equal ones the plainest, with the fewest axes, comes first."""
    plan = layout.plan
    axes = sum(size > 1 for size in (plan.tp, plan.pp, plan.vp, plan.cp, plan.ep))
    seconds = layout.prediction.iteration_time_s * (1 + _PER_AXIS * axes)
    return not layout.prediction.fits, seconds


__all__ = ["Layout", "LayoutSearch", "Shape", "plan_layout", "score"]
