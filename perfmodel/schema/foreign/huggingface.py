"""Hugging Face `config.json`: dimensions of a transformer.

Field names as the `transformers` library documents them for each model type.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from perfmodel.errors import InputError
from perfmodel.schema.document import read_document
from perfmodel.schema.foreign.fields import Fields, Foreign

# Model types by what their layers are; a type outside the lists is read like llama, with a warning.
_ENCODERS = {
    "bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "albert", "deberta",
    "deberta-v2", "mpnet", "modernbert", "megatron-bert", "ernie", "nomic_bert",
}  # fmt: skip
_SEQ_TO_SEQ = {"t5", "mt5", "umt5", "longt5", "bart", "mbart", "pegasus", "marian"}
_GPT = {"gpt2", "gpt_neo", "opt", "bloom", "mpt", "gpt_bigcode", "xglm", "openai-gpt"}
_ROTARY_PLAIN = {
    "gpt_neox", "gptj", "codegen", "falcon", "phi", "stablelm_plain", "starcoder2", "persimmon",
    "nemotron",
}  # fmt: skip
_GATED = {
    "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2",
    "gemma3", "gemma3_text", "phi3", "phimoe", "deepseek_v2", "deepseek_v3", "deepseek", "olmo",
    "olmo2", "olmoe", "cohere", "cohere2", "granite", "granitemoe", "internlm2", "yi", "baichuan",
    "stablelm", "gpt_oss", "glm", "glm4", "chatglm", "exaone", "smollm3", "ministral", "minicpm",
    "kimi_k2", "qwen", "internlm", "aquila", "arctic", "ernie4_5", "seed_oss", "helium",
}  # fmt: skip
_ALWAYS_TIED = {"gpt2", "opt", "bloom", "mpt", "falcon", "gemma", "gemma2", "gemma3", "gemma3_text"}

_HARMLESS = re.compile(
    r"(_name_or_path|architectures|auto_map|.*_token_id|.*token_id.*|.*dropout.*|.*pdrop|"
    r"init.*|embd_pdrop|.*initializer.*|.*_eps|.*epsilon|norm_eps|transformers_version|"
    r"use_cache|output_.*|pretraining_tp|rope_.*|rotary_.*|.*rope.*|partial_rotary_factor|"
    r"partial_rotary_dim|position_embedding_type|use_return_dict|return_dict|bos.*|eos.*|pad.*|"
    r"max_position_embeddings|n_positions|n_ctx|max_seq_len|max_sequence_length|seq_length|"
    r"task_specific_params|id2label|label2id|summary_.*|problem_type|finetuning_task|"
    r"attention_bias|mlp_bias|bias|.*_bias|use_bias|no_bias|qkv_bias|hidden_act.*|hidden_activation|"
    r"activation_function|activation|afn|dense_act_fn|scale_.*|reorder_and_upcast_attn|"
    r"resid_.*|attn_pdrop|layer_norm_.*|rms_norm_eps|embd_layer.*|apply_residual.*|"
    r"router_aux_loss_coef|router_z_loss.*|output_router_logits|aux_loss_alpha|seq_aux|"
    r"routed_scaling_factor|scoring_func|topk_method|topk_group|n_group|norm_topk_prob|"
    r"head_dtype|is_encoder_decoder|is_decoder|add_cross_attention|tf_legacy_loss|use_bfloat16|"
    r"torchscript|pruned_heads|chunk_size.*|gradient_checkpointing|model_max_length|"
    r"num_beams.*|length_penalty|max_length|min_length|no_repeat.*|early_stopping|do_sample|"
    r"temperature|top_p|top_k_sampling|repetition_penalty|diversity.*|encoder_no_.*|typical_p|"
    r"final_logit_softcapping|attn_logit_softcapping|query_pre_attn_scalar|use_qk_norm|"
    r"qk_layernorm|use_rms_norm|normalization.*|relative_attention_.*|decoder_start.*|"
    r"classifier_dropout|pooler_.*|new_decoder_architecture|alibi.*|multi_query|parallel_attn|"
    r"use_parallel_residual|hidden_dropout_prob|attention_probs.*|layernorm_.*|"
    r"cache_implementation|embedding_multiplier|residual_multiplier|attention_multiplier|"
    r"logits_scaling|logit_scale|clip_qkv|model_type|head_dim|ep_size|swiglu_limit|"
    r"experts_per_token|max_window_layers|attention_type|n_embed_positions|use_sliding_window|"
    r"type_vocab_size|dtype|torch_dtype|unk_index|sep_token|prefix|bad_words.*|"
    r"remove_invalid.*|forced_.*|suppress_tokens|begin_suppress.*|cross_attention_hidden_size|"
    r"use_mambapy|do_layer_norm_before|mm_tokens.*|sinusoidal.*|tie_weights_|.*_token_index|attn_implementation|_attn_implementation.*|_.*)"
)
_NOT_MODELLED = {
    r"quantization_config.*": "weights are taken in the training precision",
    r"vision_config.*|audio_config.*|image_.*|vision_.*|video_.*": "only the text model is counted",
    r"mlp_only_layers": "every layer is taken as a mixture",
    r"layerdrop|encoder_layerdrop|decoder_layerdrop": "every layer runs",
    r"cross_layer.*|num_kv_shared_layers": "every layer has its own keys and values",
    r"attention_window|block_sparse.*": "attention is taken as dense",
    r"embedding_size": "the factorised embedding is left out",
    r"num_hidden_groups|inner_group_num": "layers are taken as having weights of their own",
}


def read_huggingface(path: Path) -> Foreign:
    """Dimensions stated by a `config.json`.

    Raises
    ------
    InputError
        One sentence naming file and field, if it is no configuration of a transformer.
    """
    document = read_document(path).plain()
    if not isinstance(document, dict):
        raise InputError(f"{path}: is no config.json: it holds no named fields")
    foreign = Foreign(str(path))
    values = _text_part(document, foreign)
    fields = Fields(str(path), values)
    kind = str(values.get("model_type") or document.get("model_type") or "").lower()
    if not kind and "hidden_size" not in values and "n_embd" not in values:
        raise InputError(f"{path}: is no config.json of a transformer: it has no model_type")
    workload: dict[str, Any] = {"builder": "transformer", "arch": kind or "unknown"}
    workload.update(_dimensions(fields, kind, foreign))
    projected = fields.first("word_embed_proj_dim")
    if projected not in (None, workload["hidden"]):
        foreign.not_modelled("word_embed_proj_dim", projected, "the embedding is not projected")
    workload.update(_style(fields, values, kind, foreign))
    workload.update(_mixture(fields))
    for name in ("moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step"):
        step = fields.first(name)
        if step not in (None, 1):
            foreign.not_modelled(name, step, "every layer after the dense ones is a mixture")
    workload.update(_latent(fields))
    _windows(fields, values, workload, foreign)
    _head(values, kind, workload)
    _precision(fields, workload)
    foreign.workload = {k: v for k, v in workload.items() if v is not None}
    fields.warn_of(foreign, _NOT_MODELLED)
    fields.harmless(_HARMLESS)
    fields.report_rest(foreign)
    return foreign


def _text_part(document: dict[str, Any], foreign: Foreign) -> dict[str, Any]:
    """The language model of a configuration with several towers."""
    for key in ("text_config", "llm_config", "language_config", "thinker_config"):
        inner = document.get(key)
        if isinstance(inner, dict):
            towers = [k for k in document if k.endswith("_config") and k != key]
            if towers:
                foreign.warnings.append(
                    f"{foreign.file}: {', '.join(towers)} not modelled: only {key} is counted"
                )
            outer = {k: v for k, v in document.items() if not isinstance(v, dict)}
            return {
                **outer,
                **inner,
                "model_type": inner.get("model_type", outer.get("model_type")),
            }
    attention = document.get("attn_config")  # MPT's own section
    extra = {"num_kv_heads": attention.get("kv_n_heads")} if isinstance(attention, dict) else {}
    left_out = {
        "attn_config",
        *(k for k, v in document.items() if "rope" in k and isinstance(v, dict)),
    }
    return {**{k: v for k, v in document.items() if k not in left_out}, **extra}


def _dimensions(fields: Fields, kind: str, foreign: Foreign) -> dict[str, Any]:
    hidden = fields.needed("hidden_size", "n_embd", "d_model", "dim", "n_embed")
    heads = fields.needed("num_attention_heads", "n_head", "n_heads", "num_heads",
                          "encoder_attention_heads")  # fmt: skip
    layers = fields.positive("num_hidden_layers", "n_layer", "n_layers", "num_layers",
                             "encoder_layers")  # fmt: skip
    if layers is None:
        raise InputError(f"{fields.file}: num_hidden_layers is missing")
    ratio = fields.positive("expansion_ratio", "ffn_hidden_ratio") or 4
    ffn = fields.positive("intermediate_size", "n_inner", "d_ff", "ffn_dim", "hidden_dim",
                          "ffn_hidden_size", "encoder_ffn_dim")  # fmt: skip
    if ffn is None:
        ffn = ratio * hidden
        foreign.notes.append(f"MLP width not stated: {ratio} x hidden assumed")
    out: dict[str, Any] = {
        "hidden": hidden,
        "heads": heads,
        "kv_heads": _kv_heads(fields),
        "head_dim": fields.positive("head_dim", "d_kv"),
        "ffn": ffn,
        "vocab": fields.needed("vocab_size", "n_vocab"),
        "limit": _limit(fields),
    }
    if kind in _SEQ_TO_SEQ:
        decoder = fields.positive("num_decoder_layers", "decoder_layers") or layers
        out |= {"enc_layers": layers, "dec_layers": decoder}
        for other in ("decoder_ffn_dim", "decoder_attention_heads"):
            fields.first(other)
    else:
        out["layers"] = layers
    return out


def _limit(fields: Fields) -> int | None:
    """Longest sequence the model takes: a default length, no dimension."""
    value = fields.first("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
    return value if isinstance(value, int) and value > 0 else None


def _kv_heads(fields: Fields) -> int | None:
    if fields.flag("multi_query") and not fields.flag("new_decoder_architecture"):
        fields.first("num_kv_heads", "num_key_value_heads")
        return 1
    return fields.positive("num_key_value_heads", "num_kv_heads", "multi_query_group_num")


def _style(fields: Fields, values: dict[str, Any], kind: str, foreign: Foreign) -> dict[str, Any]:
    """Gated MLP, rotary positions, masking, dropout and tied embeddings."""
    known = _ENCODERS | _SEQ_TO_SEQ | _GPT | _ROTARY_PLAIN | _GATED
    if kind not in known:
        foreign.warnings.append(
            f"{foreign.file}: model_type {kind!r} is not known: layers like llama's are assumed"
        )
    is_encoder, is_plain = kind in _ENCODERS, kind in _GPT
    act = str(fields.first("feed_forward_proj", "mlp_hidden_act") or "")
    gated = "gated" in act if kind in _SEQ_TO_SEQ else not (
        is_encoder or is_plain or kind in _ROTARY_PLAIN
    )  # fmt: skip
    tied = fields.flag("tie_word_embeddings")
    usual = kind in _ALWAYS_TIED or is_encoder or kind in _SEQ_TO_SEQ
    dropout = max(
        (v for k, v in values.items()
         if ("dropout" in k or k.endswith("pdrop")) and type(v) in (int, float)),
        default=0,
    )  # fmt: skip
    return {
        "gated_mlp": gated or kind == "modernbert",
        "rotary": not (is_encoder or is_plain or kind in _SEQ_TO_SEQ) or kind == "modernbert",
        "causal": not is_encoder,
        "dropout": dropout > 0,
        "tied_embeddings": usual if tied is None else tied,
    }


def _mixture(fields: Fields) -> dict[str, Any]:
    experts = fields.positive("num_local_experts", "n_routed_experts", "num_experts",
                              "moe_num_experts")  # fmt: skip
    top_k = fields.positive("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k",
                            "experts_per_token")  # fmt: skip
    width = fields.positive("moe_intermediate_size")
    shared = fields.whole("n_shared_experts", "num_shared_experts")
    shared_width = fields.positive("shared_expert_intermediate_size")
    dense = fields.whole("first_k_dense_replace")
    if experts is None or experts < 2:
        return {}
    if top_k is None:
        raise InputError(f"{fields.file}: num_experts_per_tok is missing beside {experts} experts")
    plain = fields.positive("intermediate_size", "ffn_dim", "n_inner") or 0
    width = width or plain
    if shared_width is not None and width:
        shared = max(1, round(shared_width / width))
    out: dict[str, Any] = {"num_experts": experts, "top_k": top_k, "ffn": width}
    if shared:
        out["shared_experts"] = shared
    if dense:
        out |= {"dense_layers": dense, "dense_ffn": plain}
    return out


def _latent(fields: Fields) -> dict[str, Any]:
    rank = fields.positive("kv_lora_rank")
    mtp = fields.whole("num_nextn_predict_layers")
    out: dict[str, Any] = {"mtp_layers": mtp or None}
    if rank is None:
        return out
    return out | {
        "kv_lora_rank": rank,
        "q_lora_rank": fields.positive("q_lora_rank"),
        "qk_nope_dim": fields.needed("qk_nope_head_dim"),
        "qk_rope_dim": fields.needed("qk_rope_head_dim"),
        "v_dim": fields.needed("v_head_dim"),
        "kv_heads": None,
        "head_dim": None,
    }


def _windows(
    fields: Fields, values: dict[str, Any], workload: dict[str, Any], foreign: Foreign
) -> None:
    """Sliding windows: of every layer, or of one in `sliding_every`."""
    window = fields.positive("sliding_window", "local_attention")
    pattern = fields.positive("sliding_window_pattern", "global_attn_every_n_layers",
                              "_sliding_window_pattern")  # fmt: skip
    kinds = fields.first("layer_types")
    if window is None or values.get("use_sliding_window") is False:
        return
    workload["sliding_window"] = window
    if isinstance(kinds, list) and kinds:
        slid = sum("sliding" in str(k) for k in kinds)
        every = len(kinds) / slid if slid else 0
        if not slid:
            del workload["sliding_window"]
        elif every == int(every):
            workload["sliding_every"] = int(every)
        else:
            foreign.not_modelled("layer_types", f"{slid} of {len(kinds)}", "all layers slide")
    elif pattern is not None and pattern > 2:
        share = f"{pattern - 1} of {pattern} layers"
        foreign.not_modelled("sliding_window_pattern", pattern, f"all layers slide, not {share}")
    elif pattern == 2 or workload["arch"] == "gemma2":
        workload["sliding_every"] = 2


def _head(values: dict[str, Any], kind: str, workload: dict[str, Any]) -> None:
    """What an encoder predicts, by its architecture: every token, or a few classes."""
    if kind not in _ENCODERS:
        return
    name = str((values.get("architectures") or [""])[0])
    workload["arch"] = kind if "bert" in kind else f"{kind} (bert)"
    if "MaskedLM" in name or "PreTraining" in name:
        workload["mlm_predictions"] = "seq"  # the library computes logits of every position
    else:
        workload["classes"] = max(2, len(values.get("id2label") or ()))


def _precision(fields: Fields, workload: dict[str, Any]) -> None:
    stored = str(fields.first("torch_dtype", "dtype") or "")
    if "bfloat16" in stored:
        workload["precision"] = "bf16"
    elif "float16" in stored:
        workload["precision"] = "fp16"
