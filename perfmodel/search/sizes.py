"""The best layout on each of several numbers of GPUs, and the number that serves a purpose best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from perfmodel.errors import InputError
from perfmodel.run import Run
from perfmodel.search.layout_space import Shape, layout_plan
from perfmodel.search.layouts import LayoutSearch, plan_layout
from perfmodel.search.training import Training, whole_training
from perfmodel.search.variants import resized

SHORTLIST = 8
"""Layouts simulated for each number of GPUs; the first few of the closed form hold the best."""


class Objective(StrEnum):
    """What a number of GPUs is chosen for."""

    TIME = "time"
    COST = "cost"
    THROUGHPUT_PER_GPU = "throughput-per-gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The search on one number of GPUs, and what a whole training takes with its best layout."""

    gpus: int
    search: LayoutSearch
    training: Training

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        best = self.search.best.to_dict()
        per_gpu = best["throughput"] / self.gpus
        return {"gpus": self.gpus, **best, "throughput_per_gpu": per_gpu,
                "cost": self.training.cost, "training": self.training.to_dict()}  # fmt: skip


def plan_sizes(
    run: Run,
    gpus: Sequence[int],
    *,
    samples: float = 1e6,
    price: float | None = None,
    objective: Objective = Objective.TIME,
    **options: Any,
) -> tuple[Size, list[Size], list[str]]:
    """Best layout for each number of GPUs.

    Parameters
    ----------
    run : Run
    gpus : sequence of int
    samples : float
        How much is trained; costs refer to it.
    price : float, optional
        Of one GPU for an hour.
    objective : Objective
        On a price that is the same for all GPUs, cost and throughput per GPU agree.
    **options
        Those of `plan_layout`.

    Returns
    -------
    tuple
        The size chosen, all sizes in order, and a sentence for each that has no layout.

    Raises
    ------
    InputError
        If no number of GPUs has a layout that fits.
    """
    sizes: list[Size] = []
    refused: list[str] = []
    for number in gpus:
        try:
            sizes.append(_size(run, number, samples, price, options))
        except InputError as error:
            refused.append(f"{number} GPUs: {error}")
    if not sizes:
        raise InputError(refused[0] if refused else "name at least one number of GPUs")

    def rank(size: Size) -> float:
        seconds = size.search.best.prediction.iteration_time_s
        return seconds if objective is Objective.TIME else seconds * size.gpus

    return min(sizes, key=rank), sizes, refused


def _size(
    run: Run, number: int, samples: float, price: float | None, options: dict[str, Any]
) -> Size:
    cluster = resized(run.cluster, number)
    everything = Shape(tp=1, pp=1, cp=1, ep=1, dp=number)
    batch = run.workload.global_batch
    plan = layout_plan(run, everything, micro_batch=batch / number)  # one that always divides
    plan = replace(plan, uses_fsdp=run.plan.uses_fsdp)
    there = replace(run, cluster=cluster, plan=plan)
    search = plan_layout(there, **{"shortlist": SHORTLIST, **options})
    best = search.best.prediction
    training = whole_training(there, best.iteration_time_s, best.interval_s, samples, price)
    return Size(gpus=number, search=search, training=training)
