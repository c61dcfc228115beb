"""The operator graph: what one replica of a model computes for one sample.

Amounts are per sample (a sequence, an image, a recommendation request); lowering multiplies by the
micro-batch and divides by what the plan splits. `rows` counts the vectors an operator works on for
one sample: tokens of a sequence, pixels of a feature map, 1 for a recommender's MLP.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from perfmodel.errors import InputError
from perfmodel.hardware.records import Dtype


class Split(StrEnum):
    """How tensor parallelism divides an operator."""

    NONE = "none"  # on every rank in full; divided along the sequence if sequence-parallel
    COLUMN = "column"  # output features divided
    ROW = "row"  # input features divided, the output is summed over ranks
    VOCAB = "vocab"  # vocabulary divided


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """y = x W: `rows` vectors of `in_features` to `out_features`."""

    name: str
    rows: float
    in_features: int
    out_features: int
    split: Split = Split.NONE
    has_bias: bool = True
    is_logits: bool = False  # the product with the vocabulary
    has_input_gradient: bool = True  # false for the first layer after the data
    is_trainable: bool = True  # false for frozen weights (LoRA): no weight gradient

    @property
    def num_parameters(self) -> int:
        """Weights and bias."""
        return self.out_features * (self.in_features + self.has_bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCore:
    """softmax(Q K^T) V of one sample; heads are divided by tensor parallelism."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    query_len: float
    key_len: float
    is_causal: bool
    window: int | None = None
    has_dropout: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointwise:
    """Bandwidth-bound operator over `rows` vectors of `width`.

    `forward_passes` and `backward_passes` count reads plus writes of such a tensor as eager
    kernels do them; a stack that fuses does fewer. `split` is NONE for what tensor parallelism
    replicates (norms, residuals) and COLUMN for what it divides (activations inside the MLP).
    """

    name: str
    op: str  # layer_norm, gelu, dropout, residual, softmax, batch_norm, relu, cast, concat …
    rows: float
    width: int
    forward_passes: float
    backward_passes: float
    split: Split = Split.NONE
    num_parameters: int = 0
    num_kernels: int = 1  # eager kernels forward


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture-of-experts MLP: every row goes to `top_k` of `num_experts` experts."""

    name: str
    rows: float
    hidden: int
    ffn: int
    num_experts: int
    top_k: int
    is_gated: bool

    @property
    def num_parameters(self) -> int:
        """Weights of all experts."""
        return self.num_experts * self.hidden * self.ffn * (3 if self.is_gated else 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEmbedding:
    """Rows gathered from a vocabulary table (dense training: the gradient is dense)."""

    name: str
    rows: float
    vocab: int
    dim: int
    is_tied: bool = False  # shares its weights with the logits

    @property
    def num_parameters(self) -> int:
        """Weights, 0 where they are counted elsewhere."""
        return 0 if self.is_tied else self.vocab * self.dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Softmax and cross entropy over `classes` for `rows` vectors, its logits GEMM left out."""

    name: str
    rows: float
    classes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2d:
    """Square 2-d convolution of one image."""

    name: str
    height: int
    width: int
    in_channels: int
    out_channels: int
    kernel: int
    stride: int = 1
    groups: int = 1
    has_input_gradient: bool = True

    @property
    def num_parameters(self) -> int:
        """Weights without bias."""
        return self.out_channels * self.in_channels // self.groups * self.kernel**2


Operator: TypeAlias = Linear | AttentionCore | Pointwise | Experts | TokenEmbedding | Loss | Conv2d


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """`repeat` equal stretches of operators in forward order, e.g. the layers of a transformer."""

    name: str
    operators: tuple[Operator, ...]
    repeat: int = 1
    is_layer: bool = False  # may be dealt out to pipeline stages, recomputed, wrapped by FSDP

    @property
    def num_parameters(self) -> int:
        """Parameters of all repeats."""
        return self.repeat * sum(getattr(o, "num_parameters", 0) for o in self.operators)


class Model(Protocol):
    """What a builder returns: dimensions that know their operator graph."""

    @property
    def family(self) -> str:
        """transformer, dlrm or cnn."""
        ...

    def blocks(self) -> tuple[Block, ...]:
        """The operator graph in forward order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Number formats of a training run.

    `compute` is that of matrix products; `activation` of tensors between operators; `master` of
    the weights the optimiser updates. `is_autocast`: weights live in `master` and are cast for
    every use (torch autocast, apex O1/O2), against weights kept in 16 bits (Megatron).
    """

    compute: Dtype
    activation: Dtype
    master: Dtype = Dtype.FP32
    is_autocast: bool = False

    @classmethod
    def of(cls, compute: Dtype, *, is_autocast: bool = False) -> Precision:
        """Usual companions of a compute format: 8- and 4-bit products keep bf16 activations."""
        if compute in (Dtype.FP8, Dtype.MXFP8, Dtype.NVFP4):
            return cls(compute=compute, activation=Dtype.BF16, is_autocast=is_autocast)
        if compute in (Dtype.FP32, Dtype.TF32):
            return cls(compute=compute, activation=Dtype.FP32)
        return cls(compute=compute, activation=compute, is_autocast=is_autocast)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model, its global batch in samples, number formats and optimiser."""

    name: str
    model: Model
    global_batch: float
    precision: Precision
    optimizer: str = "adam"
    throughput_unit: str = "samples/s"
    is_forward_backward_only: bool = False  # the timed span leaves the optimiser out
    filled_fraction: float = 1.0  # share of a padded sample that is computed

    def __post_init__(self) -> None:
        if not 0 < self.global_batch < 1e9:
            raise InputError(
                f"global_batch {self.global_batch} is not a positive number of samples below 1e9"
            )

    @property
    def num_parameters(self) -> int:
        """Parameters of the whole model."""
        return sum(b.num_parameters for b in self.model.blocks())
