import numpy as np
import pytest

from perfmodel.cost.kernels import efficiency, physics
from perfmodel.cost.kernels.correction import coordinates
from perfmodel.cost.kernels.correction import fit as fit_correction
from perfmodel.cost.kernels.families import FAMILIES
from perfmodel.cost.kernels.kinds import Kind, KindTable
from perfmodel.cost.kernels.power import sustained_fraction
from perfmodel.cost.kernels.rows import make_rows, silicon_of
from perfmodel.hardware.aliases import resolve_gpu

SHAPES = {
    "gemm": {"batch": 1, "m": 4096, "n": 4096, "k": 4096},
    "attention": {
        "causal": 1, "batch": 4, "seq_len": 2048, "num_heads": 32, "num_kv_heads": 8,
        "head_dim": 128, "window": 0,
    },
    "experts": {
        "num_tokens": 4096, "hidden_size": 4096, "inter_size": 14336, "topk": 2, "num_experts": 8,
        "moe_tp_size": 1, "moe_ep_size": 1,
    },
    "elementwise": {"rows": 4096, "cols": 4096},
    "norm": {"rows": 4096, "cols": 4096},
    "softmax": {"rows": 4096, "cols": 4096},
    "convolution": {
        "batch": 32, "in_channels": 64, "out_channels": 64, "kernel_size": 3, "image_size": 56,
        "stride": 1, "padding": 1,
    },
    "quantisation": {"rows": 4096, "cols": 4096},
    "embedding": {
        "num_tables": 1, "rows_per_table": 1e6, "dim": 128, "batch": 4096, "pooling": 10,
    },
}  # fmt: skip


def rows_of(family, gpu="A100-SXM4-80GB", dtype="bf16", count=1, **changes):
    shape = {
        k: np.broadcast_to(np.asarray(changes.get(k, v), dtype=float), (count,)).copy()
        for k, v in SHAPES[family.name].items()
    }
    labels = {"op": family.ops[0], "dtype": dtype}
    text = {k: np.full(count, v, dtype=object) for k, v in labels.items()}
    return make_rows(shape, np.full(count, gpu, dtype=object), text)


BY_NAME = {family.name: family for family in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_work_of_every_family_is_finite_and_positive(family):
    work = family.describe(rows_of(family))
    assert work.compute_s[0] > 0
    assert work.num_bytes[0] > 0
    values = {**work.features, **work.sizes}
    assert all(np.isfinite(v[0]) for v in values.values()), values


def test_large_gemm_takes_its_flops_at_the_peak():
    work = BY_NAME["gemm"].describe(rows_of(BY_NAME["gemm"]))
    # 4096 x 4096 in 256 x 128 tiles: 512 tiles, 5 waves of 108 SMs, as long as 540 tiles.
    waves = 2 * 4096**2 * (4096 + 64) * (540 / 512) / 312e12
    assert work.compute_s[0] == pytest.approx(waves, rel=0.05)
    assert work.num_bytes[0] == 3 * 2 * 4096**2


def test_one_tile_more_than_the_sms_costs_a_wave():
    gemm = BY_NAME["gemm"]
    m = np.array([108.0, 109.0]) * 256
    work = gemm.describe(rows_of(gemm, count=2, m=m, n=128, k=65536))
    assert work.compute_s[1] > 1.3 * work.compute_s[0]


def test_causal_attention_does_half_the_work_and_a_window_less():
    attention = BY_NAME["attention"]
    work = attention.describe(
        rows_of(attention, count=3, causal=[0, 1, 1], window=[0, 0, 256], seq_len=16384)
    )
    full, half, window = work.compute_s
    assert half == pytest.approx(full / 2, rel=0.05)
    assert window < half / 10


def test_warm_cache_is_bounded():
    gemm = BY_NAME["gemm"]
    device = rows_of(gemm, count=2).device
    few, many = physics.warm_bytes(np.array([1e6, 1e12]), device)
    assert few == pytest.approx(1e6 * physics.L2_COST)
    assert many == pytest.approx(1e12, rel=1e-4)


def test_power_limit_binds_where_the_board_is_small():
    limits = {n: sustained_fraction(resolve_gpu(n)[0], "fp32") for n in ("L4", "T4", "H100-SXM5")}
    assert limits["L4"] < 0.5
    assert limits["T4"] < 0.6
    assert limits["H100-SXM5"] == 1.0


def test_efficiencies_are_found_again():
    gemm = BY_NAME["gemm"]
    rng = np.random.default_rng(0)
    sizes = {k: 2.0 ** rng.integers(4, 14, 300) for k in ("m", "n", "k")}
    rows = rows_of(gemm, count=300, **sizes)
    work, bandwidth = gemm.describe(rows), rows.device.bytes_per_s
    truth = np.log([0.8, 0.6, 5e-6])
    measured = efficiency.log_seconds(work, bandwidth, truth) + rng.normal(0, 0.05, 300)
    measured[::30] += 2.0  # outliers
    found = efficiency.fit(work, bandwidth, measured, efficiency.DEFAULT)
    assert np.allclose(found, truth, atol=0.08)


def test_few_rows_do_not_move_what_they_say_nothing_about():
    gemm = BY_NAME["gemm"]
    rows = rows_of(gemm, count=5, m=8192)  # compute-bound: nothing about bandwidth or floor
    work, bandwidth = gemm.describe(rows), rows.device.bytes_per_s
    prior = np.log([0.6, 0.7, 3e-6])
    measured = efficiency.log_seconds(work, bandwidth, np.log([0.9, 0.7, 3e-6]))
    found = efficiency.fit(work, bandwidth, measured, prior)
    assert found[0] == pytest.approx(np.log(0.9), abs=0.02)
    assert np.allclose(found[1:], prior[1:], atol=0.02)


def kind(gpu, silicon, architecture, share, rows=100):
    values = (float(np.log(share)), float(np.log(0.8)), float(np.log(3e-6)))
    return Kind(
        gpu=gpu, silicon=silicon, architecture=architecture, dtype="bf16", op="linear",
        values=values, rows=rows,
    )  # fmt: skip


def test_prior_of_an_unseen_gpu_leans_to_its_generation():
    table = KindTable((kind("a", "s1", "volta", 0.5), kind("b", "s2", "hopper", 0.9)))
    near_old = np.exp(table.prior("turing", "bf16", "linear")[0])
    near_new = np.exp(table.prior("ada", "bf16", "linear")[0])
    assert 0.5 < near_old < near_new < 0.9


def test_many_siblings_count_as_one_silicon():
    one = KindTable((kind("a", "s1", "hopper", 0.9), kind("b", "s2", "ada", 0.5)))
    many = KindTable((*one.kinds, *(kind(f"c{i}", "s1", "hopper", 0.9) for i in range(5))))
    assert np.allclose(
        one.prior("blackwell", "bf16", "linear"), many.prior("blackwell", "bf16", "linear")
    )


def test_b300_is_no_stranger_to_b200():
    names = ("B200-SXM", "GB200", "B300-SXM", "GB300")
    assert len({silicon_of(resolve_gpu(n)[0]) for n in names}) == 1


def test_correction_follows_its_points_and_fades():
    gemm = BY_NAME["gemm"]
    near = rows_of(gemm, count=3, m=[256, 1024, 4096])
    points = coordinates(near, np.log([1e-5, 4e-5, 2e-4]))
    correction, left_out = fit_correction(points, np.array([0.3, 0.3, 0.3]))
    assert np.all(correction.log_factor(points) > 0.15)
    far = coordinates(rows_of(gemm, m=2.0**30), np.log([10.0]))
    assert abs(correction.log_factor(far)[0]) < 0.01
    assert left_out.shape == (3,)
