"""Odd values anywhere: a run, or one of our own errors; never another exception."""

from __future__ import annotations

import contextlib
import copy
import json

import pytest

from perfmodel.errors import PerfmodelError
from perfmodel.locations import datasets_path
from perfmodel.measure.published import read_rows, run_from_row
from perfmodel.schema.document import read_document
from perfmodel.schema.run_file import run_from_mapping

ODD = [
    None, "", "not stated", "8", -1, 0, 1.5, 1e30, float("nan"), float("inf"), True, [], [1], {},
]  # fmt: skip
FAMILIES = ("transformer", "dlrm", "cnn")
EXAMPLES = ("bert_dgx1", "dlrm_8gpu", "gpt3_175b_64gpu", "resnet50_ddp")
ROWS = read_rows(datasets_path("published_runs", "runs.jsonl"))


def variants(document):
    """The document with each value, two levels deep, replaced by each odd one."""
    for key, value in document.items():
        inner = [(key, k) for k in value] if isinstance(value, dict) else []
        for path in [(key,), *inner]:
            for odd in ODD:
                changed = copy.deepcopy(document)
                target = changed
                for step in path[:-1]:
                    target = target[step]
                target[path[-1]] = odd
                yield changed


@pytest.mark.parametrize("family", FAMILIES)
def test_published_rows(family):
    row = next(r for r in ROWS if r["family"] == family)
    for changed in variants(row):
        with contextlib.suppress(PerfmodelError):
            run_from_row(changed)


@pytest.mark.parametrize("name", EXAMPLES)
def test_run_files(name):
    document = read_document(datasets_path("examples", f"{name}.yaml")).plain()
    assert run_from_mapping(json.loads(json.dumps(document)))
    for changed in variants(document):
        with contextlib.suppress(PerfmodelError):
            run_from_mapping(changed)
