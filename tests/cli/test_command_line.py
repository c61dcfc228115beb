"""The command line as scripts see it: streams, exit codes, JSON keys, no traceback ever."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perfmodel.cli import main
from perfmodel.cli.commands.init import examples
from perfmodel.locations import datasets_path
from perfmodel.run import Run
from perfmodel.schema.models import list_models

EXAMPLES = sorted(examples())
PREDICT_KEYS = {
    "iteration_time_ms", "interval_ms", "throughput", "memory_gib", "fits", "breakdown_ms",
    "critical_path", "bound_by", "mfu", "assumptions", "warnings",
}  # fmt: skip


def call(capsys, *arguments):
    code = main([str(a) for a in arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def example(name):
    return datasets_path("examples", f"{name}.yaml")


def shell(*arguments, **options):
    command = [sys.executable, "-m", "perfmodel", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize("name", EXAMPLES)
def test_predict_answers_with_the_keys_of_the_contract(name, capsys):
    code, out, err = call(capsys, "predict", example(name), "--json")
    document = json.loads(out)
    assert document.keys() >= PREDICT_KEYS
    assert code == (0 if document["fits"] else 1)
    assert err == ""
    low, high = document["interval_ms"]
    assert 0 < low < document["iteration_time_ms"] < high
    assert document["throughput"].keys() == {"value", "unit"}
    assert document["memory_gib"].keys() >= {"peak", "by_rank", "by_part", "capacity"}
    assert sum(document["breakdown_ms"].values()) == pytest.approx(document["iteration_time_ms"])
    pieces = sum(piece["duration_ms"] for piece in document["critical_path"])
    assert pieces == pytest.approx(document["iteration_time_ms"])


def test_predict_prints_a_verdict_then_the_reasons(capsys):
    code, out, err = call(capsys, "predict", example("dlrm_8gpu"), "--explain")
    lines = out.splitlines()
    assert code == 0
    assert err == ""
    assert lines[0].startswith("mlperf_dlrm on 8 x ")
    assert "fits in memory" in lines[0]
    for title in ("Where the", "Memory of the fullest rank", "Bound by", "Critical path"):
        assert any(line.startswith(title) for line in lines)


def test_out_of_memory_is_exit_code_1(tmp_path, capsys):
    path = tmp_path / "run.yaml"
    path.write_text(
        "schema_version: 1\nworkload: {name: llama3_70b, global_batch: 8}\nplan: data_parallel\n"
        "stack: pytorch_fsdp\ncluster: dgx_h100\n"
    )
    code, out, _ = call(capsys, "predict", path)
    assert code == 1
    assert "OUT OF MEMORY" in out.splitlines()[0]


def test_perfetto_writes_a_trace(tmp_path, capsys):
    trace = tmp_path / "trace.json"
    code, _, _ = call(capsys, "predict", example("dlrm_8gpu"), "--perfetto", trace)
    assert code == 0
    assert json.loads(trace.read_text())["traceEvents"]


def test_a_published_run_is_a_run(tmp_path, capsys):
    rows = datasets_path("published_runs", "runs.jsonl")
    lines = map(json.loads, rows.read_text("utf-8").splitlines())
    first = next(row for row in lines if row["hardware"]["num_gpus"] == 1)
    one = tmp_path / "row.json"
    one.write_text(json.dumps(first))
    _, by_id, _ = call(capsys, "predict", rows, "--row", first["id"], "--json")
    _, alone, _ = call(capsys, "predict", one, "--json")
    assert by_id == alone
    assert json.loads(alone).keys() >= PREDICT_KEYS


@pytest.mark.parametrize("section", ["gpus", "nodes", "networks", "models", "stacks"])
def test_catalogue_sections(section, capsys):
    code, out, _ = call(capsys, "catalogue", section)
    assert code == 0
    _, as_json, _ = call(capsys, "catalogue", section, "--json")
    rows = json.loads(as_json)[section]
    assert len(out.splitlines()) == len(rows) + 1
    assert all(row["name"] in out for row in rows)


def test_catalogue_in_short_names_everything(capsys):
    code, out, _ = call(capsys, "catalogue")
    assert code == 0
    for name in ("a100_sxm4_80", "dgx_h100", "ib_ndr", "gpt3_175b", "megatron_core"):
        assert name in out


@pytest.mark.parametrize("name", [*list_models(), *EXAMPLES])
def test_init_writes_a_file_that_loads(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = call(capsys, "init", name)
    assert code == 0
    assert f"{name}.yaml" in out
    run = Run.load(tmp_path / f"{name}.yaml")
    assert run.cluster.num_gpus >= 8
    assert not run.warnings


def test_init_does_not_overwrite(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llama3_8b.yaml").write_text("mine")
    code, _, err = call(capsys, "init")
    assert code == 2
    assert "exists already" in err
    assert (tmp_path / "llama3_8b.yaml").read_text() == "mine"
    assert call(capsys, "init", "--force")[0] == 0


def test_init_offers_the_nearest_name(capsys):
    code, _, err = call(capsys, "init", "lama3_8b", "--out", "unused.yaml")
    assert code == 2
    assert "llama3_8b" in err


def test_validate_compares_a_few_runs(tmp_path, capsys):
    rows = datasets_path("published_runs", "runs.jsonl").read_text("utf-8").splitlines()
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(r for r in rows if '"megatron-lm-readme' in r or '"korth' in r))
    code, out, _ = call(capsys, "validate", few, "--json")
    document = json.loads(out)
    assert code == 0
    assert {"rows", "summary"} <= document.keys()
    keys = {"id", "group", "family", "gpu", "confidence", "measured_ms", "predicted_ms"}
    assert all(row.keys() >= {*keys, "interval_ms", "error"} for row in document["rows"])
    summary = document["summary"]
    assert summary.keys() >= {
        "rows", "groups", "failed", "geomean_error_factor", "bias", "mape", "median_ape",
        "p90_ape", "interval_coverage", "by_family", "by_gpu", "by_source", "by_scale", "sweeps",
    }  # fmt: skip
    code, out, _ = call(capsys, "validate", few, "--where", "id=korth*")
    assert code == 0
    assert "4 runs" in out.splitlines()[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["predct"],
        ["predict"],
        ["predict", "a", "b"],
        ["predict", "a", "--jsn"],
        ["catalogue", "gpu"],
        ["validate", "--where", "colour=red"],
        ["validate", "--min-confidence", "certain"],
        ["calibrate", "absent.jsonl", "--out", "x"],
        [],
    ],
)
def test_bad_usage_is_one_sentence_and_exit_code_2(arguments, capsys):
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = stop.code
    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("perfmodel")


def test_a_misspelt_command_is_offered_the_nearest(capsys):
    with pytest.raises(SystemExit):
        main(["predct"])
    assert "did you mean predict?" in capsys.readouterr().err


def test_an_internal_error_is_one_sentence_that_says_how_to_see_more(capsys, monkeypatch):
    import perfmodel.cli.commands.catalogue as command

    def fail(options):
        raise KeyError("surprise")

    monkeypatch.setattr(command, "run", fail)
    monkeypatch.delenv("PERFMODEL_DEBUG", raising=False)
    code, _, err = call(capsys, "catalogue")
    assert code == 2
    assert err.count("\n") == 1
    assert "PERFMODEL_DEBUG=1" in err
    monkeypatch.setenv("PERFMODEL_DEBUG", "1")
    with pytest.raises(KeyError):
        main(["catalogue"])


def test_a_missing_library_is_exit_code_3(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    code, _, err = call(capsys, "predict", example("dlrm_8gpu"))
    assert code == 3
    assert "PyYAML" in err
    assert err.count("\n") == 1


def test_a_reader_that_leaves_early_is_no_error():
    command = [sys.executable, "-m", "perfmodel", "catalogue", "gpus", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.wait(timeout=30) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_one_sentence():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "perfmodel", "catalogue", "gpus"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "No space left" in done.stderr


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_is_one_sentence(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("schema_version: 1\n")
    path.chmod(0)
    done = shell("predict", path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path):
    done = shell("predict", example("dlrm_8gpu"), "--perfetto", tmp_path / "no" / "trace.json")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_an_interrupt_is_one_sentence(capsys, monkeypatch):
    import perfmodel.cli.commands.catalogue as command

    def interrupt(options):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(command, "run", interrupt)
    code, out, err = call(capsys, "catalogue")
    assert (code, out, err) == (130, "", "perfmodel: interrupted\n")


def test_answers_print_on_a_terminal_without_unicode():
    done = shell("catalogue", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert io.StringIO(done.stdout).readline().isascii()
