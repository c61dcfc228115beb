"""Work records of the parts of a recommender: MLPs, interaction, embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.hardware.records import Dtype
from perfmodel.program.recommender_settings import RecommenderSettings
from perfmodel.program.work import (
    Amount,
    Cause,
    Copy,
    EmbeddingLookup,
    Fixed,
    Gemm,
    Memory,
    OptimizerStep,
    Pass,
    Work,
)
from perfmodel.workload.recommender import Interaction, RecommenderModel
from perfmodel.workload.records import Linear, Precision

_FP32 = Dtype.FP32.num_bytes
_FORWARD_SHARE = 0.4  # of training passes: 2 of 5 (read, write; then two reads and a write)
# NCF's product of two vectors: read, read, write; backward reads three and writes two.
_GMF_PASSES = (3.0, 5.0)


def amount(values: NDArray[np.float64] | float) -> Amount:
    """One scenario becomes a plain number, so that the record can be hashed and shared."""
    array = np.asarray(values, dtype=float)
    return float(array.ravel()[0]) if array.size == 1 else array


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseWork:
    """Makes the work of MLPs and interaction for one model, precision and stack."""

    model: RecommenderModel
    precision: Precision
    settings: RecommenderSettings

    def mlp_forward(self, layers: Sequence[Linear], batch: float) -> list[Work]:
        """Products and activations, first layer first."""
        works: list[Work] = []
        for layer in layers:
            works.append(self._gemm(batch, layer.out_features, layer.in_features))
            works.append(self._activation(layer, batch, _FORWARD_SHARE))
        return works

    def mlp_backward(self, layers: Sequence[Linear], batch: float) -> list[Work]:
        """Activation gradients, then weight and input gradients, last layer first."""
        works: list[Work] = []
        for layer in reversed(layers):
            works.append(self._activation(layer, batch, 1 - _FORWARD_SHARE))
            works.append(self._gemm(layer.in_features, layer.out_features, batch))
            if layer.has_input_gradient:
                works.append(self._gemm(batch, layer.in_features, layer.out_features))
        return works

    def interaction(self, batch: float, direction: Pass) -> list[Work]:
        """The interaction of `batch` samples in one direction."""
        forward = direction is Pass.FORWARD
        share = _FORWARD_SHARE if forward else 1 - _FORWARD_SHARE
        model, passes = self.model, self.settings.interaction_passes
        if model.interaction is Interaction.DOT:
            # Outputs are read and written half as often as the vectors.
            elements = model.interaction_input_width * passes + model.top_input_width * passes / 2
            return [self._traffic(batch * share * elements, launches=2)]
        if model.interaction is Interaction.GMF_MLP:
            width = _GMF_PASSES[not forward] * model.tables[0].dim + 2.0 * model.top_input_width
            return [self._traffic(batch * width, launches=3)]
        concat = 2.0 * model.interaction_input_width  # read and write, either direction
        works: list[Work] = [self._traffic(batch * concat, launches=1)]
        if model.interact_stride > 1:
            works.append(self._traffic(batch * concat, launches=1))
        return works + self._cross(batch, direction, share)

    def _cross(self, batch: float, direction: Pass, share: float) -> list[Work]:
        works: list[Work] = []
        layers = self.model.cross_operators()
        for layer in layers:
            n, k = layer.out_features, layer.in_features
            if direction is Pass.FORWARD:
                works.append(self._gemm(batch, n, k))
            else:
                works += [self._gemm(batch, k, n), self._gemm(k, n, batch)]
        width = self.model.interaction_input_width * self.settings.cross_passes
        for _ in range(len(layers) // 2):
            works.append(self._traffic(batch * share * width, launches=2))
        return works

    def _gemm(self, m: float, n: float, k: float) -> Gemm:
        return Gemm(m=m, n=n, k=k, dtype=self.precision.compute)

    def _activation(self, layer: Linear, batch: float, share: float) -> Memory:
        passes = self.settings.mlp_passes * share
        elements = batch * layer.out_features
        return Memory(
            num_bytes=elements * passes * self.precision.activation.num_bytes,
            launches=max(1.0, round(passes / 2)),
            op="relu",
            dtype=self.precision.activation,
        )

    def _traffic(self, elements: float, *, launches: float) -> Memory:
        return Memory(
            num_bytes=elements * self.precision.activation.num_bytes,
            launches=launches,
            op="interaction",
            dtype=self.precision.activation,
            cause=Cause.INTERACTION,
        )

    def update(self, parameters: Amount, optimizer_bytes: float) -> list[Work]:
        """Optimiser step over dense parameters, casts of mixed precision included."""
        works: list[Work] = [
            OptimizerStep(parameters=parameters, bytes_per_parameter=optimizer_bytes)
        ]
        if self.settings.has_casts(self.precision):
            # Unscale gradients (read and write fp32) and make 16-bit weights (4 read, 2 written).
            works.append(cast(parameters * (2 * _FP32 + _FP32 + 2)))
        return works


def cast(num_bytes: Amount) -> Memory:
    """A change of format."""
    return Memory(num_bytes=num_bytes, launches=1.0, op="cast", dtype=Dtype.FP32)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingWork:
    """Makes the embedding work of one rank; `loads` are columns of `RankLoads.select`."""

    loads: dict[str, NDArray[np.float64]]
    precision: Precision
    settings: RecommenderSettings
    optimizer: str
    writes_compute_dtype: bool  # the lookup kernel casts its vectors itself

    def forward(self) -> list[Work]:
        """Lookups of sharded rows, of copied rows and of rows in host memory."""
        works = [*self._lookups(Pass.FORWARD), *self._host_rows(Pass.FORWARD)]
        if self._has("output_elements") and self._casts_vectors:
            works.append(cast(self._amount("output_elements", _FP32 + self._vector_bytes)))
        return works

    def backward(self) -> list[Work]:
        """Gradients of the rows and their update."""
        works: list[Work] = []
        if self._has("output_elements") and self._casts_vectors:
            # Back to fp32, and unscaled in place.
            width = _FP32 + self._vector_bytes + 2 * _FP32
            works.append(cast(self._amount("output_elements", width)))
        passes = self.settings.embedding_gradient_passes
        if passes and self._has("elements"):
            extra = self._amount("elements", passes * _FP32)
            works.append(
                Memory(num_bytes=extra, op="gradient", dtype=Dtype.FP32, cause=Cause.EMBEDDING)
            )
        works += [*self._lookups(Pass.BACKWARD), *self._host_rows(Pass.BACKWARD)]
        return [*works, *self._small_kernels()]

    @property
    def _casts_vectors(self) -> bool:
        return self.settings.has_casts(self.precision) and not self.writes_compute_dtype

    @property
    def _vector_bytes(self) -> float:
        return self.precision.activation.num_bytes

    def _has(self, name: str) -> bool:
        return bool(np.any(self.loads[name] > 0))

    def _amount(self, name: str, factor: float = 1.0) -> Amount:
        return amount(self.loads[name] * factor)

    def _lookups(self, direction: Pass) -> list[Work]:
        works: list[Work] = []
        if self._has("lookups"):
            works.append(self._lookup(direction, prefix="", optimizer=self.optimizer))
        if self._has("local_lookups"):
            # Gradients of copied rows are summed into a dense buffer; ids are sorted for that
            # where the stack sorts, and rows that L2 holds take atomic adds otherwise.
            kind = "exact_sgd" if self.settings.updates_sorted else "sgd"
            works.append(self._lookup(direction, prefix="local_", optimizer=kind))
        return works

    def _lookup(self, direction: Pass, *, prefix: str, optimizer: str) -> EmbeddingLookup:
        one = {k: self.loads[prefix + k] for k in ("lookups", "elements", "outputs")}
        elements = np.maximum(one["elements"], 1e-9)
        stored = self.settings.row_value_bytes
        vector = self._vector_bytes if self.writes_compute_dtype else _FP32
        distinct = self.loads["distinct_elements"] if not prefix else one["elements"]
        per_output = self.loads[prefix + "output_elements"] / np.maximum(one["outputs"], 1e-9)
        return EmbeddingLookup(
            lookups=amount(one["lookups"]),
            outputs=amount(one["outputs"]),
            row_bytes=amount(one["elements"] / np.maximum(one["lookups"], 1e-9) * stored),
            output_bytes=amount(per_output * vector),
            num_tables=self._amount("num_tables"),
            unique_fraction=amount(np.minimum(distinct / elements, 1.0)),
            cached_fraction=amount(self.loads[prefix + "cached_elements"] / elements),
            direction=direction,
            optimizer=optimizer,
            launches=amount((one["lookups"] > 0).astype(float)),
        )

    def _host_rows(self, direction: Pass) -> list[Work]:
        """Rows in host memory: gathered over the bus by the GPU, or by the CPU and then copied."""
        if not self._has("host_elements"):
            return []
        forward = direction is Pass.FORWARD
        if not self.settings.host_row_s:
            # An update reads and writes rows.
            stored = self.settings.row_value_bytes
            size = self._amount("host_elements", stored if forward else 2 * stored)
            return [Copy(num_bytes=size, direction="uvm", cause=Cause.EMBEDDING)]
        share = _FORWARD_SHARE if forward else 1 - _FORWARD_SHARE
        copy = Copy(
            num_bytes=self._amount("host_elements", _FP32),
            direction="h2d" if forward else "d2h",
            pinned=False,
            cause=Cause.EMBEDDING,
        )
        seconds = self._amount("host_lookups", share * self.settings.host_row_s)
        return [Fixed(seconds=seconds, cause=Cause.EMBEDDING), copy]

    def _small_kernels(self) -> list[Work]:
        s = self.settings
        if not (s.feature_device_s or s.lookup_device_s):
            return []
        seconds = (
            self.loads["num_features"] * s.feature_device_s
            + self.loads["lookups"] * s.lookup_device_s
        )
        return [Fixed(seconds=amount(seconds), cause=Cause.EMBEDDING)]
