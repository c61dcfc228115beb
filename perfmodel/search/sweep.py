"""Batch sizes, lengths, GPU counts and kinds of hardware: which is fastest, cheapest, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from perfmodel.cost.execution import ExecutionBundle
from perfmodel.errors import InputError, PerfmodelError
from perfmodel.predict import predict
from perfmodel.run import Run
from perfmodel.search.outcome import Outcome
from perfmodel.search.training import Training, samples_to_train, whole_training
from perfmodel.search.variants import variant
from perfmodel.units import GIB, MS

WITHIN = 0.02
"""A batch whose throughput is this near to the best counts as good as it."""
MAX_POINTS = 2_000
"""Variants of one sweep; a minute to an hour of work."""
_MILLION = 1e6  # samples that costs refer to where nobody says how much is trained


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One variant and what it was predicted to do."""

    batch: float
    micro_batch: float
    seq: float | None
    gpus: int
    cluster: str
    prediction: Outcome
    training: Training

    @property
    def fits(self) -> bool:
        """Whether it fits in memory."""
        return self.prediction.fits

    @property
    def throughput(self) -> float:
        """Samples (or tokens) per second."""
        return self.prediction.throughput.value

    @property
    def series(self) -> tuple[object, ...]:
        """What points that differ only in their batch have in common."""
        return self.cluster, self.gpus, self.seq

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; times in ms, memory in GiB."""
        p = self.prediction
        row: dict[str, Any] = {
            "batch": self.batch,
            "micro_batch": self.micro_batch,
            "seq": self.seq,
            "gpus": self.gpus,
            "cluster": self.cluster,
            "iteration_time_ms": p.iteration_time_s / MS,
            "interval_ms": [t / MS for t in p.interval_s],
            "throughput": p.throughput.value,
            "throughput_unit": p.throughput.unit,
            "throughput_per_gpu": p.throughput.value / self.gpus,
            "memory_gib": p.memory.peak_bytes / GIB,
            "capacity_gib": p.memory.capacity_bytes / GIB,
            "fits": p.fits,
            "probability_fits": p.memory.probability_fits,
            "bound_by": p.bound_by,
            "mfu": p.mfu,
        }
        return row | {"cost": self.training.cost, "training": self.training.to_dict()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """All points, those that are no run with the reason, the best ones and why."""

    points: tuple[Point, ...]
    refused: tuple[dict[str, Any], ...]
    cost_of_samples: float
    is_amount_stated: bool

    @property
    def fastest(self) -> Point | None:
        """Highest throughput of those that fit."""
        return max((p for p in self.points if p.fits), key=lambda p: p.throughput, default=None)

    @property
    def cheapest(self) -> Point | None:
        """Lowest cost of those that fit; None without prices."""
        priced = [p for p in self.points if p.fits and p.training.cost is not None]
        return min(priced, key=lambda p: p.training.cost or 0.0, default=None)

    @property
    def smallest_batch(self) -> Point | None:
        """Smallest batch that is within 2 % of the fastest of its series."""
        best = self.fastest
        if best is None:
            return None
        near = [p for p in self.points if p.fits and p.series == best.series
                and p.throughput >= (1 - WITHIN) * best.throughput]  # fmt: skip
        return min(near, key=lambda p: (p.batch, -p.throughput))

    def why(self) -> dict[str, str]:
        """Which constraint keeps a larger batch from being faster, and a sentence about it."""
        best, small = self.fastest, self.smallest_batch
        if best is None or small is None:
            return {"constraint": "memory", "sentence": "no variant fits in memory"}
        larger = [p for p in self.points if p.series == best.series and p.batch > best.batch]
        return _why(best, small, larger)

    def to_dict(self) -> dict[str, Any]:
        """The document of `perfmodel sweep --json`."""
        best = {"throughput": self.fastest, "cost": self.cheapest,
                "smallest_batch_within_2_percent": self.smallest_batch}  # fmt: skip
        return {
            "points": [p.to_dict() for p in self.points],
            "best": {k: None if p is None else p.to_dict() for k, p in best.items()},
            "why": self.why(),
            "refused": list(self.refused),
            "cost_of_samples": self.cost_of_samples,
            "is_amount_stated": self.is_amount_stated,
        }


def _why(best: Point, small: Point, larger: Sequence[Point]) -> dict[str, str]:
    bound = best.prediction.bound_by
    if bound == "input pipeline":
        return {"constraint": bound, "sentence": "the input pipeline delivers no faster"}
    if small.batch < best.batch or any(p.fits for p in larger):
        sentence = f"beyond batch {small.batch:g} throughput grows by less than {WITHIN:.0%}"
        if bound == "communication":
            sentence += "; communication takes the largest share of the iteration"
        return {"constraint": "saturation", "sentence": sentence}
    full = [p for p in larger if not p.fits]
    if full:
        batch = min(p.batch for p in full)
        return {"constraint": "memory", "sentence": f"batch {batch:g} does not fit in memory"}
    if bound == "communication":
        sentence = "communication takes the largest share of the iteration"
        return {"constraint": "communication", "sentence": sentence}
    sentence = f"the largest batch tried, {best.batch:g}, is the fastest; larger ones may be faster"
    return {"constraint": "range of the sweep", "sentence": sentence}


def sweep(
    run: Run,
    *,
    batch: Sequence[float] = (),
    micro_batch: Sequence[float] = (),
    seq: Sequence[int] = (),
    gpus: Sequence[int] = (),
    cluster: Sequence[str] = (),
    price: float | Mapping[str, float] | None = None,
    samples: float | None = None,
    tokens: float | None = None,
    bundle: ExecutionBundle | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Predict every combination of what is given; an axis that is left out stays as in `run`.

    Parameters
    ----------
    run : Run
    batch, micro_batch, seq, gpus, cluster : sequences
        Global batches in samples, samples per pass, tokens per sample, GPUs, catalogue nodes.
    price : float or mapping of cluster to float, optional
        Of one GPU for an hour, in the user's currency.
    samples, tokens : float, optional
        How much is trained; costs refer to it, or to a million samples.
    bundle : ExecutionBundle, optional
        Calibration; the shipped one by default.
    progress : callable, optional
        Called with (done, total).

    Raises
    ------
    InputError
        If no combination is a run, or there are too many.
    """
    axes: list[Sequence[Any]] = [
        list(axis) or [None] for axis in (cluster, gpus, seq, batch, micro_batch)
    ]
    cases = list(product(*axes))
    if len(cases) > MAX_POINTS:
        raise InputError(f"{len(cases)} variants are more than {MAX_POINTS}; sweep fewer values")
    points: list[Point] = []
    refused: list[dict[str, Any]] = []
    for done, case in enumerate(cases, 1):
        given = dict(zip(("cluster", "gpus", "seq", "batch", "micro_batch"), case, strict=True))
        try:
            points.append(_point(run, given, price, (samples, tokens), bundle))
        except PerfmodelError as error:
            stated = {k: v for k, v in given.items() if v is not None}
            refused.append({**stated, "reason": str(error)})
        if progress is not None:
            progress(done, len(cases))
    if not points:
        raise InputError(f"no variant is a run: {refused[0]['reason']}")
    return Sweep(
        points=tuple(points),
        refused=tuple(refused),
        cost_of_samples=points[0].training.samples,
        is_amount_stated=samples is not None or tokens is not None,
    )


def _point(
    run: Run,
    given: Mapping[str, Any],
    price: float | Mapping[str, float] | None,
    amount: tuple[float | None, float | None],
    bundle: ExecutionBundle | None,
) -> Point:
    changed = variant(run, **given)
    prediction = Outcome.of(predict(changed, bundle=bundle))
    name = given["cluster"] or changed.cluster.node.name
    training = whole_training(
        changed,
        prediction.iteration_time_s,
        prediction.interval_s,
        samples_to_train(changed, *amount) or _MILLION,
        _price(price, (name, changed.cluster.node.name)),
    )
    return Point(
        batch=changed.workload.global_batch,
        micro_batch=changed.plan.micro_batch,
        seq=getattr(changed.workload.model, "seq", None),
        gpus=changed.cluster.num_gpus,
        cluster=name,
        prediction=prediction,
        training=training,
    )


def _price(price: float | Mapping[str, float] | None, names: Sequence[str]) -> float | None:
    if price is None or isinstance(price, int | float):
        return price
    return next((price[name] for name in names if name in price), None)
