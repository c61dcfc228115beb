"""The shipped bundle: its size, its honesty, and that its predictions are sane on a grid."""

import itertools

import numpy as np
import pandas as pd
import pytest

from perfmodel.cost.kernels import physics
from perfmodel.cost.kernels.bundle import KernelBundle
from perfmodel.locations import datasets_path
from perfmodel.measure.kernels.evaluate import evaluate_kernels

FOLDER = datasets_path("bundles") / "kernels"
MEGABYTE = 1e6
LARGEST_BUNDLE = 25 * MEGABYTE


@pytest.fixture(scope="module")
def bundle():
    return KernelBundle.load(FOLDER)


def gemms(gpu, dtype="bf16", framework=""):
    sizes = [128, 256, 512, 1024, 2048, 4096, 8192]
    shapes = list(itertools.product(sizes, sizes, sizes))
    table = pd.DataFrame(shapes, columns=["m", "n", "k"])
    return table.assign(op="linear", dtype=dtype, gpu=gpu, framework=framework, batch=1)


def test_bundle_is_small_and_says_whose_data_it_holds(bundle):
    assert sum(f.stat().st_size for f in FOLDER.iterdir()) < LARGEST_BUNDLE
    sources = bundle.manifest["sources"]
    assert {"neusight", "aiconfigurator", "vidur"} <= set(sources)
    for name in ("neusight", "aiconfigurator", "vidur"):
        assert sources[name]["licence"]
        assert sources[name]["copyright"]


def test_every_model_states_its_held_out_error(bundle):
    for name, entry in bundle.manifest["models"].items():
        errors = entry["held_out_error"]["unseen_shapes"]
        assert errors, name
        assert all(
            {"rows", "geomean_error", "median", "p90", "worst"} <= set(e) for e in errors.values()
        )


@pytest.mark.parametrize("gpu", ["A100-SXM4-80GB", "H100-SXM5-80GB", "B200-SXM", "L40S", "A40"])
def test_never_faster_than_the_roofline_by_more_than_a_warm_cache(bundle, gpu):
    table = gemms(gpu)
    rows = evaluate_kernels([table], bundle=bundle).rows
    assert not rows.refused.any()
    from perfmodel.hardware.aliases import resolve_gpu
    from perfmodel.hardware.records import Dtype

    device = resolve_gpu(gpu)[0]
    m, n, k = (rows[c].to_numpy(float) for c in ("m", "n", "k"))
    compute = 2 * m * n * k / device.peak(Dtype.BF16)
    traffic = 2 * (m * k + k * n + m * n) / device.memory_bytes_per_s
    seconds = rows.predicted_us.to_numpy() * 1e-6
    assert np.all(seconds > 0.98 * compute)
    assert np.all(seconds > physics.L2_COST * traffic)


@pytest.mark.parametrize("gpu", ["A100-SXM4-80GB", "H100-SXM5-80GB", "B200-SXM", "L40S"])
def test_larger_gemms_are_rarely_predicted_faster(bundle, gpu):
    """Libraries themselves are not monotone; doublings of a size nearly always are."""
    rows = evaluate_kernels([gemms(gpu)], bundle=bundle).rows
    grid = rows.predicted_us.to_numpy().reshape(7, 7, 7)
    for axis in range(3):
        ratio = np.diff(np.log(grid), axis=axis)
        assert np.mean(ratio < np.log(0.95)) < 0.05


def test_a_100_eager_step_of_kernels_is_priced_quickly_without_xgboost(bundle):
    import subprocess
    import sys

    code = (
        "import sys; from perfmodel.cost.kernels import FittedKernelModel;"
        "from perfmodel.hardware.clusters import resolve_cluster;"
        f"m = FittedKernelModel({str(FOLDER)!r});"
        "assert 'xgboost' not in sys.modules and 'pandas' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
