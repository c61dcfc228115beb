"""The published JSON Schema agrees with what the strict reader accepts and refuses."""

from __future__ import annotations

import copy
import json

import pytest

from perfmodel.errors import InputError
from perfmodel.locations import datasets_path
from perfmodel.schema.checker import KEYWORDS, check, run_schema
from perfmodel.schema.document import parse_document, read_document
from perfmodel.schema.place import Section

jsonschema = pytest.importorskip("jsonschema")

EXAMPLES = sorted(datasets_path("examples").glob("*.yaml"), key=lambda p: p.name)

BASE = {
    "schema_version": 1,
    "workload": {
        "builder": "transformer", "layers": 4, "hidden": 64, "heads": 4, "ffn": 256, "vocab": 100,
        "seq": 32, "global_batch": 8, "precision": "bf16",
    },
    "plan": {"dp": 8},
    "stack": "pytorch_fsdp",
    "cluster": {"node": "dgx_h100", "num_nodes": 1},
}  # fmt: skip

# Path of a field, and the value put there; ABSENT removes it.
ABSENT = object()
CHANGES = [
    (("schema_version",), 2),
    (("schema_version",), ABSENT),
    (("workload",), ABSENT),
    (("workload",), "gpt3_175b"),
    (("workload",), {"name": "gpt3_175b", "global_batch": 64}),
    (("workload",), {"name": "gpt3_175b", "layers": 64}),
    (("workload",), {"builder": "cnn", "arch": "resnet50", "global_batch": 8, "precision": "x"}),
    (("workload",), {"builder": "vit", "global_batch": 8, "precision": "x"}),
    (("workload",), 3),
    (("workload", "layers"), 0),
    (("workload", "layers"), 2.5),
    (("workload", "layers"), 4.0),
    (("workload", "layers"), "4"),
    (("workload", "layers"), True),
    (("workload", "layers"), 10**30),
    (("workload", "heads"), ABSENT),
    (("workload", "global_batch"), -1),
    (("workload", "global_batch"), 0.5),
    (("workload", "filled_fraction"), 1.5),
    (("workload", "precision"), ""),
    (("workload", "adaptive_softmax_cutoffs"), [1, 2]),
    (("workload", "adaptive_softmax_cutoffs"), [1, "x"]),
    (("workload", "hiden"), 64),
    (("plan", "recompute"), "partial"),
    (("plan", "recompute"), "full"),
    (("plan", "zero_stage"), 4),
    (("plan", "fsdp"), "yes"),
    (("plan", "embedding_sharding"), "row_wise"),
    (("plan", "embedding_sharding"), [{"table": "a", "kind": "table_wise", "ranks": [0]}]),
    (("plan", "embedding_sharding"), [{"table": "a", "kind": "table_wise"}]),
    (("plan",), None),
    (("stack",), {"name": "x", "host_op_s": 1e-6}),
    (("stack",), {"host_op_s": -1e-6}),
    (("stack",), {"options": {"anything": 1}}),
    (("stack",), []),
    (("cluster",), {"gpu": "A100", "num_gpus": 8}),
    (("cluster",), {"gpu": "A100"}),
    (("cluster",), {"num_nodes": 1}),
    (("more",), 1),
]


def changed(path, value):
    document = copy.deepcopy(BASE)
    target = document
    for key in path[:-1]:
        target = target[key]
    if value is ABSENT:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return document


def accepts(document) -> bool:
    node = parse_document(json.dumps(document, indent=1), "f")
    try:
        check(Section("f", "", node))
    except InputError:
        return False
    return True


@pytest.mark.parametrize(("path", "value"), CHANGES)
def test_reader_and_schema_agree(path, value):
    document = changed(path, value)
    valid = jsonschema.Draft202012Validator(run_schema()).is_valid(document)
    assert accepts(document) == valid


def test_the_schema_is_a_schema_and_uses_only_what_the_reader_interprets():
    jsonschema.Draft202012Validator.check_schema(run_schema())

    def keywords(schema):
        if not isinstance(schema, dict):
            return
        yield from schema
        for key, part in schema.items():
            if key in ("properties", "$defs"):
                for inner in part.values():
                    yield from keywords(inner)
            elif key == "oneOf":
                for inner in part:
                    yield from keywords(inner)
            elif key == "items":
                yield from keywords(part)

    assert set(keywords(run_schema())) <= KEYWORDS


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_follow_the_schema(path):
    document = read_document(path)
    check(Section(str(path), "", document))
    jsonschema.validate(document.plain(), run_schema())
