"""Validate and calibrate on small sets of published runs made up here."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from perfmodel.cost.execution import ExecutionBundle, load_execution, write_execution
from perfmodel.cost.parameters import ParameterSet
from perfmodel.cost.spread import SpreadTable
from perfmodel.errors import InputError
from perfmodel.measure.calibrate import calibrate
from perfmodel.measure.fanout import Pool
from perfmodel.measure.intervals import build_execution
from perfmodel.measure.sensitivity import Question, answer
from perfmodel.measure.validate import matches, validate

EMPTY = ExecutionBundle()


def row(name: str, *, layers: int = 12, group: str = "paper|gpt|A100", **changes: Any) -> dict:
    facts: dict[str, Any] = {
        "id": name,
        "family": "transformer",
        "group": group,
        "model_name": "gpt",
        "model": {
            "arch": "gpt", "layers": layers, "hidden": 2048, "heads": 16, "kv_heads": 16,
            "ffn": 8192, "vocab": 51200, "seq": 2048, "gated_mlp": False,
        },
        "global_batch": 32,
        "batch_unit": "samples",
        "micro_batch": 4,
        "precision": "bf16",
        "parallelism": {
            "dp": 8, "tp": 1, "pp": 1, "vp": None, "cp": 1, "ep": 1, "zero_stage": 0,
            "fsdp": None, "sequence_parallel": None, "activation_recompute": "none",
        },
        "optimizer": "Adam",
        "software": "Megatron-LM 2022",
        "hardware": {
            "gpu": "A100-SXM-80GB", "num_gpus": 8, "gpus_per_node": 8, "nodes": 1,
            "intra_node": "NVLink3/NVSwitch", "inter_node": None,
        },
        "measured": {"metric": "iteration_time", "value": 1.0, "unit": "s"},
        "iteration_time_ms": 1000.0,
        "source": "a paper",
        "confidence": "high",
        "scale_class": "intra-node",
    }  # fmt: skip
    return facts | changes


def measured_by(values: dict[str, float], rows: list[dict]) -> list[dict]:
    """Rows whose measured time is what the model says under `values`."""
    out = []
    for r in rows:
        found = answer(Question(row=r, values=values))
        assert found.error is None
        out.append(r | {"iteration_time_ms": found.seconds * 1e3})
    return out


ROWS = [
    row(f"{group}-{layers}-{batch}", layers=layers, group=f"{group}|gpt|A100", global_batch=batch)
    for group in ("one", "two", "three")
    for layers in (4, 8, 16)
    for batch in (32, 64)
]


def test_a_bad_row_is_listed_with_a_sentence_and_the_rest_is_predicted() -> None:
    bad = row("bad", hardware={"gpu": "no such chip", "num_gpus": 8})
    result = validate([row("good"), bad], bundle=EMPTY, progress=None)
    assert [r["refused"] is None for r in result.rows] == [True, False]
    assert "no such chip" in result.rows[1]["refused"]
    assert result.summary["rows"] == 1
    assert result.summary["failed"] == 1
    json.dumps(result.to_dict())


def test_every_row_has_the_contract_keys_and_an_interval_around_its_prediction() -> None:
    (found,) = validate([row("x")], bundle=EMPTY, progress=None).rows
    assert set(found) == {
        "id", "group", "family", "gpu", "confidence", "measured_ms", "predicted_ms", "interval_ms",
        "error", "refused",
    }  # fmt: skip
    assert found["error"] == pytest.approx(found["predicted_ms"] / found["measured_ms"] - 1)
    assert found["interval_ms"][0] < found["predicted_ms"] < found["interval_ms"][1]


def test_confidence_and_where_select_rows() -> None:
    rows = [row("a"), row("b", confidence="low"), row("c", group="other|gpt|A100")]
    assert len(validate(rows, bundle=EMPTY, progress=None).rows) == 2
    assert len(validate(rows, bundle=EMPTY, progress=None, min_confidence="low").rows) == 3
    only = validate(rows, bundle=EMPTY, progress=None, where="source=other|third,family=trans*")
    assert [r["id"] for r in only.rows] == ["c"]


@pytest.mark.parametrize(
    "options",
    [
        {"min_confidence": "certain"},
        {"leave_out": "row"},
        {"where": "colour=red"},
        {"where": "family"},
        {"by": "colour"},
    ],
)
def test_unknown_options_are_refused_in_one_sentence(options: dict[str, str]) -> None:
    with pytest.raises(InputError):
        validate([row("a")], bundle=EMPTY, progress=None, **options)


def test_breakdown_by_another_key() -> None:
    result = validate([row("a"), row("b")], bundle=EMPTY, progress=None, by="precision")
    assert result.summary["by_precision"]["bf16"]["rows"] == 2


def test_where_matches_patterns_without_case() -> None:
    assert matches(row("a"), "gpu=a100*")
    assert not matches(row("a"), "gpu=h100*")
    assert matches(row("a"), None)


def test_calibration_explains_slower_products() -> None:
    name = "gemm.ampere.bf16"
    rows = measured_by({name: 1.15}, ROWS)
    fitted = calibrate(rows, pool=Pool(1))
    # Equal models cannot tell products from the kernels between them, so others move too.
    assert fitted.values[name] > 1.02
    assert fitted.after["geomean_error_factor"] < 1.02 < fitted.before["geomean_error_factor"]
    (listed,) = [p for p in fitted.parameters if p["name"] == name]
    assert 0.1 <= listed["information"] <= 1
    assert listed["prior"] == 1.0


def test_held_out_groups_are_predicted_with_parameters_of_the_others() -> None:
    others = measured_by({"gemm.ampere.bf16": 1.15}, ROWS[6:])
    odd = [r | {"iteration_time_ms": r["iteration_time_ms"] * 3} for r in measured_by({}, ROWS[:6])]
    held = validate(odd + others, bundle=EMPTY, progress=None, leave_out="group", workers=1)
    alone = dict(calibrate(others, pool=Pool(1)).values)
    for found, r in zip(held.rows[:6], odd, strict=True):
        expected = answer(Question(row=r, values=alone)).seconds * 1e3
        assert found["predicted_ms"] == pytest.approx(expected, rel=0.02)


def test_two_processes_give_what_one_gives() -> None:
    rows = [row(f"r{i}", layers=2 + i % 5) for i in range(41)]
    one = validate(rows, bundle=EMPTY, progress=None, workers=1)
    two = validate(rows, bundle=EMPTY, progress=None, workers=2)
    assert one.to_dict() == two.to_dict()


def test_an_interrupted_validation_keeps_what_is_done() -> None:
    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    rows = [row(f"r{i}") for i in range(4)]
    result = validate(rows, bundle=EMPTY, progress=stop, workers=1)
    assert not result.is_complete
    assert len(result.rows) == 1
    assert result.summary["interrupted"]


def test_a_bundle_survives_a_round_trip(tmp_path) -> None:
    bundle = ExecutionBundle(
        parameters=ParameterSet(values={"gemm.ampere.bf16": 1.1}),
        spread=SpreadTable(quantiles={"known": (0.12, 300)}),
        manifest={"rows": 300},
    )
    write_execution(bundle, tmp_path / "b" / "bundle.json")
    assert load_execution(tmp_path / "b" / "bundle.json") == bundle


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", '{"schema_version": 9}', '{"schema_version": 1, "parameters": []}',
        '{"schema_version": 1, "parameters": {"a": "x"}, "spread": {}}',
        '{"schema_version": 1, "parameters": {"a": 1e9}, "spread": {}}',
        '{"schema_version": 1, "parameters": {"a": NaN}, "spread": {}}',
    ],
)  # fmt: skip
def test_a_damaged_bundle_is_one_sentence(tmp_path, text: str) -> None:
    file = tmp_path / "bundle.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"bundle\.json"):
        load_execution(file)


def test_sensitivities_are_shares_of_the_iteration() -> None:
    found = answer(Question(row=row("x"), values={}, with_shares=True))
    assert all(-0.01 <= s <= 1.01 for s in found.shares.values())
    assert found.shares["gemm.ampere.bf16"] > 0.2
    assert math.isfinite(found.seconds)


def test_alternatives_are_what_separate_questions_answer() -> None:
    values = {"gemm.ampere.bf16": 1.2, "host.all": 0.5}
    other = {"elementwise.all": 1.3}
    both = answer(Question(row=row("x"), values=values, alternatives=(other, {})))
    expected = [answer(Question(row=row("x"), values=v)).seconds for v in (values, other, {})]
    assert [both.seconds, *both.alternatives] == pytest.approx(expected, rel=1e-6)


def test_a_bundle_is_built_from_held_out_predictions() -> None:
    rows = measured_by({"gemm.ampere.bf16": 1.15}, ROWS)
    built = build_execution(rows, data=["own"], command="none", pool=Pool(1))
    assert set(built.protocols) == {
        "priors", "in_sample", "leave_group_out", "leave_source_out", "stack_unknown",
    }  # fmt: skip
    held = validate(rows, bundle=EMPTY, progress=None, leave_out="group", workers=1)
    ours = [a.seconds * 1e3 for a in built.protocols["leave_group_out"]]
    assert ours == pytest.approx([r["predicted_ms"] for r in held.rows])
    assert built.bundle.spread.quantiles["known"][1] == len(rows)
    assert built.bundle.manifest["rows"] == len(rows)
