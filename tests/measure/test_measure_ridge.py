"""The fit on synthetic models with known truth; intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.cost.spread import SpreadFeatures, SpreadTable, fit_spread, interval
from perfmodel.measure.priors import prior_log_sigma
from perfmodel.measure.ridge import Problem, group_weights, solve


def problem(rows: int, truth: list[float], *, noise: float, seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(len(truth) + 1), size=rows)[:, : len(truth)]
    residuals = shares @ np.array(truth) + rng.normal(0, noise, rows)
    return Problem(
        residuals=residuals,
        shares=shares,
        weights=np.ones(rows),
        theta=np.zeros(len(truth)),
        prior_sigma=np.full(len(truth), 0.3),
    )


def test_recovers_the_truth_from_many_rows() -> None:
    solution = solve(problem(4000, [0.3, -0.2, 0.0], noise=0.05, seed=1))
    assert solution.theta == pytest.approx([0.3, -0.2, 0.0], abs=0.03)
    assert (solution.information > 0.9).all()


def test_one_gross_outlier_moves_little() -> None:
    clean = problem(60, [0.3, -0.2], noise=0.02, seed=2)
    spoiled = np.array(clean.residuals)
    spoiled[0] += 5.0
    dirty = Problem(
        residuals=spoiled,
        shares=clean.shares,
        weights=clean.weights,
        theta=clean.theta,
        prior_sigma=clean.prior_sigma,
    )
    assert solve(dirty).theta == pytest.approx(solve(clean).theta, abs=0.05)


def test_parameters_without_data_stay_at_their_prior() -> None:
    p = problem(50, [0.3, 0.2], noise=0.02, seed=3)
    blind = Problem(
        residuals=p.residuals,
        shares=p.shares * np.array([1.0, 0.0]),
        weights=p.weights,
        theta=p.theta,
        prior_sigma=p.prior_sigma,
    )
    solution = solve(blind)
    assert solution.theta[1] == 0
    assert solution.information[1] == 0


def test_the_solution_does_not_depend_on_the_point_of_linearisation() -> None:
    p = problem(100, [0.3, -0.2], noise=0.02, seed=4)
    shift = np.array([0.1, 0.1])
    moved = Problem(
        residuals=p.residuals - p.shares @ shift,
        shares=p.shares,
        weights=p.weights,
        theta=p.theta + shift,
        prior_sigma=p.prior_sigma,
    )
    assert solve(moved).theta == pytest.approx(solve(p).theta, abs=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 6))
def test_more_rows_never_lose_information(seed: int, count: int) -> None:
    p = problem(40, [0.2] * count, noise=0.0, seed=seed)
    some = p.without(np.arange(40) >= 20)
    assert (solve(p).information >= solve(some).information - 1e-9).all()


def test_weights_of_a_group_sum_to_the_root_of_its_rows() -> None:
    weights = group_weights(["a"] * 9 + ["b"])
    assert weights[:9].sum() == pytest.approx(3)
    assert weights[9] == 1


def test_stack_deviations_have_narrower_priors_than_their_class() -> None:
    assert prior_log_sigma("host.hf_eager") < prior_log_sigma("host.all")
    assert prior_log_sigma("gemm.ampere.bf16") == 0.10
    assert prior_log_sigma("something.new") > 0


KNOWN = SpreadFeatures(family="dlrm", is_known_stack=True, num_gpus=8)
UNKNOWN = SpreadFeatures(family="dlrm", is_known_stack=False, num_gpus=8)


def test_unknown_stacks_gpus_and_assumptions_widen_the_interval() -> None:
    table = SpreadTable()
    base = table.half_width(KNOWN)
    assert table.half_width(UNKNOWN) > base
    odd = SpreadFeatures(family="dlrm", is_known_stack=True, is_known_gpu=False, num_gpus=8)
    assert table.half_width(odd) > base
    vague = SpreadFeatures(family="dlrm", is_known_stack=True, num_gpus=8, num_assumptions=3)
    assert table.half_width(vague) > base


def test_interval_is_around_the_prediction() -> None:
    low, high = interval(2.0, KNOWN, SpreadTable())
    assert low < 2.0 < high
    assert low * high == pytest.approx(4.0)


def test_fitted_intervals_cover_new_rows_of_the_same_kind() -> None:
    rng = np.random.default_rng(5)
    table = fit_spread(list(rng.normal(0, 0.1, 400)), [KNOWN] * 400)
    width = table.half_width(KNOWN)
    inside = (np.abs(rng.normal(0, 0.1, 4000)) <= width).mean()
    assert 0.77 <= inside <= 0.86


def test_few_rows_barely_move_a_stratum() -> None:
    table = fit_spread([0.0, 0.0], [KNOWN] * 2)
    assert table.half_width(KNOWN) > 0.1
