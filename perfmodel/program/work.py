"""What a task does, in the terms that decide how long it takes. Cost models price these records.

Amounts may be plain numbers or float arrays of shape (scenarios,): a Program that differs between
scenarios only in amounts (a thousand sharding plans of one model) is lowered and priced once.
Records with array amounts are not hashable and are priced one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfmodel.hardware.records import Dtype, GroupShape

Amount: TypeAlias = float | NDArray[np.float64]


class Cause(StrEnum):
    """Why time is spent: the rows of a breakdown, and what calibration parameters act on."""

    GEMM = "gemm"
    ATTENTION = "attention"
    ELEMENTWISE = "elementwise"  # activations, norms, dropout, residuals, casts
    CONVOLUTION = "convolution"
    EMBEDDING = "embedding"
    INTERACTION = "interaction"
    LOGITS = "logits"  # softmax and loss over the vocabulary, without its GEMM
    EXPERTS = "experts"  # grouped GEMMs of a mixture of experts
    OPTIMIZER = "optimizer"
    TP_COMM = "tp_comm"
    CP_COMM = "cp_comm"
    EP_COMM = "ep_comm"
    PP_COMM = "pp_comm"
    DP_COMM = "dp_comm"  # gradient reduction
    SHARD_COMM = "shard_comm"  # parameter gathers of ZeRO and FSDP
    EMBEDDING_COMM = "embedding_comm"  # all-to-all and reduce-scatter of lookups
    COPY = "copy"
    HOST = "host"  # dispatch of operators
    HOST_STEP = "host_step"  # serial host work once per iteration
    INPUT = "input"  # input pipeline
    WAIT = "wait"  # for another rank
    IDLE = "idle"  # launch gaps


class Pass(StrEnum):
    """Direction of a kernel."""

    FORWARD = "fwd"
    BACKWARD = "bwd"
    OPTIMIZER = "optimizer"


class CollectiveKind(StrEnum):
    """Collectives in PyTorch's spelling."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    SEND_RECV = "send_recv"
    BARRIER = "barrier"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """`batch` products (m x k) @ (k x n) in `dtype`, accumulated in fp32."""

    m: Amount
    n: Amount
    k: Amount
    batch: Amount = 1.0
    dtype: Dtype = Dtype.BF16
    cause: Cause = Cause.GEMM


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Fused attention over `batch` sequences; one direction.

    `kernel` names the implementation ("flash1", "flash2", "flash3", "cudnn", "triton_flash", …):
    it decides the rate more than the GPU does. Unfused attention is lowered to Gemm and Memory.
    """

    batch: Amount
    heads: Amount
    kv_heads: Amount
    query_len: Amount
    key_len: Amount
    head_dim: float
    value_dim: float
    causal: bool
    window: float | None = None
    direction: Pass = Pass.FORWARD
    kernel: str = "flash2"
    dtype: Dtype = Dtype.BF16
    cause: Cause = Cause.ATTENTION


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bandwidth-bound kernels: `num_bytes` read plus written by `launches` kernels."""

    num_bytes: Amount
    launches: Amount = 1.0
    op: str = "elementwise"  # elementwise, layer_norm, softmax, dropout, concat, transpose, …
    dtype: Dtype = Dtype.BF16
    cause: Cause = Cause.ELEMENTWISE


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """2-d convolution of `batch` images, square kernel, one direction (dgrad and wgrad apart)."""

    batch: Amount
    height: int  # input
    width: int
    in_channels: int
    out_channels: int
    kernel: int
    stride: int
    groups: int = 1
    direction: Pass = Pass.FORWARD
    channels_last: bool = False
    dtype: Dtype = Dtype.FP16
    cause: Cause = Cause.CONVOLUTION


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingLookup:
    """One fused kernel over the tables of a rank: `lookups` rows gathered and pooled to `outputs`.

    Backward reads gradients, and reads, updates and writes the distinct rows. `unique_fraction` is
    the share of distinct rows among the lookups; `cached_fraction` the share served by L2.
    """

    lookups: Amount  # rows read, all tables, samples and pooling
    outputs: Amount  # pooled vectors written
    row_bytes: Amount  # stored bytes of one (shard of a) row
    output_bytes: Amount  # bytes of one pooled vector
    num_tables: Amount
    unique_fraction: Amount = 1.0
    cached_fraction: Amount = 0.0
    direction: Pass = Pass.FORWARD
    optimizer: str = "sgd"
    launches: Amount = 1.0
    cause: Cause = Cause.EMBEDDING


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedGemm:
    """`experts` local experts share `tokens` rows: each does (tokens/experts x k) @ (k x n)."""

    experts: Amount
    tokens: Amount
    n: Amount
    k: Amount
    dtype: Dtype = Dtype.BF16
    cause: Cause = Cause.EXPERTS


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStep:
    """Update of `parameters` values with `bytes_per_parameter` of traffic in `launches` kernels."""

    parameters: Amount
    bytes_per_parameter: float
    launches: Amount = 1.0
    cause: Cause = Cause.OPTIMIZER


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Host to device (`h2d`), back (`d2h`), or rows gathered from host memory (`uvm`)."""

    num_bytes: Amount
    direction: str = "h2d"
    pinned: bool = True
    cause: Cause = Cause.COPY


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective; `num_bytes` is the size column of nccl-tests.

    all_reduce, broadcast, reduce: bytes of the buffer of one rank; all_gather: of the gathered
    output; reduce_scatter: of the input; all_to_all: all a rank sends, its own part included;
    send_recv: the message. `max_rank_bytes` (all_to_all only) is what the busiest rank sends or
    receives in all when ranks are unequal; None means equal.
    """

    kind: CollectiveKind
    num_bytes: Amount
    group: GroupShape
    dtype: Dtype = Dtype.BF16
    max_rank_bytes: Amount | None = None
    cause: Cause = Cause.DP_COMM


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDispatch:
    """`num_ops` operators issued by one host thread of a framework, `op_s` seconds each."""

    num_ops: Amount
    op_s: float
    cause: Cause = Cause.HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """A duration known from elsewhere: serial host work, an input pipeline, a recorded kernel."""

    seconds: Amount
    cause: Cause = Cause.HOST_STEP


Work: TypeAlias = (
    Gemm | Attention | Memory | Convolution | EmbeddingLookup | GroupedGemm
    | OptimizerStep | Copy | Collective | HostDispatch | Fixed
)  # fmt: skip
