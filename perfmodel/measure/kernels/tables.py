"""The kernel table: one row a timing; checked row by row before it is fitted or predicted.

Columns: DESIGN "Kernel table". Rows that cannot be used are refused with a reason, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.kernels.backward import DIRECTIONS, FORWARD
from perfmodel.cost.kernels.families import FAMILIES, Family, family_of
from perfmodel.cost.kernels.rows import Labels, Rows, join_rows, make_rows
from perfmodel.errors import InputError, UnknownNameError
from perfmodel.hardware.aliases import resolve_dtype, resolve_gpu

if TYPE_CHECKING:
    import pandas as pd

REQUIRED = ("gpu", "op", "dtype")
LARGEST_SIZE = 2.0**40
"""No dimension of a kernel on one GPU comes near: it would be a terabyte of bytes."""
LARGEST_FLOP = 1e21
"""About a month of one GPU: beyond, a shape is a mistake."""
_LABELS = ("framework", "kernel", "distribution")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Rows of one family that can be predicted, and where they stand in the table.

    index : int64, (n,) - positions in the table
    log_measured : float64, (n,) - ln of measured seconds, NaN where the row has none
    is_judged : bool, (n,) - measured, and not flagged as launch-bound or suspect
    """

    family: Family
    rows: Rows
    index: NDArray[np.int64]
    log_measured: NDArray[np.float64]
    is_judged: NDArray[np.bool_]
    source: Labels


def read_tables(tables: Iterable[str | Path | pd.DataFrame]) -> pd.DataFrame:
    """Read kernel tables (parquet, CSV, or frames) into one frame with an index from 0.

    Raises
    ------
    InputError
        If a file cannot be read or lacks a required column.
    """
    import pandas as pd

    frames = []
    for table in tables:
        frame = table if isinstance(table, pd.DataFrame) else _read_file(Path(table))
        missing = [c for c in REQUIRED if c not in frame.columns]
        if missing:
            name = "table" if isinstance(table, pd.DataFrame) else str(table)
            raise InputError(f"{name} has no column {', '.join(missing)}; a kernel table needs it")
        frames.append(_plain(frame))
    if not frames:
        raise InputError("no kernel table was given")
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def _read_file(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        return pd.read_csv(path, keep_default_na=True)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a kernel table: {error}") from error


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Labels as text: categories of several files do not concatenate."""
    out = frame.reset_index(drop=True)
    for column in ("source", "gpu", "op", "direction", "dtype", "framework_version", *_LABELS):
        if column in out.columns:
            out[column] = out[column].astype(object).where(out[column].notna(), "").astype(str)
    return out


def check(frame: pd.DataFrame) -> tuple[list[Checked], Labels]:
    """Split a table by family and refuse what cannot be priced.

    Returns
    -------
    parts : list of Checked
    refusals : object (str), shape (rows,)
        Why a row was refused, "" where it was not.
    """
    refusals = np.full(len(frame), "", dtype=object)
    _refuse_labels(frame, refusals)
    parts = []
    for family in FAMILIES:
        mine = np.flatnonzero(frame["op"].isin(family.ops).to_numpy() & (refusals == ""))
        if len(mine):
            part = _check_family(frame, family, mine, refusals)
            if part is not None:
                parts.append(part)
    return parts, refusals


def _refuse_labels(frame: pd.DataFrame, refusals: Labels) -> None:
    for name in frame["op"].unique():
        if family_of(name) is None:
            refusals[(frame["op"] == name).to_numpy()] = f"op {name!r} has no model"
    if "direction" in frame.columns:
        for name in frame["direction"].unique():
            if name not in ("", *DIRECTIONS):
                rows = (frame["direction"] == name).to_numpy() & (refusals == "")
                refusals[rows] = f"direction {name!r} is not one of {', '.join(DIRECTIONS)}"
    for name in frame["gpu"].unique():
        try:
            resolve_gpu(name)
        except UnknownNameError as error:
            refusals[(frame["gpu"] == name).to_numpy() & (refusals == "")] = str(error)
    for name in frame["dtype"].unique():
        try:
            resolve_dtype(name)
        except InputError as error:
            refusals[(frame["dtype"] == name).to_numpy() & (refusals == "")] = str(error)


def _check_family(
    frame: pd.DataFrame, family: Family, mine: NDArray[np.int64], refusals: Labels
) -> Checked | None:
    shape = {c: _numbers(frame, c, mine, family) for c in family.shape}
    for name, values in shape.items():
        low = 0.0 if name in family.may_be_zero else 1.0
        bad = ~np.isfinite(values) | (values < low) | (values > LARGEST_SIZE)
        for at in np.flatnonzero(bad):
            if refusals[mine[at]] == "":
                refusals[mine[at]] = f"{name} is {values[at]:g}, not {low:g} to 2^40"
    good = np.array([refusals[i] == "" for i in mine], dtype=bool)
    if not good.any():
        return None
    kept = mine[good]
    labels = {c: _texts(frame, c, kept) for c in ("op", *_LABELS)}
    names = {d: str(resolve_dtype(d)) for d in set(_texts(frame, "dtype", kept).tolist())}
    labels["dtype"] = np.array([names[d] for d in _texts(frame, "dtype", kept)], dtype=object)
    directions = _texts(frame, "direction", kept)
    labels["direction"] = np.where(directions == "", FORWARD, directions).astype(object)
    rows = make_rows({k: v[good] for k, v in shape.items()}, _texts(frame, "gpu", kept), labels)
    log_measured, is_judged = _measured(frame, kept)
    part = Checked(
        family=family, rows=rows, index=kept, log_measured=log_measured, is_judged=is_judged,
        source=_texts(frame, "source", kept),
    )  # fmt: skip
    return _without_absurd(part, refusals)


def _without_absurd(part: Checked, refusals: Labels) -> Checked | None:
    """Refuse shapes whose product no GPU finishes."""
    compute = part.family.describe(part.rows).compute_s * part.rows.device.peak_flop_per_s
    fine = np.isfinite(compute) & (compute < LARGEST_FLOP)
    if fine.all():
        return part
    for at in np.flatnonzero(~fine):
        refusals[part.index[at]] = "the shape needs more than 1e21 operations"
    return take(part, fine) if fine.any() else None


def take(part: Checked, index: NDArray[np.bool_] | NDArray[np.int64]) -> Checked:
    """The rows of `part` at `index`."""
    return Checked(
        family=part.family, rows=part.rows.take(index), index=part.index[index],
        log_measured=part.log_measured[index], is_judged=part.is_judged[index],
        source=part.source[index],
    )  # fmt: skip


# Columns a table may leave out, and what that means.
_ABSENT = {
    "batch": 1.0, "window": 0.0, "causal": 1.0, "moe_tp_size": 1.0, "moe_ep_size": 1.0,
    "padding": 0.0, "stride": 1.0, "num_tables": 1.0, "pooling": 1.0,
}  # fmt: skip


def _numbers(
    frame: pd.DataFrame, column: str, mine: NDArray[np.int64], family: Family
) -> NDArray[np.float64]:
    import pandas as pd

    default = _ABSENT.get(column, np.nan)
    if column not in frame.columns:
        return np.full(len(mine), default)
    values = pd.to_numeric(frame[column].iloc[mine], errors="coerce").to_numpy(dtype=float)
    is_table_wide = family.name in ("embedding", "gemm", "attention")
    return np.where(np.isnan(values), default, values) if is_table_wide else values


def _texts(frame: pd.DataFrame, column: str, mine: NDArray[np.int64]) -> Labels:
    if column not in frame.columns:
        return np.full(len(mine), "", dtype=object)
    return np.asarray(frame[column].iloc[mine], dtype=object)


def _measured(
    frame: pd.DataFrame, mine: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    import pandas as pd

    if "latency_us" not in frame.columns:
        return np.full(len(mine), np.nan), np.zeros(len(mine), dtype=bool)
    latency = pd.to_numeric(frame["latency_us"].iloc[mine], errors="coerce").to_numpy(dtype=float)
    is_timed = np.isfinite(latency) & (latency > 0)
    log_measured = np.log(np.where(is_timed, latency, np.nan) * 1e-6)
    flagged = np.zeros(len(mine), dtype=bool)
    for column in ("suspect", "launch_bound"):
        if column in frame.columns:
            flags = frame[column].iloc[mine]
            flagged |= flags.isin([True, 1, "True", "true", "1"]).to_numpy()
    return log_measured, is_timed & ~flagged


def merge(parts: Sequence[Checked]) -> list[Checked]:
    """One part a family from the parts of several tables; `index` counts on over all of them."""
    by_family: dict[str, list[Checked]] = {}
    for part in parts:
        by_family.setdefault(part.family.name, []).append(part)
    return [group[0] if len(group) == 1 else _joined(group) for group in by_family.values()]


def _joined(group: Sequence[Checked]) -> Checked:
    rows = join_rows([part.rows for part in group])
    return Checked(
        family=group[0].family, rows=rows, index=np.arange(len(rows)),
        log_measured=np.concatenate([part.log_measured for part in group]),
        is_judged=np.concatenate([part.is_judged for part in group]),
        source=np.concatenate([part.source for part in group]),
    )  # fmt: skip


def fitting_rows(parts: Sequence[Checked]) -> list[Checked]:
    """The judged forward rows of each part; parts without any are left out."""
    kept = [take(part, can_fit(part)) for part in parts]
    return [part for part in kept if len(part.index)]


def can_fit(part: Checked) -> NDArray[np.bool_]:
    """Rows that a model may learn from: judged, and forward."""
    is_forward = np.asarray(part.rows.labels["direction"] == FORWARD, dtype=bool)
    return np.asarray(part.is_judged & is_forward, dtype=np.bool_)
