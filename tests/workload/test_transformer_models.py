"""Parameters and operations of transformers against published counts and closed forms."""

import pytest

from perfmodel.errors import InputError
from perfmodel.workload.flops import model_flops
from perfmodel.workload.transformer import TransformerModel
from perfmodel.workload.transformer_fields import transformer_from_fields

GPT3 = {
    "arch": "gpt", "layers": 96, "hidden": 12288, "heads": 96, "ffn": 49152, "vocab": 51200,
    "seq": 2048,
}  # fmt: skip
LLAMA3_8B = {
    "arch": "llama", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336,
    "vocab": 128256, "seq": 8192, "gated_mlp": True,
}  # fmt: skip
BERT_LARGE = {
    "arch": "bert-large", "layers": 24, "hidden": 1024, "heads": 16, "ffn": 4096, "vocab": 30522,
    "seq": 512, "mlm_predictions": 76,
}  # fmt: skip
DEEPSEEK_V3 = {
    "arch": "deepseek", "layers": 61, "hidden": 7168, "heads": 128, "ffn": 2048, "vocab": 129280,
    "seq": 4096, "gated_mlp": True, "num_experts": 256, "top_k": 8, "dense_layers": 3,
    "dense_ffn": 18432, "shared_experts": 1, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_dim": 128, "qk_rope_dim": 64, "v_dim": 128,
}  # fmt: skip


def model_of(fields: dict[str, object]) -> TransformerModel:
    return transformer_from_fields(fields)[0]


def num_parameters(model: TransformerModel) -> int:
    # a tied vocabulary is counted with the logits, where lowering charges its gradient
    return sum(block.num_parameters for block in model.blocks())


@pytest.mark.parametrize(
    ("fields", "billions", "tolerance"),
    [
        (GPT3, 174.6, 0.005),  # arXiv:2104.04473, table 1
        (LLAMA3_8B, 8.03, 0.005),  # the model card
        (BERT_LARGE, 0.336, 0.01),  # Devlin et al. print 340 M, checkpoints hold 336 M
        (DEEPSEEK_V3, 671, 0.01),  # arXiv:2412.19437, without multi-token prediction
    ],
)
def test_parameter_counts_equal_published_ones(fields, billions, tolerance):
    assert num_parameters(model_of(fields)) / 1e9 == pytest.approx(billions, rel=tolerance)


def test_flops_of_gpt_equal_the_closed_form_of_megatron():
    # 72 B s L h^2 (1 + s/6h + V/12Lh) without recomputation, causal attention counted in full there
    model = model_of(GPT3)
    s, h, layers, vocab = model.seq, model.hidden, model.layers, model.vocab
    causal = 72 * s * layers * h**2 * (1 + s / (12 * h) + vocab / (12 * layers * h))
    assert model_flops(model) == pytest.approx(causal, rel=1e-9)


def test_experts_count_only_those_a_token_visits():
    one = model_of({**DEEPSEEK_V3, "top_k": 1})
    eight = model_of(DEEPSEEK_V3)
    routed = 6 * eight.seq * 58 * 7 * 3 * eight.hidden * 2048
    assert model_flops(eight) - model_flops(one) == pytest.approx(routed)


def test_sliding_window_lowers_attention_only_in_its_layers():
    full = model_of({**LLAMA3_8B})
    half = model_of({**LLAMA3_8B, "sliding_window": 128, "sliding_every": 2})
    blocks = {b.name: b.repeat for b in half.blocks() if b.is_layer}
    assert blocks == {"layer": 16, "window_layer": 16}
    assert model_flops(half) < model_flops(full)


def test_lora_freezes_weights_and_adds_small_trained_ones():
    frozen, _ = transformer_from_fields(LLAMA3_8B, lora=True)
    plain = model_of(LLAMA3_8B)
    assert 2 / 3 < model_flops(frozen) / model_flops(plain) < 0.72


def test_encoder_decoder_has_cross_attention_in_the_decoder():
    model = model_of(
        {"enc_layers": 6, "dec_layers": 6, "hidden": 1024, "heads": 16, "ffn": 4096,
         "vocab": 33712, "seq": 32}
    )  # fmt: skip
    names = [o.name for b in model.blocks() for o in b.operators]
    assert names.count("cross_attention") == 1  # one block repeated six times
    # "Attention is all you need" prints 213 M for the big model
    assert num_parameters(model) / 1e6 == pytest.approx(213, rel=0.03)


def test_adaptive_softmax_computes_the_tail_for_few_tokens():
    fields = {"layers": 16, "hidden": 512, "heads": 8, "ffn": 2048, "vocab": 267735, "seq": 192}
    plain = model_of(fields)
    adaptive = model_of({**fields, "adaptive_softmax_cutoffs": [19997, 39997, 199997]})
    assert model_flops(adaptive) < 0.6 * model_flops(plain)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden": None}, "model.hidden is missing"),
        ({"layers": "many"}, "model.layers 'many' is not a number"),
        ({"layers": 0}, "layers 0 is not a positive number"),
        ({"heads": 7}, "hidden 12288 is not a multiple of heads 7"),
        ({"kv_heads": 5}, "not a multiple of kv_heads 5"),
        ({"layers": 2.5}, "not a whole number"),
        ({"vocab": float("nan")}, "not a number"),
        ({"num_experts": 8}, "model.top_k is missing"),
    ],
)
def test_impossible_dimensions_are_refused_by_name(change, words):
    with pytest.raises(InputError, match=words):
        transformer_from_fields({**GPT3, **change})


def test_unknown_fields_are_noted_and_missing_heads_assumed():
    model, notes = transformer_from_fields({**GPT3, "heads": None, "colour": "red"})
    assert model.heads == 96
    assert any("colour" in n for n in notes)
    assert any("heads not stated" in n for n in notes)
