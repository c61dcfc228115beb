"""Iteration time of one published row, and how it answers to each calibration parameter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from perfmodel.cost.parameters import ParameterSet, parameter_names
from perfmodel.cost.price import price
from perfmodel.cost.spread import SpreadFeatures
from perfmodel.errors import PerfmodelError, RefusedError
from perfmodel.measure.published import run_from_row
from perfmodel.plan.stacks import generic_stack
from perfmodel.predict import default_models, spread_features
from perfmodel.program.lower import lower
from perfmodel.program.records import Program
from perfmodel.run import Run
from perfmodel.simulator import simulate

# A parameter is raised by 5 %: large against rounding, small against the spread of priors.
_STEP = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to predict: a row under parameter values (missing ones are 1).

    `with_shares` asks for derivatives too, `is_anonymous` for the prediction that a stack nobody
    described would get: the generic profile of its year.
    """

    row: Mapping[str, Any]
    values: Mapping[str, float]
    with_shares: bool = False
    is_anonymous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`shares[name]` is d ln(seconds) / d ln(value); `error` says why there is no time."""

    seconds: float = math.nan
    shares: Mapping[str, float] = field(default_factory=dict)
    features: SpreadFeatures | None = None
    error: str | None = None


def answer(question: Question) -> Answer:
    """Predict a row; whatever goes wrong becomes the answer's `error`, in one sentence."""
    try:
        return _answer(question)
    except PerfmodelError as error:
        return Answer(error=str(error))
    except Exception as error:  # a row must never end a validation of hundreds
        return Answer(error=f"internal error ({type(error).__name__}: {error}); please report it")


def _answer(question: Question) -> Answer:
    run = run_from_row(question.row)
    if question.is_anonymous:
        stack = generic_stack(run.workload.model.family, run.stack.year)
        run = replace(run, stack=replace(stack, attention_kernel=run.stack.attention_kernel))
    program = lower(run.workload, run.plan, run.stack, run.cluster)
    names = active_names(program, run) if question.with_shares else ()
    parameters = _scenarios(question.values, names)
    priced = price(program, default_models(), run.cluster, run.stack, parameters)
    seconds = simulate(priced).iteration_s
    if not np.all(np.isfinite(seconds)) or seconds[0] <= 0:
        raise RefusedError("the predicted iteration time is not a positive number")
    logs = np.log(seconds[1:] / seconds[0]) / _STEP
    return Answer(
        seconds=float(seconds[0]),
        shares={n: float(s) for n, s in zip(names, logs, strict=True) if s != 0},
        features=spread_features(run),
    )


def active_names(program: Program, run: Run) -> tuple[str, ...]:
    """Parameters that act on a work of `program`, sorted."""
    names: set[str] = set()
    seen: set[int] = set()
    for cls in program.classes:
        for task in cls.tasks:
            if id(task.work) not in seen:
                seen.add(id(task.work))
                for item in task.work:
                    names.update(parameter_names(item.work, run.cluster, run.stack))
            if task.dispatch is not None:
                names.update(parameter_names(task.dispatch, run.cluster, run.stack))
    return tuple(sorted(names))


def _scenarios(values: Mapping[str, float], names: tuple[str, ...]) -> ParameterSet:
    """Scenario 0 as given; scenario j with the j-th parameter raised by one step."""
    if not names:
        return ParameterSet(values=dict(values))
    arrays = {}
    for j, name in enumerate(names, 1):
        column = np.full(len(names) + 1, values.get(name, 1.0))
        column[j] *= math.exp(_STEP)
        arrays[name] = column
    return ParameterSet(values={**values, **arrays})
