"""What Megatron's settings mean, as arguments (`num_layers` is --num-layers) or as YAML keys.

Defaults as in Megatron-LM's argument parser (megatron/training/arguments.py).
"""

from __future__ import annotations

import re
from typing import Any

from perfmodel.errors import InputError
from perfmodel.schema.foreign.fields import Fields, Foreign

# Vocabularies of tokenizers, before padding.
_VOCABULARIES = {
    "GPT2BPETokenizer": 50257, "BertWordPieceLowerCase": 30522, "BertWordPieceCase": 28996,
    "Llama2Tokenizer": 32000, "Llama3Tokenizer": 128256,
}  # fmt: skip
_PADDED_TO = 128  # --make-vocab-size-divisible-by, times the tensor-parallel size

_HARMLESS = re.compile(
    r"lr|lr_.*|min_lr|max_lr|weight_decay.*|adam_.*|clip_grad_.*|init_method.*|seed|train_iters|"
    r"train_samples|exit_.*|log_.*|.*_log_.*|tensorboard.*|wandb.*|save.*|load|ckpt.*|"
    r"checkpoint_.*|no_save.*|no_load.*|eval_.*|data_.*|.*_data_path|split|vocab_file|merge_file|"
    r"tokenizer.*|distributed_backend|distributed_timeout.*|rdzv.*|master_.*|node_rank|"
    r"max_position_embeddings|hidden_dropout|attention_dropout|norm_epsilon|layernorm_epsilon|"
    r"rotary_base|rotary_percent|rope_.*|use_rope.*|rotary_.*|normalization|num_workers|"
    r"make_vocab.*|loss_scale.*|initial_loss.*|hysteresis|no_mmap.*|use_mcore_models|"
    r"transformer_impl|attention_softmax_in_fp32|apply_query_key.*|no_query_key.*|"
    r"use_checkpoint.*|dist_ckpt.*|async_save|auto_detect.*|job_name|partition|account|time|"
    r"output|error|exclusive|mem|cpus_per_task|nodelist|jobid|c|N|n|o|e|p|t|A|J|m|u|gres|"
    r"kill_on_.*|tee|local_rank|local_ranks.*|standalone|max_restarts|role|hostfile|"
    r"dataloader_type|reset_.*|eod_mask.*|create_attention.*|mock_data|no_create.*|"
    r"timing_.*|barrier_.*|skip_.*|manual_gc.*|no_gradient.*|qk_layernorm|position_embedding_type|"
    r"use_rotary.*|untie_.*|disable_bias.*|ddp_.*name|moe_router_(load|dtype|score|topk_scaling|"
    r"pre|enable|bias|num|group|z|padding).*|moe_aux_loss.*|moe_z_loss.*|"
    r"decoder_start.*|consumed.*|override_.*|use_checkpoint_opt.*|test_mode|name|notes|"
    r"moe_token_dispatcher_type|te_rng_tracker|deepspeed_.*|add_qkv_bias|mtp_loss.*|"
    r"enable_experimental|bf16|fp16|params_dtype|rerun.*|result_rejected.*|profile.*|"
    r"account|cross_entropy_fusion_impl|no_bias_.*|no_masked.*|no_rope_fusion|no_persist.*|"
    r"apply_layernorm_1p|squared_relu|swiglu|trust_remote_code|legacy_tokenizer|fp8_amax.*|"
    r"calculate_per_token_loss|cross_entropy_loss_fusion|moe_grouped_gemm|moe_permute_fusion|"
    r"defaults|accelerator|max_steps|max_epochs|val_check.*|limit_.*_batches|enable_.*check.*|"
    r"use_distributed_sampler|benchmark|precision|mixed_precision|group_query_attention"
)
_NOT_MODELLED = {
    r"optimizer_cpu_offload|cpu_offload.*|offload_optimizer|optimizer_offload.*": "optimiser state "
    "is taken to stay on the device",
    r"moe_expert_capacity_factor|moe_pad_expert.*": "tokens are spread evenly, none dropped",
    r"moe_layer_recompute|recompute_modules|recompute_method": "recompute is none, selective "
    "(attention) or full",
    r"distribute_saved_activations": "saved activations are not divided further",
    r"num_layers_in_(first|last)_pipeline_stage|decoder_(first|last)_pipeline_num_layers|"
    r"account_for_(embedding|loss)_in_pipeline_split|pipeline_model_parallel_layout": "layers are "
    "dealt evenly to stages",
    r"encoder_(tensor|pipeline)_model_parallel_size": "encoder and decoder share one layout",
    r"expert_tensor_parallel_size": "experts are not divided by tensor parallelism",
    r"hierarchical_context_parallel_sizes|cp_comm_type": "context parallelism is a ring",
    r"variable_seq_lengths|reset_attention_mask|use_packed.*|packed_sequence.*": "every sample is "
    "full length",
    r"rampup_batch_size": "the final batch is taken",
    r"use_tp_pp_dp_mapping": "pipeline ranks are outermost",
    r"align_param_gather|defer_embedding.*|delay_wgrad.*|overlap_moe.*": "overlap is that of the "
    "stack",
    r"moe_shared_expert_overlap|moe_(flex|deepep|enable_deepep).*": "experts run and exchange as "
    "in the stack",
    r"use_precision_aware_optimizer|exp_avg.*dtype|main_(grads|params)_dtype": "optimiser state is "
    "fp32",
    r"first_last_layers_bf16|num_layers_at_.*_in_bf16|fp8_param.*|fp8_recipe": "all linears of the "
    "layers run in the compute format",
    r"sparse_mode|retro.*|hybrid_.*|spec|is_hybrid.*|mamba.*": "the model is taken as a plain "
    "transformer",
    r"window_attn.*|window_size": "attention is taken as full",
    r"use_torch_fsdp2|use_megatron_fsdp|use_custom_fsdp|data_parallel_sharding.*": "sharding is "
    "that of the distributed optimiser",
}


def fill_from_megatron(
    fields: Fields, foreign: Foreign, program: str = "", *, is_complete: bool = True
) -> None:
    """Fill workload, plan, stack and batch from Megatron's settings.

    Parameters
    ----------
    fields : Fields
        Settings in snake case.
    foreign : Foreign
        What is filled; warnings name what is not modelled.
    program : str
        Name of the training script (pretrain_bert.py), which decides the kind of model.
    is_complete : bool
        A switch that is absent is off (command lines), not what the stack usually does (recipes).
    """
    _plan(fields, foreign)
    _model(fields, foreign, program)
    _stack(fields, foreign, is_complete)
    _batch(fields, foreign)
    _virtual_stages(fields, foreign)
    fields.warn_of(foreign, _NOT_MODELLED)
    fields.harmless(_HARMLESS)
    fields.report_rest(foreign)


def _batch(fields: Fields, foreign: Foreign) -> None:
    for key, names in (
        ("micro", ("micro_batch_size", "batch_size")),
        ("global", ("global_batch_size",)),
        ("accumulation", ("gradient_accumulation_steps",)),
    ):
        value = fields.positive(*names)
        if value is not None:
            foreign.batch[key] = value


def _plan(fields: Fields, foreign: Foreign) -> None:
    tp = fields.positive("tensor_model_parallel_size") or 1
    plan = foreign.plan
    plan["tp"] = tp
    plan["pp"] = fields.positive("pipeline_model_parallel_size") or 1
    plan["cp"] = fields.positive("context_parallel_size") or 1
    plan["ep"] = fields.positive("expert_model_parallel_size", "moe_expert_parallel_size") or 1
    plan["sequence_parallel"] = bool(fields.flag("sequence_parallel")) and tp > 1
    plan["zero_stage"] = _zero_stage(fields)
    plan["recompute"] = _recompute(fields, foreign)


def _zero_stage(fields: Fields) -> int:
    stage = fields.whole("zero_stage")
    distributed = fields.flag("use_distributed_optimizer")
    if stage is not None and 0 <= stage <= 3:
        return stage
    return 1 if distributed else 0


def _recompute(fields: Fields, foreign: Foreign) -> str:
    kind = fields.text("recompute_granularity", "activations_checkpoint_granularity")
    count = fields.whole("recompute_num_layers", "activations_checkpoint_num_layers")
    method = fields.text("recompute_method", "activations_checkpoint_method")
    if fields.flag("checkpoint_activations"):
        kind = kind or "full"
    if fields.flag("recompute_activations"):
        kind = kind or "selective"
    if kind == "full" and method == "block" and count is not None:
        foreign.not_modelled("recompute_method", "block", f"all layers recompute, not {count}")
    elif kind == "full" and method == "uniform" and count is not None and count > 1:
        foreign.not_modelled("recompute_num_layers", count, "one checkpoint a layer is kept")
    return kind if kind in ("full", "selective") else "none"


def _virtual_stages(fields: Fields, foreign: Foreign) -> None:
    pp, layers = foreign.plan["pp"], foreign.workload.get("layers")
    chunks = fields.positive(
        "virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank"
    )
    per_chunk = fields.positive("num_layers_per_virtual_pipeline_stage")
    if per_chunk is not None and layers and pp > 1:
        if layers % (pp * per_chunk):
            raise InputError(
                f"{foreign.file}: num_layers_per_virtual_pipeline_stage {per_chunk} does not "
                f"divide the {layers} layers on {pp} stages"
            )
        chunks = layers // (pp * per_chunk)
    if chunks and chunks > 1 and pp > 1:
        foreign.plan["vp"] = chunks


def _model(fields: Fields, foreign: Foreign, program: str) -> None:
    hidden = fields.positive("hidden_size")
    layers = fields.positive("num_layers", "encoder_num_layers")
    decoder = fields.positive("decoder_num_layers")
    seq = fields.positive("seq_length", "encoder_seq_length")
    fields.first("decoder_seq_length")
    is_encoder, is_t5 = "bert" in program, "t5" in program
    gated = bool(fields.first("swiglu", "gated_linear_unit")) or "swiglu" in str(
        fields.first("activation", "activation_func") or ""
    )
    workload = foreign.workload
    foreign.set_known(workload, {
        "hidden": hidden,
        "heads": fields.positive("num_attention_heads"),
        "kv_heads": _kv_heads(fields),
        "head_dim": fields.positive("kv_channels"),
        "ffn": _ffn(fields, hidden, gated),
        "vocab": _vocab(fields, foreign),
        "seq": seq,
        "precision": _precision(fields),
        "optimizer": _optimizer(fields),
    })  # fmt: skip
    if layers is not None and is_t5:
        workload |= {"enc_layers": layers, "dec_layers": decoder or layers}
    elif layers is not None:
        workload["layers"] = layers
    if hidden is not None:
        workload |= {
            "builder": "transformer",
            "arch": "bert" if is_encoder else "megatron gpt",
            "gated_mlp": gated,
            "causal": not is_encoder,
            "rotary": _has_rotary(fields),
            "dropout": (fields.number("hidden_dropout") or 0.1) > 0
            and fields.first("hidden_dropout") != 0,
            "tied_embeddings": _is_tied(fields),
        }
        if is_encoder:
            workload["mlm_predictions"] = "seq"
    _mixture(fields, foreign)


def _kv_heads(fields: Fields) -> int | None:
    groups = fields.positive("num_query_groups")
    return groups if fields.flag("group_query_attention") is not False else None


def _ffn(fields: Fields, hidden: int | None, gated: bool) -> int | None:
    ffn = fields.positive("ffn_hidden_size")
    if ffn is not None or hidden is None:
        return ffn
    # arguments.py: 4 h, or two thirds of it in multiples of 64 where the MLP is gated
    return int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden


def _vocab(fields: Fields, foreign: Foreign) -> int | None:
    padded = fields.positive("padded_vocab_size")
    size = fields.positive("vocab_size")
    kind = fields.text("tokenizer_type")
    if padded is not None:
        return padded
    if size is None and kind in _VOCABULARIES:
        size = _VOCABULARIES[kind]
        foreign.notes.append(f"vocabulary not stated: {size} of {kind} assumed")
    if size is None:
        return None
    step: int = (fields.positive("make_vocab_size_divisible_by") or _PADDED_TO) * foreign.plan["tp"]
    return -(-size // step) * step


def _precision(fields: Fields) -> str | None:
    """Compute format of flags, or of a trainer's precision ("bf16-mixed", 16, "bf16_mixed")."""
    eight = fields.first("fp8", "fp8_format", "fp8_hybrid", "fp8_e4m3")
    four = fields.first("fp4", "fp4_format")
    recipe = str(fields.first("fp8_recipe", "mixed_precision", "precision") or "").lower()
    if four:
        return "nvfp4"
    if eight not in (None, False) or "fp8" in recipe or "mxfp8" in recipe:
        return "mxfp8" if "mxfp8" in recipe else "fp8"
    if fields.flag("bf16") or "bf16" in recipe:
        return "bf16"
    if fields.flag("fp16") or recipe.startswith(("16", "fp16")):
        return "fp16"
    if recipe.startswith(("32", "fp32")):
        return "tf32"
    return None


def _optimizer(fields: Fields) -> str | None:
    name = fields.text("optimizer")
    return None if name is None else {"sgd": "sgd_momentum"}.get(name.lower(), name.lower())


def _has_rotary(fields: Fields) -> bool:
    kind = str(fields.first("position_embedding_type") or "")
    return "rope" in kind or bool(fields.first("use_rotary_position_embeddings"))


def _is_tied(fields: Fields) -> bool:
    shared = fields.flag("share_embeddings_and_output_weights")
    if shared is not None:
        return shared
    return not fields.flag("untie_embeddings_and_output_weights")


def _mixture(fields: Fields, foreign: Foreign) -> None:
    experts = fields.positive("num_experts", "num_moe_experts")
    width = fields.positive("moe_ffn_hidden_size")
    shared = fields.positive("moe_shared_expert_intermediate_size")
    top_k = fields.positive("moe_router_topk")
    frequency = fields.first("moe_layer_freq")
    workload = foreign.workload
    _latent(fields, foreign)
    if experts is None or experts < 2:
        return
    dense_width = workload.get("ffn")
    width = width or dense_width
    workload |= {"num_experts": experts, "top_k": top_k or 2}
    if width:
        workload["ffn"] = width
        if shared is not None:
            workload["shared_experts"] = max(1, round(shared / width))
    dense = _leading_dense(frequency, foreign)
    if dense and dense_width:
        workload |= {"dense_layers": dense, "dense_ffn": dense_width}


def _leading_dense(frequency: Any, foreign: Foreign) -> int:
    """Dense layers in front of `moe_layer_freq`: 1, or a pattern such as ([0]*3+[1]*58)."""
    if frequency in (None, 1):
        return 0
    text = re.sub(r"\s", "", str(frequency))
    pattern = re.fullmatch(r"\(?\[0\]\*(\d+)\+\[1\]\*\d+\)?", text)
    if pattern:
        return int(pattern.group(1))
    flags = re.fullmatch(r"\[((?:[01],)*[01])\]", text)
    if flags:
        bits = flags.group(1).replace(",", "")
        leading = len(bits) - len(bits.lstrip("0"))
        if "0" not in bits[leading:]:
            return leading
    foreign.not_modelled("moe_layer_freq", frequency, "every layer is taken as a mixture")
    return 0


def _latent(fields: Fields, foreign: Foreign) -> None:
    mtp = fields.whole("mtp_num_layers")
    if mtp:
        foreign.workload["mtp_layers"] = mtp
    if not fields.flag("multi_latent_attention"):
        return
    # defaults of MLATransformerConfig
    foreign.workload |= {
        "kv_lora_rank": fields.positive("kv_lora_rank") or 512,
        "qk_nope_dim": fields.positive("qk_head_dim") or 128,
        "qk_rope_dim": fields.positive("qk_pos_emb_head_dim") or 64,
        "v_dim": fields.positive("v_head_dim") or 128,
    }
    foreign.set_known(foreign.workload, {"q_lora_rank": fields.positive("q_lora_rank")})
    for name in ("kv_heads", "head_dim"):
        foreign.workload.pop(name, None)


def _stack(fields: Fields, foreign: Foreign, is_complete: bool) -> None:
    stack = foreign.stack
    stack["name"] = "megatron_core"
    kernel = _attention_kernel(fields)
    for key, names in _SWITCHES.items():
        stated = fields.flag(*names)
        if stated is not None or is_complete:
            stack[key] = bool(stated)
    hides = fields.flag("tp_comm_overlap", "ub_tp_comm_overlap")
    if hides is False or (hides is None and is_complete):
        stack["tp_hidden_fraction"] = 0.0
    bucket = fields.positive("ddp_bucket_size", "bucket_size")
    graphs = fields.first("enable_cuda_graph", "external_cuda_graph", "cuda_graph_impl")
    clip = fields.number("clip_grad", "gradient_clip_val")
    foreign.set_known(stack, {
        "attention_kernel": kernel,
        "gradient_dtype": _gradient_dtype(fields, foreign),
        "gradient_bucket_bytes": None if bucket is None else 4.0 * bucket,  # fp32 elements
        "has_cuda_graphs": True if graphs not in (None, False, "none") else None,
        "clips_gradients": None if clip is None else clip > 0,
    })  # fmt: skip


_SWITCHES = {
    "overlaps_gradients": ("overlap_grad_reduce", "overlap_grad_sync"),
    "overlaps_parameter_gather": ("overlap_param_gather", "overlap_param_sync"),
}


def _attention_kernel(fields: Fields) -> str | None:
    flash = fields.first("use_flash_attn", "use_flash_attn_v2", "use_flash_attention")
    backend = str(fields.first("attention_backend") or "").lower().rsplit(".", 1)[-1]
    known = {"unfused": "unfused", "local": "unfused", "flash": "flash2", "fused": "cudnn"}
    return known.get(backend, "flash2" if flash else None)


def _gradient_dtype(fields: Fields, foreign: Foreign) -> str | None:
    """Format of gradients on the wire: bf16 runs reduce fp32, fp16 runs fp16, unless told."""
    wide = fields.flag("accumulate_allreduce_grads_in_fp32", "grad_reduce_in_fp32")
    stated = fields.text("grad_sync_dtype", "grad_reduce_dtype")
    if stated in ("bf16", "fp16", "fp32"):
        return stated
    if fields.flag("grad_reduce_in_bf16") or wide is False:
        return "bf16"
    if wide:
        return "fp32"
    return "fp16" if foreign.workload.get("precision") == "fp16" else None
