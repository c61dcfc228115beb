"""Fitting, evaluating and own measurements on tables whose truth is known."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from collective_logs import log
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.cost.collectives import CollectiveModel, closed_form_seconds, comm_path
from perfmodel.cost.collectives.bundle import default_folder, load_residual
from perfmodel.cost.collectives.curves import SWITCH_ZONE_BYTES
from perfmodel.cost.collectives.residual import KNOTS, Residual, hats
from perfmodel.errors import InputError
from perfmodel.hardware.clusters import cluster_from_names
from perfmodel.hardware.records import Dtype, GroupShape
from perfmodel.measure.collectives import (
    curve_table,
    evaluate_collectives,
    fit_collectives,
    own_curves,
    plot_curves,
    read_own_logs,
)
from perfmodel.measure.collectives.platforms import cluster_of, group_of
from perfmodel.measure.collectives.table import kind_of

SIZES = 2.0 ** np.arange(10, 31)
MACHINES = (
    ("NVIDIA A100-SXM4-80GB", "NVLink3", 1, (2, 4, 8)),
    ("NVIDIA H100 80GB HBM3", "NVLink4", 1, (2, 4, 8)),
    ("NVIDIA H100 80GB HBM3", "NVLink4+IB", 2, (8,)),
)


def synthetic(factor: float = 1.5, sources: int = 3, noise: float = 0.0) -> pd.DataFrame:
    """Closed form times a factor, measured by several sources."""
    random = np.random.default_rng(7)
    rows = []
    for source in range(sources):
        for gpu, link, nodes, counts in MACHINES:
            for local in counts:
                for name in ("all_reduce", "all_gather", "alltoall"):
                    path = comm_path(cluster_of(gpu, link, nodes, local), group_of(nodes, local))
                    time = closed_form_seconds(kind_of(name), SIZES, path, Dtype.FP16) * factor
                    time = time * np.exp(noise * random.standard_normal(len(SIZES)))
                    rows.append(
                        pd.DataFrame(
                            {
                                "source": f"s{source}", "gpu": gpu, "link": link, "nodes": nodes,
                                "gpus_per_node": local, "n_ranks": nodes * local,
                                "collective": name, "dtype": "half", "redop": "sum",
                                "bytes": SIZES, "time_us": time * 1e6, "in_place": 0,
                                "nccl_version": None,
                                "run": f"{source}/{gpu}/{link}/{local}/{name}",
                            }
                        )
                    )  # fmt: skip
    return pd.concat(rows, ignore_index=True)


TABLE = synthetic()


def test_fit_recovers_a_factor_that_all_sources_share(tmp_path):
    fitted = fit_collectives(TABLE, tmp_path / "bundle")
    result = evaluate_collectives(TABLE, bundle=tmp_path / "bundle")
    assert result.summary["geomean_error"] < 0.05
    assert result.refused == 0
    assert fitted.manifest["sources"]["s0"]["rows"] == len(TABLE) // 3
    assert load_residual(tmp_path / "bundle").coefficients.keys() == (
        fitted.residual.coefficients.keys()
    )


def test_left_out_source_is_predicted_from_the_others():
    result = evaluate_collectives(TABLE, leave_out="source")
    assert result.summary["geomean_error"] < 0.08
    assert len(result.rows) == len(TABLE)
    assert result.rows["held_out"].all()
    assert set(result.by_op) == {"all_reduce", "all_gather", "alltoall"}
    for figures in (result.summary, *result.by_gpu.values()):
        assert {"rows", "geomean_error", "mape", "median", "p90", "coverage"} <= figures.keys()


def test_single_unknown_source_falls_back_on_the_shipped_bundle():
    alone = synthetic(sources=1)
    shipped = evaluate_collectives(alone).rows["predicted_us"]
    left_out = evaluate_collectives(alone, leave_out="source").rows["predicted_us"]
    assert left_out.to_numpy() == pytest.approx(shipped.to_numpy())


@pytest.mark.parametrize(
    ("protocol", "bound", "share"),
    [
        ("sizes", 0.02, 1.0),
        ("larger", 0.02, 0.14),
        ("ranks", 0.10, 0.28),
        ("three-points", 0.02, 0.8),
    ],
)
def test_protocols_predict_only_what_they_hold_out(protocol, bound, share):
    result = evaluate_collectives(TABLE, protocol=protocol)
    held = result.rows["held_out"]
    assert held.mean() == pytest.approx(share, abs=0.07)
    assert result.rows.loc[~held, "predicted_us"].isna().all()
    assert result.summary["geomean_error"] < bound


def test_own_points_do_not_leak_into_their_own_prediction():
    wild = TABLE.copy()
    position = wild.index[5]
    wild.loc[position, "time_us"] *= 50
    predicted = evaluate_collectives(wild, protocol="sizes").rows.loc[position, "predicted_us"]
    expected = evaluate_collectives(TABLE, protocol="sizes").rows.loc[position, "predicted_us"]
    assert predicted == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpu": "no such card"}, "unknown GPU"),
        ({"gpu": None}, "does not name a GPU"),
        ({"collective": "gather"}, "collective"),
        ({"n_ranks": -1}, "n_ranks"),
        ({"n_ranks": 7, "nodes": 2}, "do not divide"),
        ({"bytes": 0.0}, "bytes"),
    ],
)
def test_rows_that_cannot_be_placed_are_refused_with_a_reason(change, words):
    table = TABLE.head(3).assign(**{k: [v] * 3 for k, v in change.items()})
    result = evaluate_collectives(table)
    assert result.refused == 3
    assert result.rows["refused"].all()
    assert all(words in reason for reason in result.rows["reason"])


def test_bad_requests_are_one_sentence():
    with pytest.raises(InputError, match="lacks the columns"):
        evaluate_collectives(TABLE.drop(columns="bytes"))
    with pytest.raises(InputError, match="protocol 'x' is not one of"):
        evaluate_collectives(TABLE, protocol="x")
    with pytest.raises(InputError, match="leave-out 'x' is not one of"):
        evaluate_collectives(TABLE, leave_out="x")
    with pytest.raises(InputError, match="no row"):
        fit_collectives(TABLE.assign(gpu="nothing known"))


def test_hats_interpolate_and_sum_to_one():
    z = np.linspace(KNOTS[0], KNOTS[-1], 50)
    assert hats(z).sum(axis=1) == pytest.approx(np.ones(50))
    assert hats(np.array(KNOTS)) == pytest.approx(np.eye(len(KNOTS)))


def test_residual_never_extrapolates():
    residual = load_residual(default_folder())
    path = comm_path(cluster_from_names("dgx_a100_80"), GroupShape(ranks_per_node=8, num_nodes=1))
    far = residual.log_ratio(kind_of("all_reduce"), np.array([1e12, 1e15]), path, Dtype.BF16)
    assert far[0] == far[1]


def test_shipped_bundle_has_a_manifest_and_no_rows():
    manifest = json.loads((default_folder() / "manifest.json").read_text())
    assert {"sources", "rows", "held_out_source_error", "ranges", "libraries", "command"} <= (
        manifest.keys()
    )
    assert (default_folder() / "residual.json").stat().st_size < 200_000


@pytest.mark.parametrize("text", ["", "{", '{"schema_version": 9}', "[]", '{"schema_version": 1}'])
def test_broken_bundle_is_refused(tmp_path, text):
    (tmp_path / "residual.json").write_text(text)
    with pytest.raises(InputError):
        load_residual(tmp_path)


CLUSTER = cluster_from_names("dgx_a100_80", 2)


def curves_from(text: str, tmp_path):
    path = tmp_path / "own.log"
    path.write_text(text)
    return read_own_logs([path], CLUSTER)


def test_own_log_is_followed_and_named(tmp_path):
    own = curves_from(log("all_reduce", ranks=16, per_node=8), tmp_path)
    assert "all_reduce on 16 ranks" in own.notes[0]
    model = CollectiveModel(Residual(), own.curves)
    curve = own.curves[0]
    seconds, sigma = model.predict(curve.kind, curve.num_bytes, curve.path, curve.dtype)
    assert seconds == pytest.approx(curve.seconds, rel=0.03)
    other = replace(curve.path, num_ranks=32, num_nodes=4)
    _, carried = model.predict(curve.kind, curve.num_bytes, other, curve.dtype)
    assert (carried > sigma).all()


def test_log_without_a_usable_row_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no collective timing"):
        curves_from("nothing\n", tmp_path)


def test_three_own_points_move_the_whole_curve():
    path = comm_path(CLUSTER, GroupShape(ranks_per_node=8, num_nodes=2))
    kind = kind_of("all_reduce")
    three = np.array([8192.0, 1048576.0, 268435456.0])
    table = pd.DataFrame(
        {
            "collective": "all_reduce", "dtype": "half", "n_ranks": 16, "nodes": 2, "bytes": three,
            "time_us": closed_form_seconds(kind, three, path) * 3e6,
        }
    )  # fmt: skip
    curves, skipped = own_curves(table, CLUSTER)
    assert skipped == ()
    size = np.array([512.0, 65536.0, 1e9])
    seconds, _ = CollectiveModel(own=curves).predict(kind, size, path, Dtype.FP16)
    assert seconds == pytest.approx(3 * closed_form_seconds(kind, size, path), rel=0.02)


@given(
    st.lists(st.floats(-0.7, 0.7), min_size=3, max_size=12),
    st.floats(1, 1e12),
    st.floats(1, 1e12),
)
@settings(max_examples=100, deadline=None)
def test_own_curve_is_continuous_and_rises_outside_the_switch_zone(logs, a, b):
    path = comm_path(CLUSTER, GroupShape(ranks_per_node=8, num_nodes=2))
    kind = kind_of("all_gather")
    sizes = np.geomspace(1e3, 1e9, len(logs))
    times = closed_form_seconds(kind, sizes, path) * np.exp(logs)
    table = pd.DataFrame(
        {"collective": "all_gather", "dtype": "half", "n_ranks": 16, "nodes": 2, "bytes": sizes,
         "time_us": times * 1e6}
    )  # fmt: skip
    model = CollectiveModel(own=own_curves(table, CLUSTER)[0])
    low, high = sorted((a, b))
    seconds, _ = model.predict(kind, np.array([low, high, low * 1.0001]), path, Dtype.FP16)
    assert abs(math.log(seconds[2] / seconds[0])) < 0.01
    zone_low, zone_high = SWITCH_ZONE_BYTES
    same_side = high <= zone_low or low >= zone_high * 2**0.25
    if same_side:
        assert seconds[0] <= seconds[1] * (1 + 1e-9)


def test_curve_table_and_plot(tmp_path):
    own = curves_from(log("all_reduce", ranks=16, per_node=8), tmp_path)
    model = CollectiveModel(own=own.curves)
    table = curve_table(own.curves, model)
    assert table["measured_us"].notna().sum() == 5
    assert (table["lo_us"] <= table["predicted_us"]).all()
    with pytest.raises(InputError, match="no measured curve"):
        curve_table((), model)


def test_plot_is_written(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra perfmodel[report]")
    own = curves_from(log("all_reduce", ranks=16, per_node=8), tmp_path)
    plot_curves(own.curves, CollectiveModel(own=own.curves), tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").stat().st_size > 1000
