"""Pricing: every task of a Program gets its duration, split by cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.parameters import ParameterSet, StackLike, parameter_names
from perfmodel.cost.protocol import CostModel
from perfmodel.errors import RefusedError
from perfmodel.hardware.records import Cluster
from perfmodel.program.priced import PricedProgram
from perfmodel.program.records import Program, RankClass, Task
from perfmodel.program.work import Cause, HostDispatch, Work


@dataclass(frozen=True, slots=True)
class _Price:
    seconds: NDArray[np.float64]  # (scenarios,)
    cause: Cause


def price(
    program: Program,
    models: Sequence[CostModel],
    cluster: Cluster,
    stack: StackLike,
    parameters: ParameterSet,
) -> PricedProgram:
    """Duration of every task of `program` on `cluster`.

    Each distinct work record is priced once, by the first model that handles it.

    Raises
    ------
    RefusedError
        If no model handles a work.
    """
    works = _distinct_works(program)
    prices, warnings = _price_works(works, models, cluster, stack, parameters)

    def lookup(work: Work) -> _Price:
        return prices[_key(work)]

    scenarios = max(
        [program.scenarios, *(len(p.seconds) for p in prices.values())], default=program.scenarios
    )
    device, dispatch, causes = [], [], []
    cache: dict[int, tuple[NDArray[np.float64], NDArray[np.float64], Mapping[Cause, float]]] = {}
    for cls in program.classes:
        columns = _price_class(cls, lookup, scenarios, cache)
        device.append(columns[0])
        dispatch.append(columns[1])
        causes.append(columns[2])
    return PricedProgram(
        program=program,
        device_s=tuple(device),
        dispatch_s=tuple(dispatch),
        causes=tuple(causes),
        warnings=warnings,
    )


def _distinct_works(program: Program) -> dict[object, Work]:
    works: dict[object, Work] = {}
    seen: set[int] = set()  # micro-batches share their tuples of work
    for cls in program.classes:
        for task in cls.tasks:
            if id(task.work) not in seen:
                seen.add(id(task.work))
                for item in task.work:
                    works.setdefault(_key(item.work), item.work)
            if task.dispatch is not None:
                works.setdefault(_key(task.dispatch), task.dispatch)
    return works


def _key(work: Work) -> object:
    """Equal works share a price; records that hold arrays are priced one by one."""
    try:
        hash(work)
    except TypeError:
        return id(work)
    return work


def _price_works(
    works: Mapping[object, Work],
    models: Sequence[CostModel],
    cluster: Cluster,
    stack: StackLike,
    parameters: ParameterSet,
) -> tuple[dict[object, _Price], tuple[str, ...]]:
    prices: dict[object, _Price] = {}
    warnings: list[str] = []
    remaining = dict(works)
    for model in models:
        mine = {key: work for key, work in remaining.items() if model.handles(work)}
        if not mine:
            continue
        estimate = model.estimate(list(mine.values()), cluster)
        warnings.extend(estimate.warnings)
        for row, (key, work) in enumerate(mine.items()):
            factor = parameters.multiplier(parameter_names(work, cluster, stack))
            seconds = np.atleast_1d(np.asarray(estimate.seconds[row] * factor, dtype=float))
            prices[key] = _Price(seconds, work.cause)
            del remaining[key]
    if remaining:
        kinds = sorted({type(work).__name__ for work in remaining.values()})
        raise RefusedError(f"no cost model prices {', '.join(kinds)}")
    return prices, tuple(dict.fromkeys(warnings))


def price_works(
    works: Sequence[Work],
    models: Sequence[CostModel],
    cluster: Cluster,
    stack: StackLike,
    parameters: ParameterSet,
) -> NDArray[np.float64]:
    """Seconds of each of `works`, shape (n,), first scenario; as `price` prices them in a program.

    Raises
    ------
    RefusedError
        If no model handles a work.
    """
    prices, _ = _price_works({_key(w): w for w in works}, models, cluster, stack, parameters)
    return np.array([prices[_key(w)].seconds[0] for w in works], dtype=float)


def _price_class(
    cls: RankClass,
    lookup: Callable[[Work], _Price],
    scenarios: int,
    cache: dict[int, tuple[NDArray[np.float64], NDArray[np.float64], Mapping[Cause, float]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[Mapping[Cause, float], ...]]:
    device = np.zeros((len(cls.tasks), scenarios))
    dispatch = np.zeros((len(cls.tasks), scenarios))
    causes: list[Mapping[Cause, float]] = []
    for row, task in enumerate(cls.tasks):
        # Tasks of one micro-batch often share their work tuple with those of the next.
        found = cache.get(id(task.work)) if task.work else None
        if found is None:
            found = _price_task(task, lookup)
            cache[id(task.work)] = found
        device[row] = found[0]
        dispatch[row] = _dispatch_seconds(task.dispatch, lookup)
        causes.append(found[2])
    return device, dispatch, tuple(causes)


def _dispatch_seconds(
    work: HostDispatch | None, lookup: Callable[[Work], _Price]
) -> float | NDArray[np.float64]:
    return 0.0 if work is None else lookup(work).seconds


def _price_task(
    task: Task, lookup: Callable[[Work], _Price]
) -> tuple[NDArray[np.float64], NDArray[np.float64], Mapping[Cause, float]]:
    total: NDArray[np.float64] = np.zeros(1)
    by_cause: dict[Cause, float] = {}
    for item in task.work:
        found = lookup(item.work)
        seconds = found.seconds * item.count
        total = total + seconds
        by_cause[found.cause] = by_cause.get(found.cause, 0.0) + float(np.ravel(seconds)[0])
    whole = sum(by_cause.values())
    shares = {c: s / whole for c, s in by_cause.items()} if whole > 0 else {}
    return total, np.zeros(1), shares
