"""The Stack: how a framework executes a workload. Profiles live in `stacks/*.yaml`."""

from __future__ import annotations

from dataclasses import dataclass, field

from perfmodel.hardware.records import Dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What a software stack does; every field of a named profile has its source in the YAML.

    Traffic counts ("passes") are reads plus writes, forward and backward together.
    """

    name: str
    title: str
    year: int
    is_known: bool = True  # False: a generic profile of its year stands in
    # Kernels and fusion
    attention_kernel: str = "unfused"  # or flash1, flash2, flash3, triton_flash, cudnn
    unfused_attention_passes: float = 38.0  # over heads x seq x seq, activation bytes
    elementwise_passes: float = 57.0  # over tokens x hidden of a GPT layer with ffn = 4 hidden
    has_fused_rms_norm: bool = True  # one kernel; else a chain of fp32 operators
    logits_passes: float = 22.0  # over tokens x vocabulary, 2-byte units
    is_compiled: bool = False  # pointwise chains fused by a compiler
    has_cuda_graphs: bool = False
    # Host
    host_op_s: float = 10e-6  # one operator issued by the framework
    host_step_s: float = 0.0  # serial host work per iteration, the device idle
    moe_launches_per_expert: float = 25.0  # per local expert and layer, forward and backward
    deduplicates_dispatch: bool = False  # a token crosses once to each node or rank it visits
    # Data parallel
    gradient_bucket_bytes: float = 25 * 1024**2
    overlaps_gradients: bool = True  # reduction beside backward
    gradient_overlap_fraction: float = 1.0  # share of the reduction that is issued before it ends
    overlaps_parameter_gather: bool = False  # distributed optimiser: gather beside forward
    gradient_dtype: Dtype | None = None  # on the wire; None: that of the gradients
    clips_gradients: bool = False  # a norm over all gradients is waited for before the update
    # Sharded data parallel
    prefetches_gathers: bool = True
    gather_rate_fraction: float = 1.0  # of the collective's rate, for stacks that gather piecemeal
    update_broadcast_s_per_rank: float = 0.0
    # Tensor and pipeline parallel
    tp_hidden_fraction: float = 0.0  # of tensor-parallel traffic, behind compute
    overlaps_p2p: bool = False
    scatters_p2p: bool = True  # stages send 1/tp of the activations each (scatter-gather)
    # Optimiser
    optimizer_bytes_per_parameter: float = 28.0
    # Input
    input_samples_per_s_per_node: float | None = None  # None: unknown, never binds
    # Further settings of recommender and CNN stacks, by name
    options: dict[str, float | str | bool] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    log_sigma: float = 0.1  # extra spread of ln time when the profile is a guess
