"""`perfmodel predict --comm`: collectives follow the user's log, and the answer says so."""

from __future__ import annotations

import json

import pytest
from collective_logs import log

from perfmodel.cli import main
from perfmodel.locations import datasets_path
from perfmodel.measure.collectives import import_nccl_tests

RUN = str(datasets_path("examples", "dlrm_8gpu.yaml"))


def predict(capsys, *arguments: str) -> tuple[int, dict, str]:
    code = main(["predict", RUN, "--json", *arguments])
    captured = capsys.readouterr()
    return code, json.loads(captured.out) if captured.out else {}, captured.err


def test_own_log_moves_the_prediction_and_is_named(tmp_path, capsys):
    plain = predict(capsys)[1]
    slow = tmp_path / "alltoall.log"
    slow.write_text(log("alltoall"))  # 5 to 9 GB/s where NVSwitch gives 220
    code, answer, _ = predict(capsys, "--comm", str(slow))
    assert code == 0
    assert answer["iteration_time_ms"] > plain["iteration_time_ms"]
    assert any("your own logs" in text for text in answer["assumptions"])
    table = tmp_path / "table.csv"
    import_nccl_tests([slow]).table.to_csv(table, index=False)
    again = predict(capsys, "--comm", str(table))[1]
    assert again["iteration_time_ms"] == pytest.approx(answer["iteration_time_ms"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--comm", "missing.log"), "cannot be read"), (("--plot", "x.svg"), "--comm")],
)
def test_bad_requests_are_one_sentence(capsys, arguments, words):
    code, _, err = predict(capsys, *arguments)
    assert code == 2
    assert words in err
    assert "Traceback" not in err
