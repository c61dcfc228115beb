"""Ranking of sharding plans: order, doubt, explanation, files and refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.cli.main import main
from perfmodel.cost.parameters import ParameterSet
from perfmodel.errors import InputError, InvalidPlanError
from perfmodel.plan.sharding import ShardingKind, ShardingPlan, TableSharding
from perfmodel.plan.write_plans import to_torchrec
from perfmodel.predict import default_models, predict
from perfmodel.search.plan_doubt import chance_to_win, joint_times
from perfmodel.search.rank import named_plans, rank_plans

EXAMPLE = Path(__file__).parents[2] / "datasets" / "examples" / "dlrm_8gpu.yaml"
RULES = ("round_robin", "row_wise", "column_wise")


@pytest.fixture(scope="module")
def run():
    return pm.Run.load(EXAMPLE)


@pytest.fixture(scope="module")
def ranking(run):
    return rank_plans(run, RULES)


def one_rank(run):
    """Every table on rank 0."""
    tables = tuple(
        TableSharding(table=t.name, kind=ShardingKind.TABLE_WISE, ranks=(0,))
        for t in run.workload.model.tables
    )
    return ShardingPlan(tables=tables, note="all on rank 0")


def test_times_are_those_of_predict(run, ranking):
    for row in ranking.plans:
        alone = predict(replace(run, plan=replace(run.plan, embedding=row.plan)))
        assert row.iteration_s == pytest.approx(alone.iteration_time_s, rel=1e-6)
        assert row.interval_s == pytest.approx(alone.interval_s, rel=1e-6)
        assert row.memory.peak_bytes == alone.memory.peak_bytes


def test_fastest_first_and_causes_sum_to_the_difference(ranking):
    times = [p.iteration_s for p in ranking.plans]
    assert times == sorted(times)
    assert sum(ranking.causes_s.values()) == pytest.approx(times[1] - times[0], abs=1e-9)


def test_a_plan_that_does_not_fit_comes_last(run):
    crowded = one_rank(run)
    ranked = rank_plans(run, {"crowded": crowded, "rows": "row_wise"}).plans
    assert [p.name for p in ranked] == ["rows", "crowded"]
    assert not ranked[1].memory.fits
    assert ranked[1].straggler.startswith("rank 0")


def test_equal_plans_are_too_close_and_clearly_slower_ones_are_not(run):
    ranked = {p.name: p for p in rank_plans(run, ["round_robin", "round_robin", "row_wise"]).plans}
    assert ranked["round_robin"].too_close_to_call
    assert ranked["round_robin (2)"].too_close_to_call
    assert ranked["round_robin (2)"].chance_to_win == pytest.approx(0.5)
    assert not ranked["row_wise"].too_close_to_call


def test_a_lone_best_plan_is_not_too_close_to_itself(run):
    assert not any(p.too_close_to_call for p in rank_plans(run, ["round_robin", "row_wise"]).plans)
    assert not rank_plans(run, ["row_wise"]).plans[0].too_close_to_call


def test_shared_constants_cancel(run):
    plans = list(named_plans(run, ["round_robin", "column_wise"]).values())
    times = joint_times(run, plans, ParameterSet(), default_models())
    apart = np.log(times).std(axis=0).min()
    together = np.log(times[:, 0] / times[:, 1]).std()
    assert together < apart
    again = joint_times(run, plans, ParameterSet(), default_models())
    assert np.array_equal(times, again)


def test_chance_to_win_by_hand():
    times = np.array([[1.0, 2.0, 1.0], [2.0, 1.0, 2.0]])
    assert chance_to_win(times, 0).tolist() == [0.5, 0.5, 0.5]
    assert chance_to_win(np.array([[1.0, 2.0]]), 0).tolist() == [0.5, 0.0]


def test_data_frame(run):
    frame = pm.rank(run, RULES)
    assert list(frame["plan"])[-1] == "row_wise"
    assert {"iteration_time_ms", "interval_ms", "memory_gib", "fits"} <= set(frame.columns)


def test_command_reads_torchrec_json(run, tmp_path, capsys):
    plan = named_plans(run, ["column_wise"])["column_wise"]
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(to_torchrec(plan, run.workload.model.tables, 8, "sparse.ebc")))
    assert main(["rank", str(EXAMPLE), "--plans", str(file), "column_wise", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    times = [p["iteration_time_ms"] for p in document["ranking"]]
    assert times[0] == pytest.approx(times[1])
    assert {p["plan"] for p in document["ranking"]} == {str(file), "column_wise"}
    assert main(["rank", str(EXAMPLE), "--plans", "round_robin", "row_wise"]) == 0
    assert "round_robin beats row_wise by" in capsys.readouterr().out


def test_refusals(run, capsys):
    with pytest.raises(InputError, match="0 plans"):
        rank_plans(run, [])
    with pytest.raises(InvalidPlanError, match="does not place"):
        rank_plans(run, [ShardingPlan(tables=())])
    assert main(["rank", str(EXAMPLE), "--plans", "no_such_file.json"]) == 2
    assert "no_such_file.json" in capsys.readouterr().err
    other = EXAMPLE.with_name("llama3_8b_64gpu.yaml")
    name = other if other.exists() else next(
        p for p in sorted(EXAMPLE.parent.glob("*.yaml")) if "dlrm" not in p.name
    )  # fmt: skip
    with pytest.raises(InputError, match="for recommenders"):
        rank_plans(pm.Run.load(name), ["row_wise"])
