"""Makes a Run of a RUN file: a YAML or JSON document with four sections."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from perfmodel.errors import InvalidPlanError
from perfmodel.run import Run, plan_problems
from perfmodel.schema import sections
from perfmodel.schema.checker import check, run_schema
from perfmodel.schema.document import Node, parse_document
from perfmodel.schema.place import Section


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
    section = document.child(key)
    part = sections.follow_path(section)
    if part is not section:
        check(part, {"oneOf": _alternatives(key)})
    return part


def _alternatives(key: str) -> list[Any]:
    alternatives: list[Any] = run_schema()["properties"][key]["oneOf"]
    return [a for a in alternatives if "$ref" in a]
