"""Measurement tables on disk: CSV or parquet, one row a timing."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from perfmodel.errors import InputError, MissingCapabilityError

if TYPE_CHECKING:
    import pandas as pd

_PARQUET = (".parquet", ".pq")
_CSV = (".csv", ".csv.gz")


class TableKind(StrEnum):
    """What a table measures."""

    KERNELS = "kernels"
    COLLECTIVES = "collectives"


# Columns by which a table is recognised (the contract of measurement tables).
_MARKS = {
    TableKind.COLLECTIVES: {"collective", "bytes", "n_ranks", "time_us"},
    TableKind.KERNELS: {"gpu", "op", "dtype"},
}


def read_table(path: str | PathLike[str]) -> pd.DataFrame:
    """Table of a CSV or parquet file.

    Raises
    ------
    InputError
        If the file is absent, of another kind, empty or damaged.
    MissingCapabilityError
        If it is parquet and pyarrow is not installed.
    """
    import pandas as pd

    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    name = file.name.lower()
    if not name.endswith(_PARQUET + _CSV):
        raise InputError(f"{file}: not a table; use .parquet, .csv or .csv.gz")
    try:
        if name.endswith(_PARQUET):
            return _read_parquet(file)
        return pd.read_csv(file, low_memory=False)
    except (ValueError, OSError) as error:  # parser errors of pandas and pyarrow are ValueErrors
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise InputError(f"{file}: is not a readable table ({reason})") from None


def _read_parquet(file: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(file)
    except ImportError:
        raise MissingCapabilityError(
            f"{file}: parquet needs pyarrow; pip install 'perfmodel[parquet]', or convert to CSV"
        ) from None


def read_tables(paths: Sequence[str | PathLike[str]]) -> tuple[TableKind, pd.DataFrame]:
    """All rows of several tables of one kind, and the kind.

    Raises
    ------
    InputError
        If a table is neither of kernels nor of collectives, or the kinds differ.
    """
    import pandas as pd

    frames = [read_table(path) for path in paths]
    kinds = [kind_of(frame, str(path)) for frame, path in zip(frames, paths, strict=True)]
    for kind, path in zip(kinds, paths, strict=True):
        if kind is not kinds[0]:
            raise InputError(f"{path}: a table of {kind}, but {paths[0]} is one of {kinds[0]}")
    return kinds[0], pd.concat(frames, ignore_index=True)


def kind_of(table: pd.DataFrame, name: str) -> TableKind:
    """What a table measures, by its columns. Raises InputError."""
    for kind, columns in _MARKS.items():
        if columns <= set(table.columns):
            return kind
    needed = "; ".join(f"{k}: {', '.join(sorted(c))}" for k, c in _MARKS.items())
    raise InputError(f"{name}: lacks the columns of a measurement table ({needed})")


def write_table(table: pd.DataFrame, path: str | PathLike[str]) -> None:
    """Write CSV or parquet, by the file's name.

    Raises
    ------
    InputError
        If the name ends otherwise.
    MissingCapabilityError
        If it is parquet and pyarrow is not installed.
    """
    file = Path(path)
    if file.name.lower().endswith(_CSV):
        table.to_csv(file, index=False)
        return
    if not file.name.lower().endswith(_PARQUET):
        raise InputError(f"{file}: cannot write such a table; use .csv, .csv.gz or .parquet")
    try:
        table.to_parquet(file, index=False)
    except ImportError:
        raise MissingCapabilityError(
            f"{file}: parquet needs pyarrow; pip install 'perfmodel[parquet]', or write CSV"
        ) from None
