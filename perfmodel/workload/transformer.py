"""Transformers: GPT, Llama, BERT, encoder-decoder, Transformer-XL, mixtures of experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import log

from perfmodel.errors import InputError
from perfmodel.workload.records import (
    AttentionCore,
    Block,
    Experts,
    Linear,
    Loss,
    Operator,
    Pointwise,
    Split,
    TokenEmbedding,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention: queries, keys and values through low-rank projections."""

    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_dim: int
    qk_rope_dim: int
    v_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Mixture of experts: `num_experts` MLPs of width `ffn`, each token visits `top_k`."""

    num_experts: int
    top_k: int
    ffn: int
    shared_experts: int = 0
    dense_layers: int = 0  # leading layers with a dense MLP
    dense_ffn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerModel:
    """Dimensions of a transformer; sequence lengths are tokens of one sample."""

    layers: int  # decoder-only or encoder-only layers; decoder layers of an encoder-decoder
    hidden: int
    heads: int
    ffn: int
    vocab: int
    seq: float
    kv_heads: int | None = None
    head_dim: int | None = None
    gated_mlp: bool = False
    is_causal: bool = True
    has_dropout: bool = True
    has_bias: bool = True
    has_rotary: bool = False
    ties_embeddings: bool = True
    encoder_layers: int = 0
    mlm_predictions: int | None = None  # masked positions whose logits are computed (BERT)
    classes: int | None = None  # a classification head instead of the vocabulary
    mem_len: int = 0  # cached keys of the previous segment (Transformer-XL)
    adaptive_softmax_cutoffs: tuple[int, ...] = ()
    mixture: Mixture | None = None
    latent: LatentAttention | None = None
    mtp_layers: int = 0
    sliding_window: int | None = None
    sliding_every: int = 1
    lora_rank: int | None = None

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "ffn", "vocab", "seq"):
            value = getattr(self, name)
            if not 0 < value < 1e9:
                raise InputError(f"{name} {value!r} is not a positive number below 1e9")
        if self.head_dim is None and self.latent is None and self.hidden % self.heads:
            raise InputError(f"hidden {self.hidden} is not a multiple of heads {self.heads}")
        if self.num_kv_heads > self.heads or self.heads % self.num_kv_heads:
            raise InputError(f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}")

    @property
    def family(self) -> str:
        """Always transformer."""
        return "transformer"

    @property
    def num_kv_heads(self) -> int:
        """Key and value heads; as many as query heads unless grouped."""
        return self.kv_heads or self.heads

    @property
    def dim_per_head(self) -> int:
        """Width of a query head."""
        if self.latent is not None:
            return self.latent.qk_nope_dim + self.latent.qk_rope_dim
        return self.head_dim or self.hidden // self.heads

    def blocks(self) -> tuple[Block, ...]:
        """Embedding, layers (equal neighbours merged), head; in forward order."""
        blocks = [Block(name="embedding", operators=tuple(self._embedding()))]
        if self.encoder_layers:
            encoder = (*self._attention("self", is_causal=False), *self._dense_mlp(self.ffn))
            blocks.append(
                Block(name="encoder", operators=encoder, repeat=self.encoder_layers, is_layer=True)
            )
        blocks.extend(self._layer_blocks())
        blocks.append(Block(name="head", operators=tuple(self._head())))
        return tuple(blocks)

    def layer_kinds(self) -> tuple[Block, ...]:
        """One Block of repeat 1 for every layer, in order."""
        return tuple(
            Block(name=b.name, operators=b.operators, is_layer=True)
            for b in self.blocks()
            if b.is_layer
            for _ in range(b.repeat)
        )

    def _layer_blocks(self) -> Iterator[Block]:
        windowed = self.layers // self.sliding_every if self.sliding_window else 0
        dense = self.mixture.dense_layers if self.mixture else 0
        if dense:
            assert self.mixture is not None
            operators = (*self._attention("self"), *self._dense_mlp(self.mixture.dense_ffn))
            yield Block(name="dense_layer", operators=operators, repeat=dense, is_layer=True)
        full = self.layers - dense - windowed
        if full > 0:
            yield Block(
                name="layer",
                operators=(*self._attention("self"), *self._cross(), *self._mlp()),
                repeat=full,
                is_layer=True,
            )
        if windowed:
            operators = (*self._attention("self", window=self.sliding_window), *self._mlp())
            yield Block(name="window_layer", operators=operators, repeat=windowed, is_layer=True)
        if self.mtp_layers:
            join = Linear(
                name="mtp_projection",
                rows=self.seq,
                in_features=2 * self.hidden,
                out_features=self.hidden,
            )
            operators = (join, *self._attention("self"), *self._mlp(), *self._logits())
            yield Block(name="mtp_layer", operators=operators, repeat=self.mtp_layers)

    def _embedding(self) -> Iterator[Operator]:
        yield TokenEmbedding(
            name="word_embedding",
            rows=self.seq,
            vocab=self.vocab,
            dim=self.hidden,
            is_tied=self.ties_embeddings,
        )
        # position add and dropout; the gradient passes through once
        yield Pointwise(
            name="embedding_sum",
            op="residual",
            rows=self.seq,
            width=self.hidden,
            forward_passes=5.5 if self.has_dropout else 3.0,
            backward_passes=2.5,
        )

    def _norm(self, name: str) -> Pointwise:
        # forward: read, write; backward: read input, gradient, statistics twice; write gradient
        return Pointwise(
            name=name,
            op="rms_norm" if self.has_rotary else "layer_norm",
            rows=self.seq,
            width=self.hidden,
            forward_passes=2.0,
            backward_passes=5.0,
            num_parameters=self.hidden * (1 if self.has_rotary else 2),
        )

    def _residual(self, name: str) -> Pointwise:
        # dropout reads, writes and keeps a mask (half a pass); the sum reads two, writes one
        dropout = 2.5 if self.has_dropout else 0.0
        return Pointwise(
            name=name,
            op="residual",
            rows=self.seq,
            width=self.hidden,
            forward_passes=dropout + 3.0,
            backward_passes=dropout + 3.0,
            num_kernels=2 if self.has_dropout else 1,
        )

    def _linear(self, name: str, inner: int, outer: int, split: Split) -> Iterator[Operator]:
        frozen = self.lora_rank is not None
        yield Linear(
            name=name,
            rows=self.seq,
            in_features=inner,
            out_features=outer,
            split=split,
            has_bias=self.has_bias,
            is_trainable=not frozen,
        )
        if self.lora_rank is not None:
            rank = self.lora_rank
            yield Linear(
                name=f"{name}_lora_a",
                rows=self.seq,
                in_features=inner,
                out_features=rank,
                has_bias=False,
                split=Split.ROW if split is Split.ROW else Split.NONE,
            )
            yield Linear(
                name=f"{name}_lora_b",
                rows=self.seq,
                in_features=rank,
                out_features=outer,
                has_bias=False,
                split=Split.COLUMN if split is Split.COLUMN else Split.NONE,
            )

    def _attention(
        self, name: str, *, is_causal: bool | None = None, window: int | None = None
    ) -> Iterator[Operator]:
        causal = self.is_causal if is_causal is None else is_causal
        yield self._norm(f"{name}_norm")
        if self.latent is not None:
            yield from self._latent_projections(self.latent)
        else:
            width = (self.heads + 2 * self.num_kv_heads) * self.dim_per_head
            yield from self._linear(f"{name}_qkv", self.hidden, width, Split.COLUMN)
            # splitting and transposing into heads, and back
            yield self._inner(f"{name}_split", "transpose", width, 2.0, 2.0)
        if self.has_rotary:
            width = (self.heads + self.num_kv_heads) * self.dim_per_head
            yield self._inner(f"{name}_rotary", "rotary", width, 2.0, 2.0)
        value_dim = self.latent.v_dim if self.latent else self.dim_per_head
        yield AttentionCore(
            name=f"{name}_attention",
            heads=self.heads,
            kv_heads=self.num_kv_heads if self.latent is None else self.heads,
            head_dim=self.dim_per_head,
            value_dim=value_dim,
            query_len=self.seq,
            key_len=self.seq + self.mem_len,
            is_causal=causal,
            window=window,
            has_dropout=self.has_dropout,
        )
        yield from self._linear(f"{name}_out", self.heads * value_dim, self.hidden, Split.ROW)
        yield self._residual(f"{name}_residual")

    def _inner(self, name: str, op: str, width: int, forward: float, backward: float) -> Pointwise:
        return Pointwise(
            name=name,
            op=op,
            rows=self.seq,
            width=width,
            forward_passes=forward,
            backward_passes=backward,
            split=Split.COLUMN,
        )

    def _latent_projections(self, latent: LatentAttention) -> Iterator[Operator]:
        q_width = self.heads * self.dim_per_head
        if latent.q_lora_rank:
            yield from self._linear("q_down", self.hidden, latent.q_lora_rank, Split.NONE)
            yield from self._linear("q_up", latent.q_lora_rank, q_width, Split.COLUMN)
        else:
            yield from self._linear("q", self.hidden, q_width, Split.COLUMN)
        kv_down = latent.kv_lora_rank + latent.qk_rope_dim
        yield from self._linear("kv_down", self.hidden, kv_down, Split.NONE)
        kv_up = self.heads * (latent.qk_nope_dim + latent.v_dim)
        yield from self._linear("kv_up", latent.kv_lora_rank, kv_up, Split.COLUMN)
        # heads assembled from a rotary and a plain part: concatenation of q and k
        yield self._inner("latent_concat", "concat", 2 * q_width, 2.0, 2.0)

    def _cross(self) -> Iterator[Operator]:
        if self.encoder_layers:
            yield from self._attention("cross", is_causal=False)

    def _mlp(self) -> Iterator[Operator]:
        if self.mixture is None:
            yield from self._dense_mlp(self.ffn)
        else:
            yield from self._expert_mlp(self.mixture)

    def _dense_mlp(self, ffn: int) -> Iterator[Operator]:
        yield self._norm("mlp_norm")
        yield from self._linear(
            "mlp_up", self.hidden, ffn * (2 if self.gated_mlp else 1), Split.COLUMN
        )
        yield self._activation(ffn)
        yield from self._linear("mlp_down", ffn, self.hidden, Split.ROW)
        yield self._residual("mlp_residual")

    def _activation(self, ffn: int) -> Pointwise:
        # gelu: read, write; backward reads input and gradient, writes one. Gated, eager: silu, then
        # the product; backward of both
        forward, backward = (5.0, 8.0) if self.gated_mlp else (2.0, 3.0)
        op = "swiglu" if self.gated_mlp else "gelu"
        return self._inner("mlp_activation", op, ffn, forward, backward)

    def _expert_mlp(self, mixture: Mixture) -> Iterator[Operator]:
        yield self._norm("mlp_norm")
        yield Linear(
            name="router",
            rows=self.seq,
            in_features=self.hidden,
            out_features=mixture.num_experts,
            has_bias=False,
        )
        if mixture.shared_experts:
            width = mixture.shared_experts * mixture.ffn
            up = width * (2 if self.gated_mlp else 1)
            yield from self._linear("shared_up", self.hidden, up, Split.COLUMN)
            yield self._activation(width)
            yield from self._linear("shared_down", width, self.hidden, Split.ROW)
        yield Experts(
            name="experts",
            rows=self.seq,
            hidden=self.hidden,
            ffn=mixture.ffn,
            num_experts=mixture.num_experts,
            top_k=mixture.top_k,
            is_gated=self.gated_mlp,
        )
        # permutation of the routed tokens and back, and the activation between the two products
        yield self._inner("permute", "permute", mixture.top_k * self.hidden, 4.0, 4.0)
        yield self._activation(mixture.top_k * mixture.ffn)
        yield self._residual("mlp_residual")

    def _head(self) -> Iterator[Operator]:
        yield self._norm("final_norm")
        if self.classes is not None:
            yield Linear(
                name="classifier",
                rows=self.seq,
                in_features=self.hidden,
                out_features=self.classes,
                is_logits=True,
            )
            yield Loss(name="loss", rows=self.seq, classes=self.classes)
            return
        yield from self._logits()

    def _logits(self) -> Iterator[Operator]:
        rows = self.seq if self.mlm_predictions is None else self.mlm_predictions
        if self.mlm_predictions is not None:
            # masked-language-model transform: one h x h product before the vocabulary
            yield Linear(
                name="mlm_transform", rows=rows, in_features=self.hidden, out_features=self.hidden
            )
        if self.adaptive_softmax_cutoffs:
            yield from self._adaptive_softmax(rows)
            return
        yield self._vocabulary("logits", rows, self.vocab, trainable=self.lora_rank is None)
        yield Loss(name="loss", rows=rows, classes=self.vocab)

    def _vocabulary(self, name: str, rows: float, classes: int, *, trainable: bool) -> Linear:
        return Linear(
            name=name,
            rows=rows,
            in_features=self.hidden,
            out_features=classes,
            split=Split.VOCAB,
            has_bias=False,
            is_logits=True,
            is_trainable=trainable,
        )

    def _adaptive_softmax(self, rows: float) -> Iterator[Operator]:
        cutoffs = (*self.adaptive_softmax_cutoffs, self.vocab)
        head = cutoffs[0] + len(cutoffs) - 1
        yield self._vocabulary("adaptive_head", rows, head, trainable=True)
        yield Loss(name="adaptive_head_loss", rows=rows, classes=head)
        for low, high in pairwise(cutoffs):
            share = _zipf_mass(low, high, self.vocab)
            yield self._vocabulary(f"adaptive_{low}", rows * share, high - low, trainable=True)
            yield Loss(name=f"adaptive_{low}_loss", rows=rows * share, classes=high - low)


def _zipf_mass(low: int, high: int, vocab: int) -> float:
    """Share of tokens ranked in [low, high) if frequencies fall as 1/rank (Zipf's law for text)."""
    harmonic = log(vocab) + 0.5772  # Euler's constant: sum of 1/rank up to vocab
    return log(high / low) / harmonic
