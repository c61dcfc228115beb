"""Bad input as one table: every case is one sentence on standard error and exit code 2."""

from __future__ import annotations

import pytest

from perfmodel.cli import main

GOOD = """\
schema_version: 1
workload:
  builder: transformer
  layers: 8
  hidden: 64
  heads: 8
  ffn: 256
  vocab: 100
  seq: 32
  global_batch: 64
  precision: bf16
plan:
  dp: 8
  micro_batch: 4
stack: pytorch_fsdp
cluster:
  node: dgx_h100
  num_nodes: 1
"""
DLRM = """\
schema_version: 1
workload: {builder: dlrm, table_rows: [10, 20], table_dim: 4, bottom_mlp: [4], num_dense: 2,
  top_mlp: [4, 1], global_batch: 16, precision: fp32}
plan:
  embedding_sharding:
    - {table: table_0, kind: table_wise, ranks: [0]}
    - {table: table_9, kind: table_wise, ranks: [1]}
stack: torchrec
cluster: dgx_h100
"""
ROW = (
    '{"id": "r1", "family": "transformer", "model": {"layers": 2, "hidden": 64, "ffn": 256, '
    '"vocab": 100, "seq": 8, "heads": 4}, "global_batch": 8, "precision": "bf16", '
    '"parallelism": {"dp": 1}, "hardware": {"gpu": "A100", "num_gpus": 1}}\n'
)


def edit(old, new, text=GOOD):
    assert old in text
    return text.replace(old, new)


CUBE = "cluster:\n  gpu: {}\n  num_gpus: 8\n"
NODE = "cluster:\n  node: dgx_h100\n  num_nodes: 1\n"

# name: (text of the file, what the sentence must hold)
TABLE = {
    "unknown GPU": (edit(NODE, CUBE.format("A1000")), ["run.yaml:17", "A1000", "did you mean"]),
    "unknown node": (edit("dgx_h100", "dgx_h10"), [":17:", "dgx_h10", "dgx_h100"]),
    "unknown stack": (edit("pytorch_fsdp", "pytorch_fsdpp"), [":15:", "pytorch_fsdp"]),
    "unknown model": (
        "schema_version: 1\nworkload: llama3_9b\nplan: fsdp\nstack: pytorch_fsdp\n"
        "cluster: dgx_h100\n",
        [":2:", "llama3_8b"],
    ),
    "unknown precision": (edit("bf16", "bf17"), [":11:", "bf17", "bf16"]),
    "unknown builder": (edit("transformer", "transfomer"), [":3:", "transformer"]),
    "misspelt field": (edit("heads", "haeds"), [":6:", "haeds", "did you mean heads"]),
    "misspelt section": (edit("cluster:", "clutser:"), [":16:", "did you mean cluster"]),
    "missing field": (edit("  heads: 8\n", ""), [":2:", "workload has no heads", "query heads"]),
    "missing section": (edit("stack: pytorch_fsdp\n", ""), ["has no stack"]),
    "wrong type": (edit("layers: 8", "layers: many"), [":4:", '"many"', "whole number"]),
    "word for a flag": (edit("dp: 8", "fsdp: on"), [":13:", '"on"', "true or false"]),
    "fraction": (edit("layers: 8", "layers: 8.5"), [":4:", "8.5", "whole number"]),
    "negative": (edit("layers: 8", "layers: -8"), [":4:", "-8", "from 1 to"]),
    "zero": (edit("global_batch: 64", "global_batch: 0"), [":10:", "above 0"]),
    "NaN": (edit("global_batch: 64", "global_batch: .nan"), [":10:", "NaN", "above 0"]),
    "infinite": (edit("global_batch: 64", "global_batch: .inf"), [":10:", "at most 1e+09"]),
    "huge": (edit("hidden: 64", "hidden: 64000000000000"), [":5:", "64000000000000"]),
    "huger": (edit("hidden: 64", "hidden: " + "9" * 600), [":5:", "hidden"]),
    "list for a number": (edit("hidden: 64", "hidden: [64]"), [":5:", "a list"]),
    "null for a number": (edit("hidden: 64", "hidden:"), [":5:", "null"]),
    "product of sizes": (edit("dp: 8", "dp: 4"), [":13:", "dp 4", "8 GPUs"]),
    "tp and heads": (
        edit("dp: 8", "tp: 8", edit("heads: 8", "heads: 4", edit("num_nodes: 1", "num_nodes: 1"))),
        [":13:", "tp 8 does not divide heads 4"],
    ),
    "hidden and heads": (edit("heads: 8", "heads: 7"), ["run.yaml:", "hidden 64", "heads 7"]),
    "pp and layers": (
        edit("dp: 8", "pp: 8", edit("layers: 8", "layers: 4")),
        [":13:", "pp 8", "4 layers"],
    ),
    "vp without pp": (edit("dp: 8", "dp: 8\n  vp: 2"), [":14:", "vp 2 needs a pipeline"]),
    "ep without experts": (edit("dp: 8", "dp: 8\n  ep: 2"), [":14:", "ep 2", "num_experts"]),
    "batch and micro-batch": (
        edit("micro_batch: 4", "micro_batch: 5"),
        ["run.yaml:", "not a multiple", "micro_batch 5"],
    ),
    "micro-batch too large": (
        edit("micro_batch: 4", "micro_batch: 16"),
        ["run.yaml:", "global_batch 64 is smaller"],
    ),
    "too many GPUs per node": (
        edit("num_nodes: 1", "num_nodes: 1\n  gpus_per_node: 16"),
        [":19:", "gpus_per_node 16", "1 to 8"],
    ),
    "no such table": (DLRM, ["run.yaml:", "table_9", "table_0"]),
    "unknown sharding rule": (
        DLRM[: DLRM.index("plan:")] + "plan: {embedding_sharding: row_wize}\n"
        + DLRM[DLRM.index("stack:") :], [":4:", "row_wise"]),
    "unknown optimizer": (
        edit("precision: bf16", "precision: bf16\n  optimizer: adamm"), [":12:", "adamm", "adamw"]),
    "stack of another family": (
        edit("pytorch_fsdp", "torchrec"), [":15:", "torchrec", "dlrm", "pytorch_fsdp"]),
    "tables of a transformer": (
        edit("dp: 8", "embedding_sharding: row_wise"), [":13:", "does not have"]),
    "sharding said twice": (
        edit("dp: 8", "shard: optimizer\n  zero_stage: 2"), [":14:", "give one of them"]),
    "schedule without chunks": (
        edit("dp: 8", "pp: 8\n  schedule: interleaved"), [":14:", "vp"]),
    "chunks without schedule": (
        edit("dp: 8", "pp: 4\n  vp: 2\n  schedule: 1f1b"), [":15:", "1f1b"]),
    "image of a transformer": (
        "schema_version: 1\nworkload: {name: gpt3_175b, image: 224}\nplan: fsdp\n"
        "stack: pytorch_fsdp\ncluster: dgx_h100\n", [":2:", "image is no dimension"]),
    "unknown plan": (
        edit("plan:\n  dp: 8\n  micro_batch: 4", "plan: zero4"), [":12:", "zero3"]),
    "wrong version": (edit("schema_version: 1", "schema_version: 2"), [":1:", "allowed: 1"]),
    "path to nowhere": (
        edit("stack: pytorch_fsdp", "stack: ./mine.yaml"), [":15:", "mine.yaml", "not exist"]),
    "not a RUN": ("just words\n", [":1:", "no RUN file"]),
    "empty": ("", ["is empty"]),
    "blank": (" \n\n", ["is empty"]),
    "truncated": (GOOD.replace("cluster:\n  node: dgx_h100\n  num_nodes: 1\n", "cluster: {node"),
                  ["not valid YAML"]),
    "binary": (b"\x7fELF\x02\x01\x00\x00" + bytes(range(256)), ["not UTF-8"]),
    "zero bytes": (b"schema_version: 1\n\0\0", [":2:", "binary"]),
    "UTF-16": (GOOD.encode("utf-16"), ["not UTF-8"]),
    "YAML bomb": (
        "a: &a [x, x, x]\nb: &b [*a, *a, *a]\nc: &c [*b, *b, *b]\n", [":1:", "anchors"]),
    "deep": ("[" * 100_000, ["run.yaml:1"]),
    "python tag": ("!!python/object/apply:os.system ['true']", [":1:", "tag"]),
}  # fmt: skip


def outcome(capsys, *arguments):
    code = main(list(arguments))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def assert_one_sentence(code, out, err):
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("perfmodel: ")
    assert "Traceback" not in err
    assert "internal error" not in err


@pytest.mark.parametrize("case", TABLE)
def test_bad_run_files(case, tmp_path, capsys):
    content, words = TABLE[case]
    path = tmp_path / "run.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code, out, err = outcome(capsys, "predict", str(path))
    assert_one_sentence(code, out, err)
    for word in words:
        assert word in err


def test_a_one_gigabyte_file_is_refused_by_its_size(tmp_path, capsys):
    path = tmp_path / "run.yaml"
    with path.open("wb") as file:
        file.truncate(1_000_000_000)
    code, out, err = outcome(capsys, "predict", str(path))
    assert_one_sentence(code, out, err)
    assert "too large" in err


@pytest.mark.parametrize("target", ["absent.yaml", "."])
def test_what_is_not_a_file(target, tmp_path, capsys):
    assert_one_sentence(*outcome(capsys, "predict", str(tmp_path / target)))


# text of a JSON-lines file, the sentence
ROWS = {
    "not JSON": (ROW + "{oops\n", ["runs.jsonl:2", "not valid JSON"]),
    "not an object": (ROW + "[1]\n", ["runs.jsonl:2", "JSON object"]),
    "no such row": (ROW, ["has no row 'r2'", "r1"]),
    "deep": ("[" * 100_000 + "\n", ["runs.jsonl"]),
}


@pytest.mark.parametrize("case", ROWS)
def test_bad_files_of_published_runs(case, tmp_path, capsys):
    text, words = ROWS[case]
    path = tmp_path / "runs.jsonl"
    path.write_text(text)
    code, out, err = outcome(capsys, "predict", str(path), "--row", "r2")
    assert_one_sentence(code, out, err)
    for word in words:
        assert word in err


FIELDS = {
    "GPU": ('"A100"', '"A1000X"', "A1000X"),
    "number of GPUs": ('"num_gpus": 1', '"num_gpus": null', "num_gpus"),
    "batch": ('"global_batch": 8', '"global_batch": -8', "global_batch -8"),
    "batch missing": ('"global_batch": 8', '"global_batch": null', "global_batch is missing"),
    "layers": ('"layers": 2', '"layers": "two"', "layers 'two'"),
    "family": ('"transformer"', '"diffusion"', "diffusion"),
    "precision": ('"bf16"', '"posit8"', "posit8"),
    "parallelism": ('{"dp": 1}', "null", "parallelism None"),
}


@pytest.mark.parametrize("case", FIELDS)
def test_bad_fields_of_a_published_run(case, tmp_path, capsys):
    old, new, word = FIELDS[case]
    path = tmp_path / "row.json"
    path.write_text(edit(old, new, ROW))
    code, out, err = outcome(capsys, "predict", str(path))
    assert_one_sentence(code, out, err)
    assert word in err
