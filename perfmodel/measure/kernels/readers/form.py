"""What the readers share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from perfmodel.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

MS_TO_US = 1e3


@dataclass(slots=True)
class KernelTable:
    """A kernel table (columns of DESIGN, "Kernel table") and what was left out.

    skipped : reason -> rows (or files) left out
    """

    frame: pd.DataFrame
    skipped: Mapping[str, int] = field(default_factory=dict)


def table_files(folder: str | Path, pattern: str = "**/*") -> Iterator[Path]:
    """CSV, text and parquet files under `folder`, in a fixed order.

    Raises
    ------
    InputError
        If there is no such folder.
    """
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"{root} is not a folder")
    kinds = (".csv", ".txt", ".parquet")
    yield from sorted(p for p in root.glob(pattern) if p.suffix in kinds and p.is_file())


def read_file(path: Path) -> pd.DataFrame:
    """One table file.

    Raises
    ------
    InputError
        If it is not a table.
    """
    import pandas as pd

    try:
        return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a table: {error}") from error


def collect(frames: Sequence[pd.DataFrame], skipped: Mapping[str, int]) -> KernelTable:
    """One table from the pieces; rows without a positive latency are counted and dropped."""
    import pandas as pd

    frame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    left_out = dict(skipped)
    if len(frame):
        is_timed = pd.to_numeric(frame["latency_us"], errors="coerce") > 0
        if not is_timed.all():
            left_out["no positive latency"] = int((~is_timed).sum())
        frame = frame[is_timed].reset_index(drop=True)
    return KernelTable(frame=frame, skipped=left_out)
