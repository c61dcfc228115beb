"""Measured rows as curves: names resolved, repeats of one size merged to their median."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.collectives.paths import CommPath, comm_path
from perfmodel.errors import InputError
from perfmodel.hardware.aliases import resolve_gpu
from perfmodel.hardware.platforms import usual_node
from perfmodel.hardware.records import Dtype
from perfmodel.measure.collectives.platforms import cluster_of, group_of
from perfmodel.measure.collectives.table import REQUIRED, kind_of
from perfmodel.program.work import CollectiveKind
from perfmodel.units import US

if TYPE_CHECKING:
    import pandas as pd

DTYPES = {
    "half": Dtype.FP16, "float16": Dtype.FP16, "fp16": Dtype.FP16, "bfloat16": Dtype.BF16,
    "bf16": Dtype.BF16, "float": Dtype.FP32, "float32": Dtype.FP32, "fp32": Dtype.FP32,
    "double": Dtype.FP64, "float64": Dtype.FP64, "int8": Dtype.INT8, "uint8": Dtype.INT8,
    "char": Dtype.INT8, "int32": Dtype.INT32, "uint32": Dtype.INT32, "int": Dtype.INT32,
    "int64": Dtype.INT64, "uint64": Dtype.INT64, "f8e4m3": Dtype.FP8, "f8e5m2": Dtype.FP8,
}  # fmt: skip

MIXED_SOURCES = ("thomaslie210", "argonne", "eunomia")
"""Sources whose runs mix settings or share a GPU (data/collectives/README.md): not scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One setting measured over sizes (rising)."""

    source: str
    gpu: str
    link: str
    family: str  # silicon: siblings of one die share it
    run: str
    kind: CollectiveKind
    dtype: Dtype
    path: CommPath
    nodes: int
    gpus_per_node: int
    num_bytes: NDArray[np.float64]
    seconds: NDArray[np.float64]  # medians
    positions: tuple[NDArray[np.int64], ...]  # rows of the table behind each size

    @property
    def platform(self) -> tuple[str, str, str]:
        """What curves of one machine share."""
        return self.source, self.gpu, self.link


@dataclass(frozen=True, slots=True)
class Setting:
    """What identifies the communicator of a row."""

    gpu: str
    link: str
    family: str
    nodes: int
    gpus_per_node: int
    kind: CollectiveKind
    dtype: Dtype
    path: CommPath


def check_columns(table: pd.DataFrame) -> None:
    """Raise InputError unless the table has the columns a collective table needs."""
    missing = [name for name in REQUIRED if name not in table.columns]
    if missing:
        raise InputError(f"collective table lacks the columns {', '.join(missing)}")


def setting_of(record: dict[str, Any]) -> Setting:
    """Communicator of a row.

    Raises
    ------
    InputError
        If GPU, collective or shape cannot be resolved; the sentence is the reason of a refusal.
    """
    gpu = _text(record.get("gpu"))
    if not gpu:
        raise InputError("the row does not name a GPU")
    num_ranks = _count(record.get("n_ranks"), "n_ranks")
    link = _text(record.get("link"))
    nodes = record.get("nodes")
    per_node = record.get("gpus_per_node")
    if _is_null(nodes):
        filled = usual_node(resolve_gpu(gpu)[0]).num_gpus if _is_null(per_node) else per_node
        nodes = -(-num_ranks // _count(filled, "gpus_per_node"))
    num_nodes = _count(nodes, "nodes")
    if num_ranks % num_nodes:
        raise InputError(f"{num_ranks} ranks do not divide over {num_nodes} nodes")
    local = num_ranks // num_nodes
    cluster = cluster_of(gpu, link, num_nodes, local)
    return Setting(
        gpu=gpu, link=link, family=cluster.gpu.silicon_family, nodes=num_nodes, gpus_per_node=local,
        kind=kind_of(_text(record.get("collective"))),
        dtype=dtype_of(record.get("dtype")),
        path=comm_path(cluster, group_of(num_nodes, local)),
    )  # fmt: skip


def dtype_of(spelling: object) -> Dtype:
    """Number format of a spelling; fp32, the default of nccl-tests, where it is not stated."""
    return DTYPES.get(_text(spelling).lower(), Dtype.FP32)


def _is_null(value: object) -> bool:
    return value is None or value != value  # NaN differs from itself


def _text(value: object) -> str:
    return "" if _is_null(value) else str(value).strip()


def _count(value: Any, name: str) -> int:
    is_number = isinstance(value, int | float | np.integer | np.floating) and np.isfinite(value)
    if is_number and value >= 1 and value == int(value):
        return int(value)
    raise InputError(f"{name} {value!r} is not a positive whole number")


KEYS = ("gpu", "link", "nodes", "gpus_per_node", "n_ranks", "collective", "dtype")


def resolve(table: pd.DataFrame) -> tuple[dict[tuple[Any, ...], Setting | str], pd.DataFrame]:
    """Setting of each distinct communicator, or why it has none; and the table's key columns."""
    check_columns(table)
    keys = table.reindex(columns=list(KEYS)).astype(object)
    found: dict[tuple[Any, ...], Setting | str] = {}
    for values in keys.drop_duplicates().itertuples(index=False, name=None):
        try:
            found[_key(values)] = setting_of(dict(zip(KEYS, values, strict=True)))
        except InputError as error:
            found[_key(values)] = str(error)
    return found, keys


def _key(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(None if _is_null(value) else value for value in values)


def settings_of_rows(table: pd.DataFrame) -> list[Setting | str]:
    """Setting of every row, in order; a sentence where the row must be refused."""
    found, keys = resolve(table)
    out: list[Setting | str] = [
        found[_key(values)] for values in keys.itertuples(index=False, name=None)
    ]
    sizes = table["bytes"].to_numpy(dtype=float)
    bad = ~(np.isfinite(sizes) & (sizes > 0))
    for position in np.flatnonzero(bad):
        out[position] = f"bytes {sizes[position]} is not a positive number"
    return out


def curves_of(table: pd.DataFrame, settings: list[Setting | str]) -> Iterator[Curve]:
    """Curves: one run, communicator, collective and dtype; median over repeats and halves."""
    work = table.assign(
        _position=np.arange(len(table)),
        _source=_column(table, "source", "unknown"),
        _run=_column(table, "run", ""),
        _index=[-1 if isinstance(s, str) else id(s) for s in settings],
    )
    times = work["time_us"].to_numpy(dtype=float)
    work = work[(work["_index"] != -1) & np.isfinite(times) & (times > 0)]
    for (source, run, _), part in work.groupby(["_source", "_run", "_index"], sort=True):
        setting = settings[int(part["_position"].iloc[0])]
        if isinstance(setting, str):
            continue
        yield _curve(setting, str(source), str(run), part)


def _curve(setting: Setting, source: str, run: str, part: pd.DataFrame) -> Curve:
    sizes = part["bytes"].to_numpy(dtype=float)
    times = part["time_us"].to_numpy(dtype=float) * US
    positions = part["_position"].to_numpy(dtype=np.int64)
    unique, inverse = np.unique(sizes, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    pieces = np.split(order, np.cumsum(np.bincount(inverse))[:-1])
    return Curve(
        source=source, gpu=setting.gpu, link=setting.link, family=setting.family, run=run,
        kind=setting.kind, dtype=setting.dtype, path=setting.path, nodes=setting.nodes,
        gpus_per_node=setting.gpus_per_node, num_bytes=unique,
        seconds=np.array([np.median(times[piece]) for piece in pieces]),
        positions=tuple(positions[piece] for piece in pieces),
    )  # fmt: skip


def _column(table: pd.DataFrame, name: str, default: str) -> Any:
    return table[name].fillna(default).astype(str) if name in table.columns else default
