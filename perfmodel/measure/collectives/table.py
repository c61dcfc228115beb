"""The collective table: one row a timing, and what a reader returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.errors import InputError
from perfmodel.program.work import CollectiveKind

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "source", "gpu", "link", "nodes", "gpus_per_node", "n_ranks", "collective", "dtype", "redop",
    "bytes", "time_us", "in_place", "nccl_version", "run",
)  # fmt: skip
"""Columns of the table; `bytes` is nccl-tests' size column, missing values are null."""

REQUIRED = ("n_ranks", "collective", "bytes", "time_us")

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Logs are a few kB, with NCCL's debug lines a few MB; larger files are refused."""

COLLECTIVE_NAMES: Mapping[str, CollectiveKind] = {
    "all_reduce": CollectiveKind.ALL_REDUCE, "allreduce": CollectiveKind.ALL_REDUCE,
    "all_gather": CollectiveKind.ALL_GATHER, "allgather": CollectiveKind.ALL_GATHER,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "reducescatter": CollectiveKind.REDUCE_SCATTER,
    "alltoall": CollectiveKind.ALL_TO_ALL, "all_to_all": CollectiveKind.ALL_TO_ALL,
    "broadcast": CollectiveKind.BROADCAST, "reduce": CollectiveKind.REDUCE,
    "sendrecv": CollectiveKind.SEND_RECV, "send_recv": CollectiveKind.SEND_RECV,
}  # fmt: skip
"""Spellings of logs and tables."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Something in a file that was not taken over, and why. `line` counts from 1; 0: the file."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class ImportResult:
    """Rows read surely (columns `COLUMNS`) and what was left out."""

    table: pd.DataFrame
    skipped: list[Skip]


def to_table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """DataFrame with exactly `COLUMNS`, in order."""
    import pandas as pd

    return pd.DataFrame(list(rows), columns=list(COLUMNS))


def read_text(path: Path) -> str:
    """Text of a log; undecodable bytes become U+FFFD, which no number contains.

    Raises
    ------
    InputError
        If the file cannot be read or is larger than `MAX_FILE_BYTES`.
    """
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise InputError(f"{path}: {size} bytes, more than the {MAX_FILE_BYTES} a log may have")
        return path.read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def kind_of(name: str) -> CollectiveKind:
    """Collective of a spelling.

    Raises
    ------
    InputError
        If the spelling is not known.
    """
    try:
        return COLLECTIVE_NAMES[name.strip().lower().replace("-", "_")]
    except KeyError:
        known = ", ".join(sorted(COLLECTIVE_NAMES))
        raise InputError(f"collective {name!r} is not one of {known}") from None
