"""Sweeps: the best points, what limits them, whole-run answers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import perfmodel as pm
from perfmodel.errors import InputError
from perfmodel.locations import datasets_path
from perfmodel.run import Run
from perfmodel.schema.run_file import run_from_mapping
from perfmodel.search.training import samples_to_train, whole_training
from perfmodel.search.variants import resized, variant


@pytest.fixture(scope="module")
def llama() -> Run:
    return Run.load(datasets_path("examples", "llama3_8b_fsdp.yaml"))


@pytest.fixture(scope="module")
def recommender() -> Run:
    return Run.load(datasets_path("examples", "dlrm_8gpu.yaml"))


def small(**changes) -> Run:
    content = {
        "schema_version": 1,
        "workload": {"name": "gpt2_small", "global_batch": 64, "precision": "bf16"},
        "plan": {"zero_stage": 0, "micro_batch": 8},
        "stack": "torch_ddp",
        "cluster": {"node": "dgx_a100_80", "num_nodes": 1},
    }
    return run_from_mapping(content | changes)


def test_points_cover_every_combination_and_say_which_is_none(llama):
    result = pm.sweep(llama, batch=[8, 16], gpus=[8, 12])
    assert len(result.points) + len(result.refused) == 4
    assert {p.gpus for p in result.points} == {8}
    assert all("12" in r["reason"] for r in result.refused)


def test_a_point_is_what_predict_says(llama):
    run = replace(llama, plan=replace(llama.plan, micro_batch=1))  # accumulates
    (point,) = pm.sweep(run, batch=[96]).points
    changed = variant(run, batch=96)
    assert point.prediction.iteration_time_s == pm.predict(changed).iteration_time_s
    assert changed.plan.micro_batch == 1
    in_one_pass = variant(llama, batch=64)
    assert variant(in_one_pass, batch=96).plan.micro_batch == 3


def test_fastest_fits_and_smallest_batch_is_within_two_percent():
    one_pass = small(plan={"zero_stage": 0, "micro_batch": 8}, workload={
        "name": "gpt2_small", "global_batch": 64, "precision": "bf16"})  # fmt: skip
    result = pm.sweep(one_pass, batch=[8, 64, 512, 1024, 2048, 4096])
    fits = [p for p in result.points if p.fits]
    assert len(fits) < len(result.points)  # 512 sequences a GPU do not fit
    assert result.fastest.throughput == max(p.throughput for p in fits)
    knee = result.smallest_batch
    assert knee.throughput >= 0.98 * result.fastest.throughput
    assert all(
        p.throughput < 0.98 * result.fastest.throughput for p in fits if p.batch < knee.batch
    )
    assert result.why()["constraint"] in ("memory", "saturation")


def test_memory_is_named_where_the_next_batch_does_not_fit():
    result = pm.sweep(small(), batch=[8, 64, 8192])
    larger = [p for p in result.points if p.batch > result.fastest.batch]
    if result.smallest_batch.batch == result.fastest.batch and larger:
        assert result.why()["constraint"] == "memory"
        assert "8192" in result.why()["sentence"]


def test_slow_input_is_the_constraint(recommender):
    stack = replace(recommender.stack, input_samples_per_s_per_node=1e5)
    result = pm.sweep(replace(recommender, stack=stack), batch=[16384, 65536])
    assert result.why()["constraint"] == "input pipeline"


def test_tables_are_placed_anew_for_another_number_of_gpus(recommender):
    changed = variant(recommender, gpus=16)
    assert changed.cluster.num_gpus == changed.plan.num_gpus == 16
    used = {r for t in changed.plan.embedding.tables for r in t.ranks}
    assert max(used) > 7


def test_sizes_of_clusters(llama):
    assert resized(llama.cluster, 2).num_nodes == 1
    grown = resized(resized(llama.cluster, 2), 32)
    assert (grown.num_nodes, grown.gpus_per_node) == (4, 8)
    assert grown.node_bytes_per_s == llama.cluster.node_bytes_per_s
    with pytest.raises(InputError, match="multiple"):
        resized(llama.cluster, 20)


def test_sequence_length_and_hardware_are_axes(llama):
    result = pm.sweep(llama, seq=[2048, 8192], cluster=["dgx_a100_80", "dgx_h100"])
    assert {(p.seq, p.cluster) for p in result.points} == {
        (s, c) for s in (2048, 8192) for c in ("dgx_a100_80", "dgx_h100")
    }
    time = {(p.seq, p.cluster): p.prediction.iteration_time_s for p in result.points}
    assert time[2048, "dgx_h100"] < time[8192, "dgx_h100"] < time[8192, "dgx_a100_80"]


def test_prices_decide_the_cheapest(llama):
    hardware = ["dgx_a100_80", "dgx_h100"]
    cheap = pm.sweep(llama, cluster=hardware, price={"dgx_a100_80": 0.01, "dgx_h100": 10})
    assert cheap.cheapest.cluster == "dgx_a100_80"
    assert cheap.fastest.cluster == "dgx_h100"
    assert pm.sweep(llama, batch=[64]).cheapest is None


def test_whole_training_by_hand(llama):
    run = variant(llama, batch=16, gpus=8)
    seq = run.workload.model.seq
    samples = samples_to_train(run, None, 16 * seq * 86_400)
    training = whole_training(run, 1.0, (0.9, 1.2), samples, price=2.0)
    assert training.iterations == 86_400
    assert training.days == 1.0
    assert training.days_interval == pytest.approx((0.9, 1.2))
    assert training.gpu_hours == 24 * run.cluster.num_gpus
    assert training.cost == 2 * training.gpu_hours
    assert training.energy_kwh_at_board_power == pytest.approx(24 * 8 * 0.7)


def test_amounts_that_make_no_sense(llama, recommender):
    with pytest.raises(InputError, match="both"):
        samples_to_train(llama, 1, 1)
    with pytest.raises(InputError, match="above 0"):
        samples_to_train(llama, -1, None)
    with pytest.raises(InputError, match="transformers"):
        samples_to_train(recommender, None, 1e9)
    with pytest.raises(InputError, match="no variant"):
        pm.sweep(llama, gpus=[12])
    with pytest.raises(InputError, match="fewer"):
        pm.sweep(llama, batch=range(1, 100), gpus=range(8, 800, 8))


def test_command_line(capsys):
    from perfmodel.cli import main

    file = str(datasets_path("examples", "llama3_8b_fsdp.yaml"))
    common = ["sweep", file, "--batch", "64,128", "--price", "2"]
    assert main([*common, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"points", "best", "why", "refused"} <= document.keys()
    point = document["points"][0]
    assert {"iteration_time_ms", "throughput", "memory_gib", "fits", "cost"} <= point.keys()
    assert document["best"]["cost"]["cost"] == min(p["cost"] for p in document["points"])
    assert main([*common, "--tokens", "1e12"]) == 0
    assert "GPU-hours" in capsys.readouterr().out
    for wrong in (["--batch", "x"], ["--gpus", "0"], ["--price", "free"], ["--gpus", "1.5"]):
        assert main(["sweep", file, *wrong]) == 2
    assert capsys.readouterr().err.count("\n") == 4
    assert main(["predict", file, "--tokens", "1e12", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["training"]["days"] > 0
    assert main(["predict", file, "--price", "2"]) == 2
