"""Loads a RUN: a file with four sections, or a row in the published-run schema."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from perfmodel.errors import InputError
from perfmodel.measure.published import read_rows, run_from_row
from perfmodel.run import Run
from perfmodel.schema.document import Node, read_document
from perfmodel.schema.place import Section, nearest
from perfmodel.schema.run_file import run_from_document

# Keys by which an object is known to be a published run rather than a RUN file.
_ROW_MARKS = {"parallelism", "hardware"}


def load_run(path: str | PathLike[str], row: str | None = None) -> Run:
    """Run of a file; see `perfmodel.run.Run.load`."""
    file = Path(path)
    if file.suffix.lower() == ".jsonl" or row is not None:
        return _chosen(file, row)
    document = read_document(file)
    if isinstance(document.value, dict) and document.value.keys() >= _ROW_MARKS:
        return _of_row(document.plain(), str(file))
    return run_from_document(Section(str(file), "", document))


# What of a plan a search keeps: how parameters are sharded and whether all of them are trained.
_KEPT = ("fsdp", "lora")


def load_to_plan(path: str | PathLike[str], row: str | None = None) -> Run:
    """Run of a file whose plan is to be searched: one that does not divide is left out.

    Raises
    ------
    InputError
        As `load_run`, if the file is wrong in another respect.
    """
    try:
        return load_run(path, row)
    except InputError:
        file = Path(path)
        document = read_document(file) if file.suffix.lower() != ".jsonl" else None
        sections = document.value if document is not None else None
        plan = sections.get("plan") if isinstance(sections, dict) else None
        if document is None or plan is None or not isinstance(plan.value, dict):
            raise
        kept = {key: node for key, node in plan.value.items() if key in _KEPT}
        kept["num_microbatches"] = Node(1, plan.line)
        assert isinstance(sections, dict)
        searched = Node({**sections, "plan": Node(kept, plan.line)}, document.line)
        try:
            return run_from_document(Section(str(file), "", searched))
        except InputError:
            pass
        raise


def _chosen(file: Path, row: str | None) -> Run:
    """One row of a file of published runs, by its id where there are several."""
    rows = read_rows(file)
    if row is None:
        if len(rows) == 1:
            return _of_row(rows[0], str(file))
        raise InputError(f"{file}: holds {len(rows)} runs; choose one with --row ID")
    for candidate in rows:
        if str(candidate.get("id")) == row:
            return _of_row(candidate, f"{file} {row}")
    raise InputError(f"{file}: has no row {row!r}{nearest(row, (str(r.get('id')) for r in rows))}")


def _of_row(row: Mapping[str, Any], name: str) -> Run:
    try:
        return run_from_row(row)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
