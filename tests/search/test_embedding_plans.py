"""The search of sharding plans: better than the rules, within memory, repeatable, honest."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.cli.main import main
from perfmodel.errors import InputError, RefusedError
from perfmodel.plan.plan_limits import check_strictly
from perfmodel.plan.torchrec_plans import plan_from_torchrec, read_plan
from perfmodel.search.embedding_plans import RULES, plan_embeddings
from perfmodel.search.rank import rank_plans
from perfmodel.workload.recommender import EmbeddingTable

EXAMPLE = Path(__file__).parents[2] / "datasets" / "examples" / "dlrm_8gpu.yaml"


@pytest.fixture(scope="module")
def run():
    return pm.Run.load(EXAMPLE)


@pytest.fixture(scope="module")
def found(run):
    return plan_embeddings(run)


def with_tables(run, *tables):
    model = replace(run.workload.model, tables=tables)
    workload = replace(run.workload, model=model)
    return replace(run, workload=workload, plan=replace(run.plan, embedding=None))


def test_not_slower_than_any_rule_and_timed_as_predict_does(run, found):
    ranked = rank_plans(run, {"found": found.plan} | {name: name for name in RULES})
    assert ranked.plans[0].name == "found"
    assert ranked.plans[0].iteration_s == pytest.approx(found.prediction.iteration_time_s)
    assert found.prediction.iteration_time_s < found.best_rule_s


def test_it_fits_tables_ranks_and_memory(run, found):
    check_strictly(found.plan, run.workload.model.tables, 8, 8)
    assert found.prediction.fits
    assert found.rating_s >= found.bound_s
    assert found.gap >= 0


def test_same_seed_same_plan(run, found):
    assert plan_embeddings(run).plan == found.plan


def test_a_time_limit_still_gives_a_plan(run):
    ticks = count(0.0, 0.5)
    hasty = plan_embeddings(run, seconds=1.0, clock=lambda: next(ticks))
    assert hasty.evaluated < 60_000
    check_strictly(hasty.plan, run.workload.model.tables, 8, 8)


def test_torchrec_json_and_placements_are_read_back(run, found, tmp_path):
    tables = run.workload.model.tables
    again = plan_from_torchrec(found.to_torchrec(), tables, 8, 8)
    assert [(e.kind, e.ranks) for e in again.tables] == [
        (e.kind, e.ranks) for e in found.plan.tables
    ]
    file = tmp_path / "plan.yaml"
    file.write_text(json.dumps(found.to_dict()["plan"]["embedding_sharding"]))
    assert read_plan(file, tables, 8).tables == found.plan.tables


def test_less_memory_less_of_it_used(run, found):
    tight = plan_embeddings(run, memory_share=0.25)
    assert tight.prediction.memory.peak_bytes <= 0.25 * run.cluster.gpu.memory_bytes
    assert tight.prediction.iteration_time_s >= 0.99 * found.prediction.iteration_time_s


def test_too_large_tables_are_refused_with_the_missing_gibibytes(run):
    huge = with_tables(run, EmbeddingTable(name="a", rows=10**11, dim=128))
    with pytest.raises(RefusedError, match="GiB of them find no room on 8 ranks"):
        plan_embeddings(huge)


def test_a_hot_table_does_not_stay_whole(run):
    hot = EmbeddingTable(name="hot", rows=10**7, dim=128, pooling=(200.0,))
    small = tuple(EmbeddingTable(name=f"s{i}", rows=10**6, dim=128) for i in range(4))
    entry = plan_embeddings(with_tables(run, hot, *small)).plan.tables[0]
    assert len(entry.ranks) > 1


def test_one_gpu_keeps_everything(run):
    table = EmbeddingTable(name="a", rows=1000, dim=128)
    alone = replace(
        with_tables(run, table),
        plan=replace(run.plan, dp=1, embedding=None),
        cluster=replace(run.cluster, gpus_per_node=1),
    )
    assert plan_embeddings(alone).plan.tables[0].ranks == (0,)


@pytest.mark.parametrize("fields", [{"seconds": 0.0}, {"seconds": -1.0}, {"memory_share": 0.0}])
def test_limits_must_make_sense(run, fields):
    with pytest.raises(InputError):
        plan_embeddings(run, **fields)


def test_command(tmp_path, capsys):
    out = tmp_path / "plan.json"
    assert main(["plan", str(EXAMPLE), "--out", str(out), "--json", "--seconds", "20"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"plan", "iteration_time_ms", "evaluated", "seconds"} <= set(document)
    assert "sharding_type" in out.read_text()
    assert main(["rank", str(EXAMPLE), "--plans", str(out), "--json"]) == 0
    ranked = json.loads(capsys.readouterr().out)["ranking"][0]
    assert ranked["iteration_time_ms"] == pytest.approx(document["iteration_time_ms"], rel=0.01)
    assert main(["plan", str(EXAMPLE), "--fix", "tp=2"]) == 2
    assert "recommender" in capsys.readouterr().err
