"""Fits calibration parameters to measured runs, and tells what the runs say of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.execution import ExecutionBundle
from perfmodel.measure.fanout import Pool, Progress
from perfmodel.measure.priors import prior_log_sigma
from perfmodel.measure.ridge import Problem, Solution, group_weights, solve
from perfmodel.measure.scoring import Outcome, group_of, score
from perfmodel.measure.sensitivity import Answer, Question, answer

# The time answers almost linearly to the logs of its parameters: the second Gauss-Newton pass
# starts within a few percent of the end, and leaves less than 0.1 %.
_PASSES = 2
_CONVERGED = 0.005

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Linearisation:
    """Answers of all predicted rows at one point, as a regression problem over named parameters."""

    rows: tuple[Row, ...]
    names: tuple[str, ...]
    base: Mapping[str, float]
    problem: Problem

    def values(self, theta: NDArray[np.float64]) -> dict[str, float]:
        """Parameter values: what the fit started from, times e^theta."""
        moved = {
            name: self.base.get(name, 1.0) * math.exp(t)
            for name, t in zip(self.names, theta, strict=True)
        }
        return {**self.base, **moved}

    def fit_without(self, held_out: NDArray[np.bool_]) -> dict[str, float]:
        """Parameters refitted on the other rows; those that no row identifies fall back."""
        return self.values(solve(self.problem.without(held_out)).theta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Result of a fit: `parameters` rows {name, value, prior, information}, errors around it."""

    parameters: tuple[dict[str, Any], ...]
    before: dict[str, float | int | None]
    after: dict[str, float | int | None]
    values: Mapping[str, float]
    failed: tuple[dict[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON of the contract."""
        return {
            "parameters": list(self.parameters),
            "before": self.before,
            "after": self.after,
            "failed": list(self.failed),
        }


def calibrate(
    rows: Sequence[Row],
    *,
    bundle: ExecutionBundle | None = None,
    pool: Pool | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Fit the parameters that measured runs identify.

    Parameters
    ----------
    rows : sequence of mapping
        Published-run schema; rows without a measured time are left out.
    bundle : ExecutionBundle, optional
        Its parameters are the starting point and the centre of the priors (default: all 1).
    pool : Pool, optional
        Worker processes; a pool of its own by default.
    progress : callable, optional
        Called with (rows done, rows in all) during every pass.

    Returns
    -------
    Calibration
        Only parameters that the runs narrow are listed; all others keep their starting value.
    """
    with pool or Pool() as workers:
        found = fit(rows, plain_values(bundle), workers, progress)
        questions = _questions(found.line.rows, found.values, False)
        return found.calibration(list(workers.map(answer, questions, progress)))


def plain_values(bundle: ExecutionBundle | None) -> dict[str, float]:
    """Parameter values of a bundle as plain numbers."""
    if bundle is None:
        return {}
    return {n: float(np.ravel(v)[0]) for n, v in bundle.parameters.values.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Answers before the fit (all measured rows), the last linearisation and its solution.

    `failed` are the rows that could not be predicted; the linearisation leaves them out.
    """

    rows: tuple[Row, ...]
    start: tuple[Answer, ...]
    line: Linearisation
    solution: Solution
    failed: tuple[dict[str, str], ...]

    @property
    def values(self) -> dict[str, float]:
        """Parameter values of the solution."""
        return self.line.values(self.solution.theta)

    def calibration(self, final: Sequence[Answer]) -> Calibration:
        """The parameters that moved; `final` answers the rows of `line` with `values`."""
        line, values = self.line, self.values
        moved = zip(line.names, self.solution.theta, self.solution.information, strict=True)
        listed: list[dict[str, Any]] = [
            {
                "name": name,
                "value": round(values[name], 5),
                "prior": line.base.get(name, 1.0),
                "information": round(float(information), 4),
            }
            for name, theta, information in moved
            if theta != 0
        ]
        return Calibration(
            parameters=tuple(sorted(listed, key=lambda p: -float(p["information"]))),
            before=score(outcomes(self.rows, self.start)),
            after=score(outcomes(line.rows, final)),
            values={**line.base, **{str(p["name"]): float(p["value"]) for p in listed}},
            failed=self.failed,
        )


def fit(
    rows: Sequence[Row], base: Mapping[str, float], pool: Pool, progress: Progress | None = None
) -> Fit:
    """Gauss-Newton from the parameter values `base`, which are the centre of the priors too."""
    measured = [r for r in rows if r.get("iteration_time_ms")]
    values = dict(base)
    start: list[Answer] = []
    for _ in range(_PASSES):
        answers = list(pool.map(answer, _questions(measured, values, True), progress))
        start = start or answers
        line = linearise(measured, answers, base, values)
        solution = solve(line.problem)
        moved = float(np.abs(solution.theta - line.problem.theta).max(initial=0.0))
        values = line.values(solution.theta)
        if moved < _CONVERGED:
            break
    return Fit(
        rows=tuple(measured),
        start=tuple(start),
        line=line,
        solution=solution,
        failed=tuple(
            {"id": str(r.get("id")), "error": a.error}
            for r, a in zip(measured, start, strict=True)
            if a.error
        ),
    )


def _questions(
    rows: Sequence[Row], values: Mapping[str, float], with_shares: bool
) -> list[Question]:
    return [Question(row=r, values=values, with_shares=with_shares) for r in rows]


def outcomes(rows: Sequence[Row], answers: Sequence[Answer]) -> list[Outcome]:
    """Outcomes of the rows that were predicted."""
    return [
        Outcome(row=r, measured_ms=float(r["iteration_time_ms"]), predicted_ms=a.seconds * 1e3)
        for r, a in zip(rows, answers, strict=True)
        if a.error is None
    ]


def linearise(
    rows: Sequence[Row],
    answers: Sequence[Answer],
    base: Mapping[str, float],
    values: Mapping[str, float],
) -> Linearisation:
    """Regression problem of the answers at `values`, priors centred on `base`."""
    pairs = [(r, a) for r, a in zip(rows, answers, strict=True) if a.error is None]
    names = tuple(sorted({n for _, a in pairs for n in a.shares}))
    index = {n: j for j, n in enumerate(names)}
    shares = np.zeros((len(pairs), len(names)))
    for i, (_, a) in enumerate(pairs):
        for name, share in a.shares.items():
            shares[i, index[name]] = share
    residuals = [math.log(float(r["iteration_time_ms"]) / 1e3 / a.seconds) for r, a in pairs]
    theta = [math.log(values.get(n, 1.0) / base.get(n, 1.0)) for n in names]
    return Linearisation(
        rows=tuple(r for r, _ in pairs),
        names=names,
        base=dict(base),
        problem=Problem(
            residuals=np.array(residuals),
            shares=shares,
            weights=group_weights([group_of(r) for r, _ in pairs]),
            theta=np.array(theta),
            prior_sigma=np.array([prior_log_sigma(n) for n in names]),
        ),
    )
