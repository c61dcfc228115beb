"""Reader of nccl-tests and rccl-tests logs of all vintages. Never a false row.

What cannot be read surely is skipped and listed with its reason: cut or damaged rows, runs whose
collective or rank count the log does not show, one-rank runs, sizes of 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from perfmodel.measure.collectives.nccl_context import (
    Context,
    Shape,
    concluded_name,
    file_name_hint,
    file_ranks_hint,
    shape_of,
)
from perfmodel.measure.collectives.nccl_identity import consistent_names, fits, num_ranks_of
from perfmodel.measure.collectives.nccl_rows import Half, Row, parse_row, strip_prefix
from perfmodel.measure.collectives.table import (
    COLLECTIVE_NAMES,
    ImportResult,
    Skip,
    read_text,
    to_table,
)


@dataclass(slots=True)
class _Run:
    context: Context
    rows: list[Row] = field(default_factory=list)
    concluded: str | None = None


def import_nccl_tests(
    paths: Sequence[str | PathLike[str]], *, source: str | None = None
) -> ImportResult:
    """Rows of nccl-tests logs.

    Parameters
    ----------
    paths : sequence of path
        Log files; one file may hold several runs.
    source : str, optional
        Name for the `source` column; the file's stem by default.

    Returns
    -------
    ImportResult
        The table (columns of `table.COLUMNS`) and everything skipped, with reasons.

    Raises
    ------
    InputError
        If a file cannot be read.
    """
    rows: list[dict[str, Any]] = []
    skipped: list[Skip] = []
    for path in map(Path, paths):
        found, left_out = read_nccl_tests(read_text(path), path.name, source or path.stem)
        rows += found
        skipped += left_out
    return ImportResult(table=to_table(rows), skipped=skipped)


def read_nccl_tests(
    text: str, file_name: str, source: str
) -> tuple[list[dict[str, Any]], list[Skip]]:
    """Rows and skips of one log; see `import_nccl_tests`."""
    skipped: list[Skip] = []
    rows: list[dict[str, Any]] = []
    runs = [run for run in _runs(text, file_name, skipped) if run.rows]
    for index, run in enumerate(runs):
        label = f"{Path(file_name).stem}#{index + 1}"
        rows += _table_rows(run, file_name, source, label, skipped)
    if not rows and not skipped:
        skipped.append(Skip(file_name, 0, "no row of an nccl-tests table"))
    return rows, skipped


def _runs(text: str, file_name: str, skipped: list[Skip]) -> Iterator[_Run]:
    run = _Run(Context())
    for number, raw in enumerate(text.split("\n"), start=1):
        line = strip_prefix(raw.rstrip("\r"))
        parsed = parse_row(line, number)
        if isinstance(parsed, Row):
            run.rows.append(parsed)
            run.context.is_closed = True
            if parsed.is_damaged:
                skipped.append(Skip(file_name, number, "one half of the row is cut or damaged"))
            continue
        if isinstance(parsed, str):
            skipped.append(Skip(file_name, number, parsed))
            continue
        run.concluded = run.concluded or concluded_name(line)
        if run.context.opens_run(line):
            if run.rows:
                yield run
            run = _Run(run.context.renewed())
        run.context.read(line)
    yield run


def _table_rows(
    run: _Run, file_name: str, source: str, label: str, skipped: list[Skip]
) -> Iterator[dict[str, Any]]:
    shape = shape_of(run.context)
    first = run.rows[0].line
    num_ranks = num_ranks_of(run.rows, shape, file_ranks_hint(file_name))
    if isinstance(num_ranks, str):
        skipped.append(Skip(file_name, first, f"run of {len(run.rows)} rows: {num_ranks}"))
        return
    if num_ranks < 2:
        skipped.append(Skip(file_name, first, "one rank: nothing was communicated"))
        return
    name = _collective_of(run, num_ranks, file_name)
    if name not in COLLECTIVE_NAMES:
        skipped.append(Skip(file_name, first, f"run of {len(run.rows)} rows: {name}"))
        return
    nodes, per_node = _nodes_of(shape, num_ranks)
    common = {
        "source": source, "gpu": shape.gpu, "link": _link_of(run.context, nodes), "nodes": nodes,
        "gpus_per_node": per_node, "n_ranks": num_ranks, "collective": name,
        "nccl_version": run.context.version, "run": label,
    }  # fmt: skip
    for row in run.rows:
        if not fits(row, name, num_ranks):
            reason = f"columns do not fit {name} on {num_ranks} ranks"
            skipped.append(Skip(file_name, row.line, reason))
            continue
        for in_place, half in ((0, row.out_of_place), (1, row.in_place)):
            if half is not None:
                yield common | _timing(row, half, in_place)


def _timing(row: Row, half: Half, in_place: int) -> dict[str, Any]:
    return {
        "dtype": row.dtype, "redop": row.redop or "none", "bytes": row.size,
        "time_us": half.time_us, "in_place": in_place,
    }  # fmt: skip


def _collective_of(run: _Run, num_ranks: int, file_name: str) -> str:
    """Name of the collective, or why it is not known."""
    candidates = consistent_names(run.rows, num_ranks)
    hints = (run.context.starting, run.concluded, run.context.named, file_name_hint(file_name))
    known = [hint for hint in hints if hint is not None]
    for hint in known:
        if hint in candidates:
            return hint
    if known and known[0] not in COLLECTIVE_NAMES:
        return f"{known[0]} is not a collective this model knows"
    if known:
        return f"the log names {known[0]}, but the columns do not fit it on {num_ranks} ranks"
    if len(candidates) == 1:
        return candidates[0]
    return "the log does not name the collective"


def _nodes_of(shape: Shape, num_ranks: int) -> tuple[int | None, int | None]:
    """Nodes and GPUs per node; None where the log does not tell."""
    nodes: int | None = None
    if shape.hosts is not None and shape.is_list_whole and shape.listed_ranks == num_ranks:
        nodes = shape.hosts
    elif shape.devices_per_host is not None and num_ranks % shape.devices_per_host == 0:
        nodes = num_ranks // shape.devices_per_host
    elif shape.command_nodes is not None:
        nodes = shape.command_nodes
    elif shape.command_ranks == num_ranks:
        nodes = 1
    if nodes is None or num_ranks % nodes:
        return nodes, None
    return nodes, num_ranks // nodes


def _link_of(context: Context, nodes: int | None) -> str | None:
    """Network as NCCL's own lines name it; the fabric is left to the GPU's usual node."""
    if nodes is None or nodes == 1 or context.network is None:
        return None
    return f"+{context.network}"
