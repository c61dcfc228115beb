"""Scores: hand-computed cases, and agreement with the independent scorer where it is at hand."""

from __future__ import annotations

import importlib.util
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.measure.scoring import Outcome, score, score_sweeps, spearman, summarize


def outcome(
    measured: float,
    predicted: float,
    *,
    group: str = "s|m|A100",
    interval: tuple[float, float] | None = None,
    **row: object,
) -> Outcome:
    facts = {
        "id": "x",
        "group": group,
        "family": "transformer",
        "confidence": "high",
        "scale_class": "1",
        "source": "paper line 1",
        "model_name": "m",
        "model": {"layers": 2},
        "global_batch": 8,
        "precision": "bf16",
        "hardware": {"gpu": "A100-SXM-80GB", "num_gpus": 8},
    }
    return Outcome(
        row=facts | row, measured_ms=measured, predicted_ms=predicted, interval_ms=interval
    )


def test_groups_count_equally() -> None:
    rows = [outcome(1, 2, group="a|m|g")] + [outcome(1, 1, group="b|m|g")] * 9
    result = score(rows)
    assert result["geomean_error_factor"] == pytest.approx(math.sqrt(2))
    assert result["row_factor"] == pytest.approx(2**0.1)
    assert result["worst"] == pytest.approx(1.0)


def test_coverage_counts_rows_with_an_interval_only() -> None:
    rows = [outcome(1, 1, interval=(0.5, 2)), outcome(3, 1, interval=(0.5, 2)), outcome(1, 1)]
    assert score(rows)["interval_coverage"] == pytest.approx(0.5)


def test_no_rows_give_counts_not_nan() -> None:
    empty = score([])
    assert (empty["rows"], empty["groups"]) == (0, 0)
    assert set(empty) == set(score([outcome(1, 2)]))
    assert summarize([], failed=3)["failed"] == 3


def test_spearman_of_reversed_and_tied_ranks() -> None:
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 2, 3], [5, 5, 5]) == 0


def test_sweep_regret_is_of_the_plan_predicted_fastest() -> None:
    measured, predicted = [100, 110, 130, 200], [105, 104, 140, 220]
    rows = [outcome(m, p) for m, p in zip(measured, predicted, strict=True)]
    result = score_sweeps(rows)
    assert result["sweeps"] == 1
    assert result["top1_regret"] == pytest.approx(0.1)
    assert result["top1_hits"] == 0


@given(st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=20))
def test_spearman_of_a_monotone_map_is_one(values: list[float]) -> None:
    if len(set(values)) > 1:
        assert spearman(values, [v * 3 for v in values]) == pytest.approx(1)


def _reference():
    corpus = os.environ.get("PERFMODEL_CORPUS")
    path = Path(corpus, "..", "tools", "score_e2e.py") if corpus else None
    if path is None or not path.exists():
        pytest.skip("the independent scorer is not at hand (PERFMODEL_CORPUS unset)")
    spec = importlib.util.spec_from_file_location("score_e2e", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_the_independent_scorer(seed: int) -> None:
    reference = _reference()
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(60):
        measured = float(rng.uniform(1, 100))
        predicted = measured * float(rng.lognormal(0, 0.2))
        rows.append(
            outcome(
                measured,
                predicted,
                group=f"s{rng.integers(3)}|m{rng.integers(3)}|g",
                interval=(predicted * 0.8, predicted * 1.25) if i % 3 else None,
                id=str(i),
                model_name=f"m{rng.integers(4)}",
                iteration_time_ms=measured,
            )
        )
    items = [(o.group, o.log_ratio, o.is_covered) for o in rows]
    theirs, ours = reference.score(items), score(rows)
    names = {
        "rows": "rows", "groups": "groups", "factor": "geomean_error_factor", "bias": "bias",
        "row_factor": "row_factor", "mape": "mape", "median_ape": "median_ape", "p90": "p90_ape",
        "coverage": "interval_coverage",
    }  # fmt: skip
    for name, mine in names.items():
        assert ours[mine] == pytest.approx(theirs[name], abs=6e-4), name
    assert ours["worst"] == pytest.approx(theirs["worst"], abs=6e-3)
    sweeps = reference.sweeps([o.row for o in rows], {o.row["id"]: o.predicted_ms for o in rows})
    mine = score_sweeps(rows)
    assert mine["sweeps"] == sweeps["sweeps"]
    assert mine["spearman"] == pytest.approx(sweeps["spearman"], abs=6e-4)
    assert mine["top1_regret"] == pytest.approx(sweeps["top1_regret"], abs=6e-5)
    assert mine["random_regret"] == pytest.approx(sweeps["random_regret"], abs=6e-5)
    assert mine["top1_hits"] == pytest.approx(sweeps["within5"], abs=6e-4)
