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
from perfmodel.figures import spread_features
from perfmodel.measure.published import run_from_row
from perfmodel.plan.stacks import generic_stack
from perfmodel.predict import default_models
from perfmodel.program.lower import lower
from perfmodel.program.records import Program
from perfmodel.run import Run
from perfmodel.simulator import simulate

# A parameter is raised by 5 %: large against rounding, small against the spread of priors.
_STEP = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to predict: a row under parameter values (missing ones are 1).

    `alternatives` are further sets of values to predict the row under, `with_shares` asks for
    derivatives too, `is_anonymous` for the prediction that a stack nobody described would get: the
    generic profile of its year.
    """

    row: Mapping[str, Any]
    values: Mapping[str, float]
    alternatives: tuple[Mapping[str, float], ...] = ()
    with_shares: bool = False
    is_anonymous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`shares[name]` is d ln(seconds) / d ln(value); `error` says why there is no time.

    `alternatives` are the seconds under the question's other values.
    """

    seconds: float = math.nan
    alternatives: tuple[float, ...] = ()
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
    parameters = _scenarios(question, names)
    priced = price(program, default_models(), run.cluster, run.stack, parameters)
    seconds = simulate(priced).iteration_s
    if not np.all(np.isfinite(seconds)) or seconds.min() <= 0:
        raise RefusedError("the predicted iteration time is not a positive number")
    # A program without any of the parameters has one scenario for all of them.
    seconds = np.broadcast_to(seconds, (1 + len(question.alternatives) + len(names),))
    first = 1 + len(question.alternatives)
    logs = np.log(seconds[first:] / seconds[0]) / _STEP
    return Answer(
        seconds=float(seconds[0]),
        alternatives=tuple(float(s) for s in seconds[1:first]),
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


def _scenarios(question: Question, names: tuple[str, ...]) -> ParameterSet:
    """The question's values, its alternatives, then each of `names` raised by one step."""
    sets = (question.values, *question.alternatives)
    if len(sets) == 1 and not names:
        return ParameterSet(values=dict(question.values))
    arrays = {}
    for name in sorted({n for values in sets for n in values} | set(names)):
        own = [values.get(name, 1.0) for values in sets]
        column = np.array([*own, *[own[0]] * len(names)])
        if name in names:
            column[len(sets) + names.index(name)] *= math.exp(_STEP)
        arrays[name] = column
    return ParameterSet(values=arrays)
