"""Configuration files of other tools: what they mean, what they warn of, how they fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfmodel.errors import InputError
from perfmodel.plan.records import Recompute, Schedule, Shard
from perfmodel.run import Run
from perfmodel.schema.foreign.compose import Choices, run_from_files

CONFIGS = Path(__file__).parent / "configs"


def load(**given) -> Run:
    names = ("hf", "megatron", "deepspeed", "torchtitan", "nemo")
    files = {k: CONFIGS / given.pop(k) for k in names if k in given}
    return run_from_files(files, Choices(cluster=given.pop("cluster", "dgx_h100"), **given))


# Parameters as the models' own pages state them, billions.
@pytest.mark.parametrize(
    ("name", "billions", "tolerance"),
    [
        ("hf_llama.json", 8.03, 0.01),
        ("hf_mixtral.json", 46.7, 0.01),
        ("hf_deepseek_v3.json", 671 + 14, 0.02),  # with the multi-token prediction layer
        ("hf_gpt2.json", 0.124, 0.02),
        ("hf_bert.json", 0.110, 0.03),
        ("hf_qwen3_moe.json", 30.5, 0.01),
        ("hf_gpt_neox.json", 20.6, 0.01),
        ("hf_gemma2.json", 9.24, 0.01),
        ("hf_t5.json", 0.248, 0.05),
    ],
)
def test_hugging_face_models_have_the_parameters_they_are_known_for(name, billions, tolerance):
    run = load(hf=name, batch=64)
    assert run.workload.num_parameters / 1e9 == pytest.approx(billions, rel=tolerance)
    assert not any("not known and not used" in w for w in run.warnings)


def test_hugging_face_styles():
    bert = load(hf="hf_bert.json", batch=8).workload.model
    assert (bert.is_causal, bert.mlm_predictions, bert.seq) == (False, 512, 512)
    neox = load(hf="hf_gpt_neox.json", batch=8).workload
    assert (neox.model.gated_mlp, neox.model.has_rotary) == (False, True)
    assert neox.precision.compute == "fp16"
    gemma = load(hf="hf_gemma2.json", batch=8, seq=8192).workload.model
    assert (gemma.sliding_window, gemma.sliding_every, gemma.ties_embeddings) == (4096, 2, True)
    t5 = load(hf="hf_t5.json", batch=8).workload.model
    assert (t5.encoder_layers, t5.layers, t5.dim_per_head) == (12, 12, 64)
    deepseek = load(hf="hf_deepseek_v3.json", batch=8)
    assert deepseek.workload.model.mixture.dense_layers == 3
    assert any("quantization_config" in w for w in deepseek.warnings)


def test_megatron_script_with_arrays_and_variables():
    run = load(megatron="megatron_gpt3_175b.sh", cluster="dgx_a100_80")
    assert run.cluster.num_gpus == 512
    plan = run.plan
    assert (plan.tp, plan.pp, plan.dp, plan.vp) == (8, 16, 4, 2)
    assert plan.schedule is Schedule.INTERLEAVED
    assert run.workload.precision.compute == "fp16"
    assert run.workload.model.vocab == 51200  # 50257 padded to 128 x tp
    assert any("rampup_batch_size" in w for w in run.warnings)
    assert not run.stack.overlaps_gradients  # a switch that is absent is off


def test_megatron_llama_with_fp8_and_context_parallelism():
    run = load(megatron="megatron_llama3_8b.sh")
    assert run.workload.num_parameters == pytest.approx(8.03e9, rel=0.01)
    assert (run.plan.cp, run.plan.dp, run.plan.shard) == (2, 4, Shard.OPTIMIZER)
    assert run.workload.precision.compute == "fp8"
    assert run.stack.overlaps_parameter_gather
    assert run.stack.gradient_dtype == "bf16"
    assert not run.plan.sequence_parallel  # tp is 1
    assert run.warnings == ()


def test_megatron_quoted_arguments_bare_lists_and_bash_c():
    bert = load(megatron="megatron_bert.sh")
    assert bert.workload.model.mlm_predictions == 512
    assert bert.cluster.num_gpus == 8
    bare = load(megatron="megatron_args.txt")
    assert (bare.plan.tp, bare.plan.pp, bare.plan.dp) == (8, 2, 2)
    assert bare.plan.recompute is Recompute.FULL
    mixture = load(megatron="megatron_mixtral.sh")
    assert mixture.cluster.num_gpus == 64  # from #SBATCH lines
    assert (mixture.plan.ep, mixture.plan.recompute) == (8, Recompute.SELECTIVE)
    assert mixture.workload.num_parameters == pytest.approx(46.7e9, rel=0.01)


def deepspeed(name: str, **given) -> Run:
    return load(hf="hf_llama.json", seq=2048, deepspeed=name, **given)


def test_deepspeed_stages_and_batches():
    run = deepspeed("ds_zero3.json")
    assert (run.plan.shard, run.plan.micro_batch) == (Shard.PARAMETERS, 2)
    assert run.workload.global_batch == 2 * 4 * 8
    assert run.stack.gradient_bucket_bytes == 1e9  # 5e8 elements of 2 bytes
    run = deepspeed("ds_zero2_offload.json", batch=64)
    assert run.plan.shard is Shard.GRADIENTS
    assert any("offload_optimizer" in w for w in run.warnings)
    run = deepspeed("ds_zero1_fp16.json")
    assert run.workload.precision.compute == "fp16"
    assert (run.workload.global_batch, run.plan.micro_batch) == (512, 4)
    assert any("OneBitAdam" in w for w in run.warnings)
    run = deepspeed("ds_plain.json")
    assert run.workload.precision.compute == "fp32"
    assert run.workload.optimizer == "lamb"
    run = deepspeed("ds_zeropp.json")
    assert run.plan.micro_batch == 256 / 8 / 2
    said = " ".join(run.warnings)
    assert all(k in said for k in ("quantized_weights", "hpz", "my_own_key"))


def test_torchtitan_degrees():
    run = load(torchtitan="titan_llama3_8b.toml", num_nodes=1)
    assert (run.plan.shard, run.plan.uses_fsdp) == (Shard.PARAMETERS, True)
    assert run.workload.global_batch == 8
    assert not run.stack.is_compiled
    run = load(torchtitan="titan_llama3_405b.toml", num_nodes=32)
    assert (run.plan.tp, run.plan.sequence_parallel) == (8, True)
    assert run.workload.precision.compute == "fp8"
    assert run.stack.tp_hidden_fraction > 0  # asynchronous tensor parallelism
    run = load(torchtitan="titan_hsdp.toml", num_nodes=4)
    assert run.plan.shard_group == 8
    run = load(torchtitan="titan_pp.toml", num_nodes=8)
    assert (run.plan.pp, run.plan.vp, run.plan.micro_batch) == (4, 2, 1)


def test_torchtitan_model_outside_the_catalogue_takes_its_dimensions_from_hugging_face():
    run = load(torchtitan="titan_qwen.toml", hf="hf_qwen3_moe.json", num_nodes=2)
    assert run.workload.model.mixture.num_experts == 128
    said = " ".join(run.warnings)
    assert all(k in said for k in ("ZBVZeroBubble", "enable_cpu_offload", "my_section.key"))


def test_nemo_recipes():
    run = load(nemo="nemo_gpt_5b.yaml")
    assert run.cluster.num_gpus == 128
    assert (run.plan.tp, run.plan.shard) == (2, Shard.OPTIMIZER)
    run = load(nemo="nemo_llama2_70b.yaml")
    assert (run.plan.vp, run.workload.precision.compute) == (20, "fp8")
    assert run.stack.tp_hidden_fraction > 0
    run = load(nemo="nemo_peft.yaml")
    assert run.workload.model.lora_rank == 16
    run = load(nemo="bridge_llama3_8b.yaml")
    assert (run.plan.cp, run.workload.precision.compute) == (2, "fp8")
    run = load(nemo="nemo_deepseek.yaml")
    assert run.workload.model.mixture.dense_layers == 3
    assert run.workload.num_parameters == pytest.approx(685e9, rel=0.02)
    assert any("recompute_modules" in w for w in run.warnings)


BROKEN = {
    "hf": [
        ("{", "not valid"),
        ("[1]", "no named fields"),
        ('{"a": 1}', "no model_type"),
        ('{"model_type": "llama", "hidden_size": "x"}', "hidden_size 'x' is not a number"),
        ('{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}', "missing"),
        ('{"model_type": "llama", "hidden_size": -4}', "at least 1"),
    ],
    "megatron": [
        ("echo hello", "no Megatron-LM arguments"),
        ("torchrun pretrain_gpt.py --num-layers $LAYERS", "a variable that the file does not set"),
        ("torchrun pretrain_gpt.py --num-layers 'abc", "not closed"),
        ("A=$B$B\nB=$A$A\nA=$B$B$B\ntorchrun x.py --num-layers $A", "expand to more than"),
        ("--num-layers 3.5", "not a whole number"),
    ],
    "deepspeed": [
        ("not json: [", "not valid"),
        ('{"zero_optimization": {"stage": 7}}', "is not 0, 1, 2 or 3"),
        ('{"train_batch_size": "many"}', "not a number"),
        ('{"bf16": {"enabled": "maybe"}}', "true or false"),
        ('{"train_batch_size": 0}', "at least 1"),
    ],
    "torchtitan": [
        ("[model", "not valid TOML"),
        ("a = 1", "no torchtitan configuration"),
        ('[training]\nseq_len = "long"', "not a number"),
        ('[model]\nname = "mine"\nflavor = "x"', "--hf"),
        ("[training]\nlocal_batch_size = 1.5", "whole number"),
    ],
    "nemo": [
        ("a: [1", "not valid"),
        ("x: 1", "no NeMo recipe"),
        ("model: {num_layers: many}", "not a number"),
        ("model: {num_layers: &a 3}", "anchors"),
        ("model: {hidden_size: 0}", "at least 1"),
    ],
}


@pytest.mark.parametrize(
    ("kind", "text", "reason"), [(k, t, r) for k, rows in BROKEN.items() for t, r in rows]
)
def test_broken_files_get_one_sentence(tmp_path, kind, text, reason):
    path = tmp_path / "broken"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        run_from_files({kind: path}, Choices(cluster="dgx_h100", batch=8))
    assert reason in str(error.value)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_a_script_is_never_run(tmp_path):
    canary = tmp_path / "canary"
    script = tmp_path / "run.sh"
    script.write_text(
        f"X=$(touch {canary})\nY=`touch {canary}`\ntouch {canary}\n"
        "torchrun pretrain_gpt.py --num-layers $((__import__('os').getpid()))"
    )
    with pytest.raises(InputError):
        run_from_files({"megatron": script}, Choices(cluster="dgx_h100", batch=8))
    assert not canary.exists()


def test_exponential_variables_are_refused(tmp_path):
    lines = ["A0=xxxxxxxxxx"] + [f"A{i + 1}=$A{i}$A{i}$A{i}$A{i}" for i in range(12)]
    script = tmp_path / "bomb.sh"
    script.write_text("\n".join([*lines, "torchrun x.py --num-layers $A12"]))
    with pytest.raises(InputError, match="expand to more than"):
        run_from_files({"megatron": script}, Choices(cluster="dgx_h100", batch=8))


def test_missing_hardware_and_batch_are_asked_for(tmp_path):
    files = {"hf": CONFIGS / "hf_llama.json"}
    with pytest.raises(InputError, match="--cluster"):
        run_from_files(files, Choices(batch=8))
    with pytest.raises(InputError, match="--batch"):
        run_from_files(files, Choices(cluster="dgx_h100"))
    with pytest.raises(InputError, match="--set nonsense"):
        run_from_files(files, Choices(cluster="dgx_h100", batch=8, changes={"nonsense": 1}))


def test_command_line_exit_codes(capsys):
    from perfmodel.cli import main

    config = str(CONFIGS / "hf_gpt2.json")
    assert (
        main(["predict", "--hf", config, "--cluster", "dgx_h100", "--batch", "64", "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["iteration_time_ms"] > 0
    assert main(["predict", "--hf", config]) == 2
    assert main(["predict"]) == 2
    assert main(["predict", "run.yaml", "--hf", config]) == 2
    assert main(["predict", "--hf", config, "--cluster", "dgx_h100", "--batch", "8",
                 "--set", "plan.tp=5"]) == 2  # fmt: skip
    assert capsys.readouterr().err.count("\n") == 4


# Small configurations by the fields that differ between families; billions as their pages state.
OTHERS = {
    "phi": (2.78, {"hidden_size": 2560, "intermediate_size": 10240, "num_attention_heads": 32,
                   "num_hidden_layers": 32, "vocab_size": 51200, "tie_word_embeddings": False}),
    "falcon": (6.92, {"hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 32,
                      "multi_query": True, "vocab_size": 65024, "parallel_attn": True}),
    "bloom": (7.07, {"hidden_size": 4096, "n_layer": 30, "n_head": 32, "vocab_size": 250880}),
    "opt": (6.66, {"hidden_size": 4096, "ffn_dim": 16384, "num_attention_heads": 32,
                   "num_hidden_layers": 32, "vocab_size": 50272, "word_embed_proj_dim": 4096}),
    "mpt": (6.65, {"d_model": 4096, "n_heads": 32, "n_layers": 32, "expansion_ratio": 4,
                   "vocab_size": 50432, "attn_config": {"alibi": True}}),
    "gpt_oss": (20.9, {"hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64,
                       "num_key_value_heads": 8, "head_dim": 64, "num_hidden_layers": 24,
                       "num_local_experts": 32, "num_experts_per_tok": 4, "vocab_size": 201088,
                       "sliding_window": 128, "tie_word_embeddings": False,
                       "layer_types": ["sliding_attention", "full_attention"] * 12}),
    "deepseek_v2": (15.7, {"hidden_size": 2048, "intermediate_size": 10944, "vocab_size": 102400,
                           "moe_intermediate_size": 1408, "n_routed_experts": 64,
                           "n_shared_experts": 2, "num_experts_per_tok": 6, "kv_lora_rank": 512,
                           "first_k_dense_replace": 1, "num_hidden_layers": 27, "q_lora_rank": None,
                           "num_attention_heads": 16, "qk_nope_head_dim": 128, "v_head_dim": 128,
                           "qk_rope_head_dim": 64, "tie_word_embeddings": False}),
    "qwen2_moe": (14.3, {"hidden_size": 2048, "intermediate_size": 5632, "num_experts": 60,
                         "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
                         "num_experts_per_tok": 4, "num_hidden_layers": 24, "vocab_size": 151936,
                         "num_attention_heads": 16, "tie_word_embeddings": False}),
    "bart": (0.406, {"d_model": 1024, "encoder_layers": 12, "decoder_layers": 12,
                     "encoder_attention_heads": 16, "encoder_ffn_dim": 4096, "vocab_size": 50265}),
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(OTHERS))
def test_other_families_have_the_parameters_they_are_known_for(tmp_path, kind):
    billions, fields = OTHERS[kind]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": kind, **fields}))
    run = run_from_files({"hf": path}, Choices(cluster="dgx_h100", batch=64))
    assert run.workload.num_parameters / 1e9 == pytest.approx(billions, rel=0.015)
    assert run.warnings == ()


def test_several_towers_and_unknown_types_are_named(tmp_path):
    path = tmp_path / "config.json"
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
            "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
            "num_hidden_layers": 34, "vocab_size": 262208}  # fmt: skip
    path.write_text(json.dumps({"model_type": "gemma3", "text_config": text, "vision_config": {}}))
    run = run_from_files({"hf": path}, Choices(cluster="dgx_h100", batch=64))
    assert run.workload.num_parameters == pytest.approx(3.88e9, rel=0.01)
    assert any("vision_config" in w for w in run.warnings)
    path.write_text(json.dumps(text | {"model_type": "novel", "own_switch": True}))
    said = " ".join(run_from_files({"hf": path}, Choices(cluster="dgx_h100", batch=64)).warnings)
    assert "novel" in said
    assert "own_switch" in said


def test_files_that_disagree_are_named():
    run = load(hf="hf_llama.json", megatron="megatron_args.txt")
    assert run.workload.model.hidden == 8192
    assert any("hidden is 4096 in one file and 8192" in w for w in run.warnings)
