"""One fitted model: efficiencies of every measured GPU, and trees over physics.

Two sets of trees: `known` looks at sizes and at which GPU it is, for GPUs that were measured (or
share silicon with one); `transfer` sees only ratios, for GPUs that nobody measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.kernels import efficiency
from perfmodel.cost.kernels.correction import coordinates
from perfmodel.cost.kernels.families import Family
from perfmodel.cost.kernels.kinds import KindTable, default_labels
from perfmodel.cost.kernels.physics import Work
from perfmodel.cost.kernels.residual import Trees
from perfmodel.cost.kernels.rows import Labels, Rows, Vector

Matrix = NDArray[np.float32]
DEVICE_FEATURES = ("peak_flop_per_s", "bytes_per_s", "l2_bytes", "num_sms", "clock_hz")
KNOWN_LABELS = ("gpu", "op", "dtype", "framework", "kernel")
TRANSFER_LABELS = ("op", "dtype", "framework", "kernel")

# Duration classes of the interval table: launch-dominated kernels scatter more.
DURATION_EDGES_S = (10e-6, 30e-6, 100e-6, 1e-3)
_Z80 = 1.2815515594457831  # standard normal: 80 % within


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Names of a label in the order of their mean residual; unknown ones count as the middle."""

    names: tuple[str, ...]

    def encode(self, labels: Labels) -> NDArray[np.float32]:
        """Position of each label."""
        position = {name: float(i) for i, name in enumerate(self.names)}
        middle = len(self.names) / 2.0 - 0.25
        return np.array([position.get(x, middle) for x in labels], dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Half width of the 80 % interval in ln, by GPU and duration class; "" is any GPU."""

    known: Mapping[str, Sequence[float]]
    transfer: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Trees and what they look at."""

    columns: tuple[str, ...]
    encoders: Mapping[str, Encoder]
    trees: Trees | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """ln seconds, half width of the 80 % interval in ln, and which branch spoke; each (n,)."""

    log_seconds: Vector
    half_width: Vector
    is_transfer: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedModel:
    """Fitted model of one family (and dtype)."""

    name: str
    family: Family
    kinds: KindTable
    known: Branch
    transfer: Branch
    spread: Spread
    defaults: Mapping[str, tuple[str, str]]
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def predict(self, rows: Rows) -> Prediction:
        """Times of `rows`, all of this family."""
        rows = default_labels(rows, self.defaults)
        values, nearest, is_known = self.kinds.lookup(rows)
        work = self.family.describe(rows)
        base = efficiency.log_seconds(work, rows.device.bytes_per_s, values)
        out = base.copy()
        for branch, mine in ((self.known, is_known), (self.transfer, ~is_known)):
            if branch.trees is None or not mine.any():
                continue
            everything = bool(mine.all())
            part = rows if everything else rows.take(mine)
            matrix = design(
                branch.columns, branch.encoders, part,
                work if everything else take_work(work, mine),
                base if everything else base[mine], nearest[mine],
            )  # fmt: skip
            out[mine] += branch.trees.predict(matrix)
        half_width = self._half_width(out, nearest, is_known)
        self._correct(rows, out, half_width)
        return Prediction(log_seconds=out, half_width=half_width, is_transfer=~is_known)

    def _correct(self, rows: Rows, log_seconds: Vector, half_width: Vector) -> None:
        """Apply in place what few measured rows of a kind said."""
        for kind in self.kinds.kinds:
            if kind.correction is None:
                continue
            mine = kind.rows_of(rows)
            if mine.any():
                points = coordinates(rows.take(mine), log_seconds[mine])
                log_seconds[mine] += kind.correction.log_factor(points)
                half_width[mine] = kind.half_width or half_width[mine]

    def _half_width(
        self, log_seconds: Vector, nearest: Labels, is_known: NDArray[np.bool_]
    ) -> Vector:
        duration = np.digitize(log_seconds, np.log(DURATION_EDGES_S))
        out = np.asarray(self.spread.transfer, dtype=float)[duration]
        fallback = self.spread.known.get("", self.spread.transfer)
        for gpu in set(nearest[is_known].tolist()):
            mine = is_known & (nearest == gpu)
            out[mine] = np.asarray(self.spread.known.get(gpu, fallback))[duration[mine]]
        return out


def sigma_of(half_width: Vector) -> Vector:
    """Standard deviation of the normal whose central 80 % is this wide."""
    return half_width / _Z80


def take_work(work: Work, index: NDArray[np.bool_] | NDArray[np.int64]) -> Work:
    """The kernels at `index`."""
    return Work(
        compute_s=work.compute_s[index], num_bytes=work.num_bytes[index],
        features={k: v[index] for k, v in work.features.items()},
        sizes={k: v[index] for k, v in work.sizes.items()},
    )  # fmt: skip


def columns_of(work: Work, rows: Rows, *, is_known: bool) -> tuple[tuple[str, ...], list[str]]:
    """Names of the numeric columns, and of the labels that vary, for one branch."""
    numeric = [*work.features, "base"]
    if is_known:
        numeric += [*work.sizes, *DEVICE_FEATURES]
    wanted = KNOWN_LABELS if is_known else TRANSFER_LABELS
    varying = [label for label in wanted if len(set(rows.labels[label].tolist())) > 1]
    return tuple(numeric), varying


def design(
    columns: Sequence[str],
    encoders: Mapping[str, Encoder],
    rows: Rows,
    work: Work,
    base: Vector,
    gpus: Labels,
) -> Matrix:
    """Feature matrix of one branch; `gpus` are the GPUs whose code stands for each row."""
    out = np.empty((len(base), len(columns) + len(encoders)), dtype=np.float32)
    values: dict[str, Any] = {**work.features, **work.sizes, "base": base}
    for j, name in enumerate(columns):
        out[:, j] = np.log(getattr(rows.device, name)) if name in DEVICE_FEATURES else values[name]
    for j, (label, encoder) in enumerate(encoders.items(), start=len(columns)):
        out[:, j] = encoder.encode(gpus if label == "gpu" else rows.labels[label])
    return out  # fmt: skip
