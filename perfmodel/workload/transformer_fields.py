"""Reads transformer dimensions as published runs and RUN files spell them."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from perfmodel.errors import InputError
from perfmodel.workload.transformer import LatentAttention, Mixture, TransformerModel

# Sentences of WMT English-German average 27-30 subword tokens (shared vocabulary of 33k); used
# only where a batch is stated in tokens and the length is not published.
_TRANSLATION_LENGTH = 30
# GPT-style heads are 64 to 128 wide; larger models use 128.
_USUAL_HEAD_DIM = 128

_KNOWN = {
    "arch", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "seq", "gated_mlp",
    "enc_layers", "dec_layers", "mlm_predictions", "mem_len", "adaptive_softmax_cutoffs",
    "num_experts", "top_k", "dense_layers", "dense_ffn", "shared_experts", "mtp_layers",
    "lora_rank", "sliding_window", "sliding_every", "attention_kernel", "params", "q_lora_rank",
    "kv_lora_rank", "qk_nope_dim", "qk_rope_dim", "v_dim", "classes", "standard_definition",
    "tied_embeddings", "causal", "rotary", "dropout",
}  # fmt: skip


def transformer_from_fields(
    fields: Mapping[str, Any], *, lora: bool = False
) -> tuple[TransformerModel, tuple[str, ...]]:
    """Model and notes (assumptions, unknown keys) from the `model` object of a published run.

    Raises
    ------
    InputError
        If a dimension that decides the time is missing or impossible.
    """
    notes = [f"model field {key!r} is not known and ignored" for key in fields if key not in _KNOWN]
    get = _Getter(fields)
    arch = str(fields.get("arch", "")).lower()
    is_bert = "bert" in arch or fields.get("mlm_predictions") is not None
    is_llama = any(word in arch for word in ("llama", "qwen", "mistral", "deepseek", "gpt-oss"))
    is_llama = bool(fields.get("rotary", is_llama or bool(fields.get("gated_mlp"))))
    hidden = get.whole("hidden")
    heads = get.optional("heads")
    if heads is None:
        heads = max(1, hidden // _USUAL_HEAD_DIM)
        notes.append(f"heads not stated: {heads} of width {_USUAL_HEAD_DIM} assumed")
    seq = get.optional("seq")
    if seq is None:
        seq = _TRANSLATION_LENGTH
        notes.append(f"sequence length not stated: {seq} tokens assumed")
    classes = get.optional("classes")
    if classes is None and is_bert and not fields.get("mlm_predictions"):
        classes = 2  # question answering and classification fine-tuning: two outputs a token
    model = TransformerModel(
        layers=get.whole("dec_layers" if fields.get("dec_layers") else "layers"),
        encoder_layers=get.optional("enc_layers") or 0,
        hidden=hidden,
        heads=heads,
        kv_heads=get.optional("kv_heads"),
        head_dim=get.optional("head_dim"),
        ffn=get.whole("ffn"),
        vocab=get.whole("vocab"),
        seq=seq,
        gated_mlp=bool(fields.get("gated_mlp")),
        is_causal=bool(fields.get("causal", not is_bert)),
        has_dropout=bool(fields.get("dropout", not is_llama and "mpt" not in arch)),
        has_bias=not is_llama,
        has_rotary=is_llama,
        ties_embeddings=bool(fields.get("tied_embeddings", not is_llama)),
        mlm_predictions=get.optional("mlm_predictions"),
        classes=classes,
        mem_len=get.optional("mem_len") or 0,
        adaptive_softmax_cutoffs=_cutoffs(fields.get("adaptive_softmax_cutoffs")),
        mixture=_mixture(get),
        latent=_latent(get),
        mtp_layers=get.optional("mtp_layers") or 0,
        sliding_window=get.optional("sliding_window"),
        sliding_every=get.optional("sliding_every") or 1,
        lora_rank=(get.optional("lora_rank") or _DEFAULT_LORA_RANK) if lora else None,
    )
    return model, tuple(notes)


# NVIDIA's Megatron-Bridge recipes attach adapters of rank 32 where none is stated (its docs).
_DEFAULT_LORA_RANK = 32


class _Getter:
    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = fields

    def optional(self, name: str) -> int | None:
        value = self.fields.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise InputError(f"model.{name} {value!r} is not a number")
        if value != int(value):
            raise InputError(f"model.{name} {value!r} is not a whole number")
        return int(value)

    def whole(self, name: str) -> int:
        value = self.optional(name)
        if value is None:
            raise InputError(f"model.{name} is missing; a transformer cannot be costed without it")
        return value


def _mixture(get: _Getter) -> Mixture | None:
    experts = get.optional("num_experts")
    if not experts or experts < 2:
        return None
    return Mixture(
        num_experts=experts,
        top_k=get.whole("top_k"),
        ffn=get.whole("ffn"),
        shared_experts=get.optional("shared_experts") or 0,
        dense_layers=get.optional("dense_layers") or 0,
        dense_ffn=get.optional("dense_ffn") or 0,
    )


def _latent(get: _Getter) -> LatentAttention | None:
    rank = get.optional("kv_lora_rank")
    if not rank:
        return None
    return LatentAttention(
        q_lora_rank=get.optional("q_lora_rank"),
        kv_lora_rank=rank,
        qk_nope_dim=get.whole("qk_nope_dim"),
        qk_rope_dim=get.whole("qk_rope_dim"),
        v_dim=get.whole("v_dim"),
    )


def _cutoffs(value: object) -> tuple[int, ...]:
    if not value:
        return ()
    if not isinstance(value, list | tuple) or not all(type(v) is int and v > 0 for v in value):
        raise InputError(f"model.adaptive_softmax_cutoffs {value!r} is not a list of indices")
    return tuple(value)
