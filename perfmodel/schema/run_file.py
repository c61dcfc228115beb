"""Loads a RUN: a YAML or JSON file with four sections, or a row in the published-run schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from perfmodel.errors import InputError, InvalidPlanError
from perfmodel.run import Run, plan_problems
from perfmodel.schema.checker import check
from perfmodel.schema.document import MAX_BYTES, Node, parse_document, read_text
from perfmodel.schema.place import Section, nearest

# Keys by which a JSON object is known to be a published run rather than a RUN file.
_ROW_MARKS = {"parallelism", "hardware"}


def load_run(path: str | PathLike[str], row: str | None = None) -> Run:
    """Run of a file; see `perfmodel.run.Run.load`."""
    file = Path(path)
    if file.suffix.lower() == ".jsonl" or row is not None:
        return _published(file, row)
    text = read_text(file, MAX_BYTES)
    document = parse_document(text, str(file))
    if isinstance(document.value, dict) and document.value.keys() >= _ROW_MARKS:
        return _row_run(document.plain(), str(file))
    return run_from_document(Section(str(file), "", document))


def run_from_mapping(content: Mapping[str, Any], name: str = "run") -> Run:
    """Run of plain values with the four sections of a RUN file; `name` stands for it in errors.

    Raises
    ------
    InputError
        As for a file; lines are those of the values printed as indented JSON.
    """
    return run_from_document(Section(name, "", parse_document(json.dumps(content, indent=1), name)))


def run_from_document(document: Section) -> Run:
    """Run of a parsed RUN file.

    Raises
    ------
    InputError
        One sentence with file and line.
    """
    from perfmodel.schema import sections

    _check_version(document)
    check(document)
    parts = {k: _part(document, k) for k in ("workload", "plan", "stack", "cluster")}
    said = sections.Said()
    workload = sections.workload_from(parts["workload"], parts["plan"], said)
    cluster = sections.cluster_from(parts["cluster"])
    family = workload.model.family
    stack = sections.stack_from(parts["stack"], parts["workload"], family, said)
    plan = sections.plan_from(parts["plan"], workload, stack, cluster, said)
    with parts["plan"].locating():
        for problem in plan_problems(workload, plan):
            raise InvalidPlanError(problem)
        return Run(
            workload=workload,
            plan=plan,
            stack=stack,
            cluster=cluster,
            notes=tuple(dict.fromkeys(said.notes)),
            warnings=tuple(dict.fromkeys(said.warnings)),
        )


def _check_version(document: Section) -> None:
    """Say what the file is not before listing what it lacks."""
    content = document.node.value
    if not isinstance(content, dict):
        raise document.fail(
            "is no RUN file: it needs schema_version, workload, plan, stack and cluster"
        )
    version = content.get("schema_version")
    if isinstance(version, Node) and version.value != 1:
        raise document.child("schema_version").fail(
            f"schema_version is {json.dumps(version.plain())}; allowed: 1"
        )


def _part(document: Section, key: str) -> Section:
    """A section, or the file it names, checked."""
    from perfmodel.schema.sections import follow_path

    section = document.child(key)
    part = follow_path(section)
    if part is not section:
        check(part, {"oneOf": _alternatives(key)})
    return part


def _alternatives(key: str) -> list[Any]:
    from perfmodel.schema.checker import run_schema

    alternatives: list[Any] = run_schema()["properties"][key]["oneOf"]
    return [a for a in alternatives if "$ref" in a]


def _published(file: Path, row: str | None) -> Run:
    from perfmodel.measure.published import read_rows

    rows = read_rows(file)
    if row is None:
        if len(rows) == 1:
            return _row_run(rows[0], str(file))
        raise InputError(f"{file}: holds {len(rows)} runs; choose one with --row ID")
    for candidate in rows:
        if str(candidate.get("id")) == row:
            return _row_run(candidate, f"{file} {row}")
    raise InputError(f"{file}: has no row {row!r}{nearest(row, (str(r.get('id')) for r in rows))}")


def _row_run(row: Mapping[str, Any], name: str) -> Run:
    from perfmodel.measure.published import run_from_row

    try:
        return run_from_row(row)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
