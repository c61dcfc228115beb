"""RUN files become runs: sections inline, by name, by path; gaps are filled and said."""

from __future__ import annotations

import json

import pytest

from perfmodel.errors import InputError
from perfmodel.hardware.records import Dtype
from perfmodel.locations import datasets_path
from perfmodel.plan.records import Recompute, Schedule, Shard
from perfmodel.run import Run
from perfmodel.schema.models import list_models, named_model
from perfmodel.schema.parts import model_from_fields

EXAMPLES = sorted(datasets_path("examples").glob("*.yaml"), key=lambda p: p.name)

TEXT = """\
schema_version: 1
workload: {builder: transformer, arch: gpt, layers: 8, hidden: 64, heads: 8, ffn: 256, vocab: 100,
           seq: 32, global_batch: 64, precision: fp16-amp, optimizer: LAMB}
plan: {tp: 2, pp: 2, micro_batch: 4}
stack: megatron_2021
cluster: {node: dgx_a100_80, num_nodes: 2}
"""


def load(tmp_path, text=TEXT, name="run.yaml", **files):
    for other, content in files.items():
        (tmp_path / f"{other}.yaml").write_text(content)
    path = tmp_path / name
    path.write_text(text)
    return Run.load(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_load(path):
    run = Run.load(path)
    assert run.plan.num_gpus == run.cluster.num_gpus
    assert not run.warnings


def test_dp_is_what_the_other_sizes_leave(tmp_path):
    run = load(tmp_path)
    assert (run.plan.dp, run.plan.tp, run.plan.pp) == (4, 2, 2)
    assert run.plan.num_micro_batches(run.workload.global_batch) == 4
    assert run.plan.schedule is Schedule.ONE_F_ONE_B
    assert run.workload.precision.is_autocast
    assert run.workload.optimizer == "lamb"


def test_a_section_may_be_a_path_relative_to_the_run_file(tmp_path):
    text = TEXT.replace("plan: {tp: 2, pp: 2, micro_batch: 4}", "plan: plan_a.yaml")
    run = load(tmp_path, text, plan_a="fsdp: true\nmicro_batch: 2\nrecompute: full\n")
    assert run.plan.shard is Shard.PARAMETERS
    assert run.plan.uses_fsdp
    assert run.plan.recompute is Recompute.FULL


def test_an_error_in_another_file_names_that_file(tmp_path):
    text = TEXT.replace("plan: {tp: 2, pp: 2, micro_batch: 4}", "plan: plan_a.yaml")
    with pytest.raises(InputError, match=r"plan_a\.yaml:2: unknown field 'microbatch' in plan"):
        load(tmp_path, text, plan_a="fsdp: true\nmicrobatch: 2\n")


def test_json_and_yaml_of_the_same_run_are_equal(tmp_path):
    content = {
        "schema_version": 1,
        "workload": {"name": "llama3_8b", "global_batch": 64},
        "plan": "fsdp",
        "stack": {"name": "pytorch_fsdp", "host_op_s": 4e-6},
        "cluster": "dgx_h100",
    }
    as_json = load(tmp_path, json.dumps(content, indent="\t"), "run.json")
    as_yaml = load(
        tmp_path,
        "schema_version: 1\nworkload: {name: llama3_8b, global_batch: 64}\nplan: fsdp\n"
        "stack: {name: pytorch_fsdp, host_op_s: 4e-6}\ncluster: dgx_h100\n",
    )
    assert as_json == as_yaml
    assert as_json.stack.host_op_s == 4e-6
    assert as_json.cluster.num_gpus == 8


def test_a_model_name_alone_brings_its_usual_training_and_says_so(tmp_path):
    text = TEXT[: TEXT.index("workload")] + "workload: gpt3_175b\n" + TEXT[TEXT.index("plan") :]
    run = load(tmp_path, text.replace("pp: 2", "pp: 4").replace("micro_batch: 4", "micro_batch: 1"))
    assert run.workload.global_batch == 1536
    assert run.workload.precision.compute is Dtype.FP16
    assert any("global_batch 1536" in note for note in run.notes)


def test_a_missing_micro_batch_is_an_assumption(tmp_path):
    run = load(tmp_path, TEXT.replace(", micro_batch: 4", ""))
    assert run.plan.micro_batch == 2  # 16 samples a replica, four passes for each of two stages
    assert "micro_batch not stated: 2 assumed" in run.notes


def test_placements_of_tables_are_checked(tmp_path):
    text = """\
schema_version: 1
workload: {builder: dlrm, table_rows: [1000, 10], table_dim: 8, table_names: [big, small],
           bottom_mlp: [8], num_dense: 4, top_mlp: [8, 1], global_batch: 16, precision: fp32,
           optimizer: sgd}
plan:
  embedding_sharding:
    - {table: big, kind: row_wise, ranks: [0, 1, 2, 3, 4, 5, 6, 7]}
    - {table: small, kind: table_wise, ranks: [3]}
stack: torchrec
cluster: dgx_a100_80
"""
    run = load(tmp_path, text)
    assert [t.table for t in run.plan.embedding.tables] == ["big", "small"]
    with pytest.raises(InputError, match=r"run\.yaml:\d+: .*'tiny', which the model does not have"):
        load(tmp_path, text.replace("{table: small", "{table: tiny"))
    with pytest.raises(InputError, match="placed on rank 8; ranks are 0 to 7"):
        load(tmp_path, text.replace("ranks: [3]", "ranks: [8]"))


@pytest.mark.parametrize("name", list_models())
def test_every_model_of_the_catalogue_builds_without_a_warning(name):
    known = named_model(name)
    model, _, warnings = model_from_fields(known.builder, known.dimensions)
    assert not warnings
    assert known.source
    assert sum(block.num_parameters for block in model.blocks()) > 0


# Sizes that the papers state, in 10^9 parameters.
SIZES = {
    "gpt3_175b": 175, "llama2_7b": 6.74, "llama3_8b": 8.03, "llama3_70b": 70.6, "llama3_405b": 405,
    "mixtral_8x7b": 46.7, "bloom_176b": 176, "bert_large": 0.335, "mt_nlg_530b": 530,
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_models_have_the_number_of_parameters_that_their_papers_state(name):
    known = named_model(name)
    model, _, _ = model_from_fields(known.builder, known.dimensions)
    size = sum(block.num_parameters for block in model.blocks()) / 1e9
    assert size == pytest.approx(SIZES[name], rel=0.01)
