"""What a stack says about recommenders, read from its options with documented defaults."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perfmodel.errors import InputError
from perfmodel.hardware.records import Dtype, Gpu
from perfmodel.plan.stack import Stack
from perfmodel.workload.records import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommenderSettings:
    """Options of recommender stacks; passes are reads plus writes of a tensor.

    Defaults describe an eager framework without fusion. Sources of the values of a stack are in
    its profile.
    """

    mlp_passes: float = 5.0  # over every MLP activation, forward and backward together
    interaction_passes: float = 8.2  # over the vectors that interact, both directions
    cross_passes: float = 10.0  # over the cross layer's width, both directions
    embedding_gradient_passes: float = 0.0  # gradients of lookups written out and read again
    casts_under_amp: bool = False  # weights, gradients and vectors change format in own kernels
    exchanges_fp32: bool = False  # vectors travel in fp32 whatever the compute format
    keeps_bottom_on_first_rank: bool = False  # on the global batch, when there are several ranks
    overlaps_exchange: bool = False  # vectors travel beside the bottom MLP
    exchanges_ids: bool = False  # ids arrive data-parallel and are sent to the tables' ranks
    has_own_exchange_lane: bool = False  # reductions do not queue behind vectors
    is_exchange_hierarchical: bool = False  # within nodes first, then between equal local ranks
    network_time_fraction: float = 1.0  # of NCCL's time across nodes, for a library's own transport
    copies_input: bool = True  # ids and dense features come from the host, prefetched
    id_bytes: float = 8.0
    updates_sorted: bool = False  # ids are sorted and de-duplicated before an update
    feature_device_s: float = 0.0  # small kernels for each feature that a rank holds
    lookup_device_s: float = 0.0  # further kernels, for each row looked up
    host_row_s: float = 0.0  # a row in host memory, gathered and updated by the CPU; 0: by the GPU
    feature_host_ops: float = 0.0  # operators dispatched for each feature of the model
    embedding_host_ops: float = 0.0  # operators dispatched for the embeddings as a whole
    dense_bytes_per_parameter: float = 0.0  # of the dense optimiser; 0: a fused kernel's
    captures_graph: bool = False
    runs_fp32_as_tf32: bool = False  # matrix products of fp32 tensors, where the GPU has tf32
    row_value_bytes: float = 4.0  # stored bytes of one value of a table

    @classmethod
    def of(cls, stack: Stack) -> RecommenderSettings:
        """Read the options of a stack; options of other kinds are left alone.

        Raises
        ------
        InputError
            If an option has the wrong type.
        """
        values: dict[str, float | str | bool] = {"captures_graph": stack.has_cuda_graphs}
        for name, kind in cls.__annotations__.items():
            if name not in stack.options:
                continue
            value = stack.options[name]
            if kind == "bool" and not isinstance(value, bool):
                raise InputError(f"stack option {name} {value!r} is not true or false")
            if kind == "float" and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise InputError(f"stack option {name} {value!r} is not a number")
            values[name] = value
        return cls(**values)  # type: ignore[arg-type]

    def effective_precision(self, precision: Precision, gpu: Gpu) -> Precision:
        """Formats that really run: frameworks may use tf32 for fp32 unless told otherwise."""
        has_tf32 = Dtype.TF32 in gpu.peak_flop_per_s
        if self.runs_fp32_as_tf32 and has_tf32 and precision.compute is Dtype.FP32:
            return replace(precision, compute=Dtype.TF32)
        return precision

    def exchange_dtype(self, precision: Precision) -> Dtype:
        """Format of embedding vectors on the wire."""
        return Dtype.FP32 if self.exchanges_fp32 else precision.activation

    def has_casts(self, precision: Precision) -> bool:
        """Whether tensors change format between master and compute precision."""
        return self.casts_under_amp and precision.activation.num_bytes < Dtype.FP32.num_bytes
