import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from kernel_tables import add_table, gemm_table, labelled_table

from perfmodel.cost.kernels import FittedKernelModel, KernelModel
from perfmodel.cost.kernels.bundle import KernelBundle
from perfmodel.errors import InputError
from perfmodel.hardware.aliases import resolve_gpu
from perfmodel.hardware.records import Cluster, Dtype, FabricKind, Network, NetworkKind, Node
from perfmodel.measure.kernels.evaluate import evaluate_kernels
from perfmodel.measure.kernels.fit import fit_kernels
from perfmodel.program.work import Attention, Gemm, Memory


def test_known_gpus_are_predicted_on_unseen_shapes(small_bundle):
    result = evaluate_kernels([gemm_table(200, seed=5)], bundle=small_bundle)
    assert result.refused == 0
    assert result.by_op["linear"]["geomean_error"] < 0.12
    assert result.by_op["linear"]["rows"] == 600


def test_intervals_contain_most_rows(small_bundle):
    result = evaluate_kernels([gemm_table(400, seed=6)], bundle=small_bundle)
    assert 0.6 < result.by_op["linear"]["coverage"] <= 1.0
    rows = result.rows
    assert (rows.lo_us < rows.predicted_us).all()
    assert (rows.predicted_us < rows.hi_us).all()


def test_bundle_holds_no_pickle_and_loads_again(small_bundle):
    for path in small_bundle.glob("*.npz"):
        with np.load(path, allow_pickle=False) as stored:
            assert all(stored[name].dtype != object for name in stored.files)
    manifest = json.loads((small_bundle / "manifest.json").read_text())
    assert manifest["sources"]["own"]["rows"] == 1800
    assert set(manifest["models"]) == {"gemm.fp16", "elementwise"}
    assert KernelBundle.load(small_bundle).model("gemm.bf16") is None


def test_bundle_predicts_the_same_from_disk_as_from_memory(small_recipes, tmp_path):
    table = labelled_table()
    fitted = fit_kernels([table], tmp_path)
    memory = evaluate_kernels([table], bundle=fitted).rows.predicted_us
    disk = evaluate_kernels([table], bundle=tmp_path).rows.predicted_us
    assert np.array_equal(memory, disk)
    assert evaluate_kernels([table], bundle=tmp_path).by_op["linear"]["geomean_error"] < 0.1


def test_fitting_twice_gives_identical_files(small_recipes, tmp_path):
    for name in ("first", "second"):
        fit_kernels([add_table(80)], tmp_path / name)
    for file in sorted((tmp_path / "first").iterdir()):
        assert file.read_bytes() == (tmp_path / "second" / file.name).read_bytes(), file.name


def test_unseen_gpu_is_predicted_from_its_data_sheet_with_a_wider_interval(small_bundle):
    table = gemm_table(100).query("gpu == 'A100-SXM4-80GB'")
    known = evaluate_kernels([table], bundle=small_bundle).rows
    unseen = evaluate_kernels([table.assign(gpu="L40S")], bundle=small_bundle).rows
    assert not unseen.refused.any()
    width_known = np.log(known.hi_us / known.lo_us).mean()
    assert np.log(unseen.hi_us / unseen.lo_us).mean() > width_known


def test_sibling_is_not_treated_as_unseen(small_bundle):
    table = gemm_table(100).query("gpu == 'H100-SXM5-80GB'")
    known = evaluate_kernels([table], bundle=small_bundle).rows
    sibling = evaluate_kernels([table.assign(gpu="H200-SXM-141GB")], bundle=small_bundle).rows
    assert np.log(sibling.hi_us / sibling.lo_us).mean() == pytest.approx(
        np.log(known.hi_us / known.lo_us).mean(), rel=0.3
    )


def test_few_rows_adapt_an_unseen_gpu(small_bundle, tmp_path):
    slow = gemm_table(300, seed=3, gpus=("A100-SXM4-80GB",)).assign(gpu="L40S")
    slow["latency_us"] *= 2.5
    before = evaluate_kernels([slow], bundle=small_bundle).by_op["linear"]["geomean_error"]
    fit_kernels([slow.head(20)], tmp_path / "adapted", base=small_bundle)
    after = evaluate_kernels([slow.tail(280)], bundle=tmp_path / "adapted")
    assert after.by_op["linear"]["geomean_error"] < min(before, 0.3)


@pytest.mark.parametrize("protocol", ["shape", "group", "gpu", "source"])
def test_every_row_is_predicted_when_left_out(small_recipes, protocol):
    table = gemm_table(60, dtype="fp8", gpus=("A100-SXM4-80GB", "H100-SXM5-80GB"))
    result = evaluate_kernels([table], leave_out=protocol)
    assert result.refused == 0
    assert np.isfinite(result.rows.predicted_us).all()


def test_rows_are_left_out_for_real(small_recipes):
    table = gemm_table(200, gpus=("A100-SXM4-80GB", "H100-SXM5-80GB"))
    spoilt = table.copy()
    hopper = spoilt.gpu == "H100-SXM5-80GB"
    spoilt.loc[hopper, "latency_us"] *= 7.0
    clean = evaluate_kernels([table], leave_out="gpu").rows
    dirty = evaluate_kernels([spoilt], leave_out="gpu").rows
    assert np.allclose(clean.predicted_us[hopper], dirty.predicted_us[hopper])


BAD = {
    "zero": {"m": 0}, "negative": {"k": -5}, "missing": {"n": np.nan}, "absurd": {"m": 1e30},
    "product": {"m": 1e11, "n": 1e11, "k": 1e11}, "op": {"op": "matmul3"}, "gpu": {"gpu": "Z80"},
    "dtype": {"dtype": "fp7"}, "direction": {"direction": "sideways"},
}  # fmt: skip


@pytest.mark.parametrize("change", BAD.values(), ids=BAD.keys())
def test_bad_rows_are_refused_by_name_and_others_are_not(small_bundle, change):
    good = gemm_table(3, gpus=("A100-SXM4-80GB",))
    bad = good.head(1).assign(**change)
    result = evaluate_kernels([pd.concat([good, bad])], bundle=small_bundle)
    assert result.rows.refused.tolist() == [False, False, False, True]
    field, value = next(iter(change.items()))
    text = result.rows.refusal.iloc[3]
    assert text
    assert field in ("m", "n", "k") or str(value) in text


def test_tables_and_bundles_that_are_none_are_refused(tmp_path, small_bundle):
    with pytest.raises(InputError, match="no column op"):
        evaluate_kernels([pd.DataFrame({"gpu": ["T4"], "dtype": ["fp32"]})], bundle=small_bundle)
    with pytest.raises(InputError, match=r"manifest\.json"):
        KernelBundle.load(tmp_path)
    with pytest.raises(InputError, match="shapes"):
        evaluate_kernels([gemm_table(3)], leave_out="shapes")
    with pytest.raises(InputError, match="no row can be fitted"):
        fit_kernels([gemm_table(3).assign(latency_us=0.0)], tmp_path)


def cluster_of(name):
    node = Node(
        name="n", title="n", gpu=resolve_gpu(name)[0], num_gpus=1, fabric=FabricKind.NONE,
        fabric_bytes_per_s=0.0, nvlink_domain_gpus=1,
    )  # fmt: skip
    network = Network(
        name="none", title="none", kind=NetworkKind.NONE, port_bytes_per_s=0.0, latency_s=0.0,
        step_latency_s=0.0, achieved_fraction=1.0, has_gpudirect=False,
    )  # fmt: skip
    return Cluster(node=node, network=network, num_nodes=1, gpus_per_node=1, node_bytes_per_s=0.0)


def test_fitted_model_prices_what_it_knows_and_leaves_the_rest(small_bundle):
    cluster = cluster_of("A100-SXM4-80GB")
    attention = Attention(
        batch=1, heads=8, kv_heads=8, query_len=512, key_len=512, head_dim=64, value_dim=64,
        causal=True,
    )  # fmt: skip
    works = [Gemm(m=2048, n=2048, k=2048, dtype=Dtype.BF16), attention, Memory(num_bytes=1e9)]
    fitted = FittedKernelModel(small_bundle).estimate(works, cluster)
    analytic = KernelModel().estimate(works, cluster)
    law = 2 * 2048**3 / 260e12 + 3e-6
    assert fitted.seconds[0, 0] == pytest.approx(law, rel=0.15)
    assert fitted.seconds[1, 0] == analytic.seconds[1, 0]
    assert fitted.seconds[2, 0] == pytest.approx(1e9 / 1.6e12, rel=0.1)


def test_fitted_model_takes_scenarios_and_idle_work(small_bundle):
    cluster = cluster_of("A100-SXM4-80GB")
    rows = np.array([0.0, 512.0, 4096.0])
    works = [Gemm(m=rows, n=1024, k=1024, dtype=Dtype.FP16), Gemm(m=512, n=1024, k=1024)]
    got = FittedKernelModel(small_bundle).estimate(works, cluster)
    assert got.seconds.shape == (2, 3)
    assert got.seconds[0, 2] > got.seconds[0, 1] > 0
    assert got.seconds[1, 0] == pytest.approx(got.seconds[0, 1])


def test_fitted_model_takes_gpus_that_no_catalogue_has(small_bundle):
    cluster = cluster_of("A100-SXM4-80GB")
    own = dataclasses.replace(cluster.gpu, name="mine", silicon_family="mine")
    node = dataclasses.replace(cluster.node, gpu=own)
    mine = dataclasses.replace(cluster, node=node)
    got = FittedKernelModel(small_bundle).estimate([Gemm(m=512, n=512, k=512)], mine)
    assert got.seconds[0, 0] > 0
    assert "was not measured" in got.warnings[0]


def test_gemm_backward_is_its_two_transposed_gemms(small_bundle):
    forward = gemm_table(40, gpus=("A100-SXM4-80GB",))
    inputs = forward.assign(n=forward.k, k=forward.n)
    weights = forward.assign(m=forward.k, k=forward.m)
    both = [evaluate_kernels([t], bundle=small_bundle).rows.predicted_us for t in (inputs, weights)]
    back = evaluate_kernels([forward.assign(direction="bwd")], bundle=small_bundle).rows
    assert np.allclose(back.predicted_us, both[0] + both[1])
    plain = evaluate_kernels([forward], bundle=small_bundle).rows
    assert np.log(back.hi_us / back.lo_us).mean() > np.log(plain.hi_us / plain.lo_us).mean()


def test_accumulating_a_gradient_is_priced_by_traffic(small_bundle):
    table = gemm_table(40, gpus=("A100-SXM4-80GB",)).assign(direction="wgrad_accumulate")
    rows = evaluate_kernels([table], bundle=small_bundle).rows
    traffic = 3 * 2 * rows.n * rows.k / (0.8 * 2039e9) * 1e6
    assert np.allclose(rows.predicted_us, traffic + 15)


def test_shapes_beyond_the_measured_range_are_flagged(small_bundle):
    cluster = cluster_of("A100-SXM4-80GB")
    model = FittedKernelModel(small_bundle)
    inside = model.estimate([Gemm(m=512, n=512, k=512, dtype=Dtype.FP16)], cluster)
    outside = model.estimate([Gemm(m=512, n=512, k=1e6, dtype=Dtype.FP16)], cluster)
    assert not inside.warnings
    assert "k 1e+06 is outside the measured 64 to 4096" in outside.warnings[0]
