"""Reader of PARAM's comms benchmark (facebookresearch/param, train/comms).

A row is `COMMS-RES-<collective>[-<dtype>]` and size, elements per rank, latency p50, p75, p95, min,
max (us), AlgBW, BusBW (GB/s). The prefix names the collective; the median becomes `time_us`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from perfmodel.cost.collectives.busbw import busbw_factor
from perfmodel.measure.collectives.nccl_rows import strip_prefix
from perfmodel.measure.collectives.table import (
    COLLECTIVE_NAMES,
    ImportResult,
    Skip,
    read_text,
    to_table,
)

_NUMBER = r"(\d+(?:\.\d+)?)"
_ROW = re.compile(
    r"COMMS-RES-(?P<label>[A-Za-z_]+?)(?:_base)?(?:-(?P<dtype>[A-Za-z0-9_.]+?))?(?P<tag>-\S+)?\s+"
    r"(?P<size>\d+)\s+(?P<elements>\d+)\s+" + r"\s+".join([_NUMBER] * 7) + r"(?=\s|$)"
)
_LOOKS_LIKE_ROW = re.compile(r"COMMS-RES-(?!QUANT)[a-z_]+\S*\s+\d")
_WORLD_SIZE = re.compile(r"world_?size'?\s*[:=]\s*(\d+)", re.IGNORECASE)
_ELEMENT_SIZE = re.compile(r"element_size:\s*(\d+)")
# torch's names, as nccl-tests prints them
_DTYPES = {
    "float32": ("float", 4), "float": ("float", 4), "float16": ("half", 2), "half": ("half", 2),
    "bfloat16": ("bfloat16", 2), "int32": ("int32", 4), "int": ("int32", 4), "long": ("int64", 8),
    "int64": ("int64", 8), "float64": ("double", 8), "double": ("double", 8), "int8": ("int8", 1),
}  # fmt: skip
_NAMES = {"all_to_all_single": "alltoall", "all_to_all": "alltoall", "allreduce": "all_reduce"}
_PER_RANK = ("all_gather", "reduce_scatter", "alltoall")
_PRINT = 0.0006  # three decimals, rounded
_TIME_PRINT = 0.06  # microseconds, one decimal


@dataclass(slots=True)
class _Facts:
    world_size: int | None = None
    element_size: int | None = None

    def read(self, line: str) -> None:
        """Take over what a line that is not a row says."""
        world = _WORLD_SIZE.search(line)
        element = _ELEMENT_SIZE.search(line)
        self.world_size = int(world[1]) if world else self.world_size
        self.element_size = int(element[1]) if element else self.element_size


def import_param_comms(
    paths: Sequence[str | PathLike[str]], *, source: str | None = None
) -> ImportResult:
    """Rows of PARAM comms logs.

    Parameters
    ----------
    paths : sequence of path
    source : str, optional
        Name for the `source` column; the file's stem by default.

    Returns
    -------
    ImportResult
        Columns of `table.COLUMNS`; GPU, link and nodes are not in such logs and stay null.

    Raises
    ------
    InputError
        If a file cannot be read.
    """
    rows: list[dict[str, Any]] = []
    skipped: list[Skip] = []
    for path in map(Path, paths):
        text = read_text(path)
        facts = _Facts()
        before = len(rows) + len(skipped)
        lines = text.split("\n")
        for number, raw in enumerate(lines, start=1):
            line = strip_prefix(raw.rstrip("\r"))
            # The last number of an unfinished last line may be cut.
            found = _read_line(line, facts, is_whole=number < len(lines))
            if found is None:
                facts.read(raw)
            if isinstance(found, str):
                skipped.append(Skip(path.name, number, found))
            elif found is not None:
                rows.append({"source": source or path.stem, "run": path.stem, **found})
        if len(rows) + len(skipped) == before:
            skipped.append(Skip(path.name, 0, "no row of a PARAM comms table"))
    return ImportResult(table=to_table(rows), skipped=skipped)


def _read_line(line: str, facts: _Facts, *, is_whole: bool) -> dict[str, Any] | str | None:
    match = _ROW.search(line)
    if match is None:
        if _LOOKS_LIKE_ROW.search(line):
            return "row is cut, damaged or of a mode without latencies"
        return None
    if not is_whole and match.end() == len(line):
        return "row is cut at the end of the file"
    return _checked(match, facts)


def _checked(match: re.Match[str], facts: _Facts) -> dict[str, Any] | str:
    label = match["label"].lower()
    name = _NAMES.get(label, label)
    if name not in COLLECTIVE_NAMES:
        return f"{label} is not a collective this model knows"
    size, elements = int(match["size"]), int(match["elements"])
    p50, p75, p95, low, high, algbw, busbw = (float(match[i]) for i in range(6, 13))
    if size == 0 or not 0 < low <= p50 <= p75 <= p95 <= high:
        return "latencies are not in the order min, p50, p75, p95, max"
    slowest = size / (high + _TIME_PRINT) / 1e3 - _PRINT
    fastest = size / max(low - _TIME_PRINT, 1e-9) / 1e3 + _PRINT
    if not slowest <= algbw <= fastest:
        return "AlgBW does not follow from size and latency"
    dtype, element = _DTYPES.get((match["dtype"] or "").lower(), ("float", facts.element_size or 4))
    num_ranks = _num_ranks(name, size, elements * element, facts)
    if num_ranks is None:
        return "the log does not say how many ranks took part"
    factor = busbw_factor(COLLECTIVE_NAMES[name], num_ranks)
    if abs(busbw - factor * algbw) > _PRINT * (1 + factor):
        return f"BusBW is not that of {name} on {num_ranks} ranks"
    return {
        "n_ranks": num_ranks, "collective": name, "dtype": dtype, "redop": "none"
        if name in ("all_gather", "alltoall", "broadcast") else "sum",
        "bytes": size, "time_us": p50, "in_place": 0,
    }  # fmt: skip


def _num_ranks(name: str, size: int, rank_bytes: int, facts: _Facts) -> int | None:
    """Ranks from elements per rank where these are counted, else as the log states them."""
    if name in _PER_RANK and rank_bytes > 0 and size % rank_bytes == 0:
        counted = size // rank_bytes
        if counted > 1 and facts.world_size in (None, counted):
            return counted
    return facts.world_size if facts.world_size and facts.world_size > 1 else None
