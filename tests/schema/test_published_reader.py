"""Published rows become runs; gaps are filled by the documented rules and said."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import pytest

from perfmodel.errors import InputError, RefusedError
from perfmodel.hardware.records import Dtype
from perfmodel.locations import datasets_path
from perfmodel.measure.published import read_rows, read_runs, run_from_row
from perfmodel.plan.records import Recompute, Schedule, Shard
from perfmodel.schema.parts import leaves_optimizer_out, optimizer_from_text, usual_micro_batch

CORPUS = os.environ.get("PERFMODEL_CORPUS")

ROW = {
    "id": "x-1",
    "group": "x|gpt|A100",
    "family": "transformer",
    "model_name": "gpt",
    "model": {
        "arch": "gpt", "layers": 8, "hidden": 512, "heads": 8, "kv_heads": 8, "ffn": 2048,
        "vocab": 1000, "seq": 1024, "gated_mlp": False,
    },
    "global_batch": 64,
    "batch_unit": "samples",
    "micro_batch": 2,
    "precision": "bf16",
    "parallelism": {
        "dp": 8, "tp": 2, "pp": 1, "vp": None, "cp": 1, "ep": 1, "zero_stage": 0, "fsdp": None,
        "sequence_parallel": None, "activation_recompute": "none",
    },
    "optimizer": "AdamW",
    "software": "Megatron-LM 2021",
    "hardware": {
        "gpu": "A100-SXM-80GB", "num_gpus": 16, "gpus_per_node": 8, "nodes": 2,
        "intra_node": "NVLink3/NVSwitch", "inter_node": "8x200 Gbps HDR IB per node",
    },
    "iteration_time_ms": 100.0,
}  # fmt: skip


def changed(**changes):
    """The row with fields set; `model__seq=…` reaches inside."""
    row = copy.deepcopy(ROW)
    for path, value in changes.items():
        target = row
        *parents, last = path.split("__")
        for key in parents:
            target = target[key]
        target[last] = value
    return row


def test_a_complete_row_needs_no_note():
    run = run_from_row(ROW)
    assert (run.plan.dp, run.plan.tp, run.plan.micro_batch) == (8, 2, 2)
    assert run.plan.num_micro_batches(run.workload.global_batch) == 4
    assert run.workload.precision.compute is Dtype.BF16
    assert run.cluster.num_gpus == 16
    assert not run.notes
    assert not run.warnings


def test_unknown_keys_are_warnings():
    run = run_from_row(changed(colour="red", model__taste="sour", parallelism__mood="calm"))
    assert len(run.warnings) == 3
    assert all("ignored" in w for w in run.warnings)


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({"parallelism__grad_accum": 8}, 1),
        ({"parallelism__num_microbatches": 2}, 4),
        ({}, 8),  # 8 x 1024 tokens
        ({"model__seq": 256}, 8),  # all that a replica trains
        ({"model__seq": 65536}, 1),
    ],
)
def test_an_unpublished_micro_batch(changes, size):
    run = run_from_row(changed(micro_batch=None, **changes))
    assert run.plan.micro_batch == size


def test_pipelines_keep_four_micro_batches_a_stage():
    model = run_from_row(ROW).workload.model
    assert usual_micro_batch(model, 64, pp=4) == 4
    assert usual_micro_batch(model, 64, pp=1) == 8


def test_a_micro_batch_that_does_not_divide_is_evened_out_with_a_warning():
    run = run_from_row(changed(micro_batch=3))
    assert run.plan.micro_batch == pytest.approx(8 / 3)
    assert "3 passes" in run.warnings[0]


def test_batches_in_tokens():
    run = run_from_row(changed(global_batch=64 * 1024, batch_unit="tokens"))
    assert run.workload.global_batch == 64
    assert run.plan.micro_batch == 2  # meant in samples: 2 tokens make no sense
    run = run_from_row(changed(global_batch=64 * 1024, batch_unit="tokens", micro_batch=4096))
    assert run.plan.micro_batch == 4  # 4096 samples would be more than a replica trains


@pytest.mark.parametrize(
    ("changes", "sizes"),
    [
        ({"dp": None}, (8, 2, 1)),
        ({"tp": None}, (8, 2, 1)),
        ({"dp": 1, "tp": None, "pp": None}, (1, 8, 2)),
        ({"dp": None, "tp": None, "pp": None, "model_parallel_product": 16}, (1, 8, 2)),
        ({"tp": "not stated", "dp": 4}, (4, 4, 1)),
    ],
)
def test_unknown_parallel_sizes_follow_from_the_others(changes, sizes):
    run = run_from_row(changed(**{f"parallelism__{k}": v for k, v in changes.items()}))
    assert (run.plan.dp, run.plan.tp, run.plan.pp) == sizes


def test_sizes_that_do_not_divide_the_gpus_are_refused():
    with pytest.raises(RefusedError, match="does not divide the 16 GPUs"):
        run_from_row(changed(parallelism__tp=3))


def test_a_plan_that_does_not_divide_its_model_was_run_all_the_same():
    run = run_from_row(changed(model__heads=5, model__kv_heads=5, model__hidden=500))
    assert "does not divide heads 5" in run.warnings[0]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"zero_stage": 1}, (Shard.OPTIMIZER, False, None)),
        ({"zero_stage": 3}, (Shard.PARAMETERS, False, None)),
        ({"zero_stage": 3, "fsdp": "FULL_SHARD"}, (Shard.PARAMETERS, True, None)),
        ({"zero_stage": 2, "fsdp": "SHARD_GRAD_OP"}, (Shard.GRADIENTS, True, None)),
        ({"fsdp": "HYBRID_SHARD", "tp": 1, "dp": 16}, (Shard.PARAMETERS, True, 8)),
        ({"fsdp": "NO_SHARD"}, (Shard.NOTHING, False, None)),
        ({"zero_stage": 1, "zero_group": -1}, (Shard.OPTIMIZER, False, None)),
        ({"zero_stage": 1, "zero_group": 4}, (Shard.OPTIMIZER, False, 4)),
    ],
)
def test_sharding(changes, expected):
    plan = run_from_row(changed(**{f"parallelism__{k}": v for k, v in changes.items()})).plan
    assert (plan.shard, plan.uses_fsdp, plan.shard_group) == expected


@pytest.mark.parametrize(
    ("text", "recompute"),
    [
        ("full", Recompute.FULL), ("selective-attn", Recompute.SELECTIVE), (True, Recompute.FULL),
        ("none", Recompute.NONE), (False, Recompute.NONE), ("not stated", Recompute.NONE),
        (None, Recompute.NONE), ("full (every layer)", Recompute.FULL),
    ],
)  # fmt: skip
def test_recompute(text, recompute):
    run = run_from_row(changed(parallelism__activation_recompute=text))
    assert run.plan.recompute is recompute
    unstated = text in (None, "not stated")
    assert any("recompute not stated" in note for note in run.notes) == unstated


def test_interleaved_schedules():
    row = changed(parallelism__pp=2, parallelism__dp=4, parallelism__vp=2)
    plan = run_from_row(row).plan
    assert plan.schedule is Schedule.INTERLEAVED
    assert plan.vp == 2


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("decoupled AdamW", "adam"), ("LAMB", "lamb"), ("SGD momentum", "sgd_momentum"),
        ("SGD", "sgd"), ("row-wise Adagrad", "rowwise_adagrad"), ("Adagrad", "adagrad"),
    ],
)  # fmt: skip
def test_optimizers(text, name):
    assert optimizer_from_text(text) == (name, None)


def test_an_unknown_optimizer_is_an_assumption():
    name, note = optimizer_from_text("Shampoo")
    assert name == "adam"
    assert "assumed" in note


@pytest.mark.parametrize(
    ("texts", "left_out"),
    [
        (("AdamW (NOT timed: event closes after backward)",), True),
        (("AdamW", "as published (fwd+bwd, mean of 10)"), True),
        (("AdamW", "forward + backward + optimizer"), False),
        (("AdamW", "value*1000"), False),
        ((None, None), False),
    ],
)
def test_what_the_timed_span_covers(texts, left_out):
    assert leaves_optimizer_out(*texts) is left_out


def test_stated_compilation_and_async_tp_change_the_stack():
    eager = run_from_row(ROW).stack
    compiled = run_from_row(changed(parallelism__compile=True)).stack
    assert compiled.elementwise_passes < eager.elementwise_passes
    assert run_from_row(changed(parallelism__compile=False)).stack == eager
    overlapped = run_from_row(changed(parallelism__async_tp=True))
    assert overlapped.stack.tp_hidden_fraction > eager.tp_hidden_fraction
    assert "async tensor parallelism" in overlapped.notes[0]


def test_unknown_software_warns_and_is_predicted():
    run = run_from_row(changed(software="My own trainer 2024"))
    assert not run.stack.is_known
    assert "not a known stack" in run.warnings[0]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"model": None}, "model"),
        ({"model__layers": None}, "layers"),
        ({"global_batch": None}, "global_batch"),
        ({"global_batch": float("nan")}, "global_batch"),
        ({"hardware__gpu": "Voodoo 2"}, "Voodoo 2"),
        ({"hardware__num_gpus": None, "hardware__nodes": None}, "num_gpus"),
        ({"hardware__nodes": 3}, "num_gpus 16"),
        ({"family": "diffusion"}, "diffusion"),
        ({"precision": None}, "not stated"),
        ({"parallelism__tp": -2}, "parallelism.tp"),
    ],
)
def test_refusals_name_the_field(changes, word):
    with pytest.raises((InputError, RefusedError), match=word):
        run_from_row(changed(**changes))


def test_every_bundled_run_can_be_read():
    rows = read_rows(datasets_path("published_runs", "runs.jsonl"))
    rows += read_rows(datasets_path("published_runs", "memory_oom.jsonl"))
    refused = [(r.row["id"], r.refusal) for r in read_runs(rows) if r.run is None]
    assert not refused
    assert len({row["id"] for row in rows}) == len(rows)


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS, reason="PERFMODEL_CORPUS is not set")
@pytest.mark.parametrize("name", ["nc/measured_nc.jsonl", "nc/memory_oom_nc.jsonl"])
def test_every_run_of_the_corpus_can_be_read(name):
    rows = read_rows(Path(CORPUS, "e2e", name))
    assert not [r.refusal for r in read_runs(rows) if r.run is None]
