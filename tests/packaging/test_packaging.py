"""What the wheel carries, and what importing costs."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from perfmodel.locations import datasets_path

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory):
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    builder = wheel.WheelBuilder(str(ROOT))
    out = tmp_path_factory.mktemp("wheel")
    (path,) = builder.build(directory=str(out), versions=["standard"])
    assert Path(path).stat().st_size < 20e6
    return zipfile.ZipFile(path).namelist()


def test_the_wheel_installs_two_packages_and_nothing_called_datasets(wheel_names):
    tops = {name.split("/")[0] for name in wheel_names if ".dist-info" not in name}
    assert tops == {"perfmodel", "microbench"}


@pytest.mark.parametrize(
    "name",
    [
        "perfmodel/_datasets/published_runs/runs.jsonl",
        "perfmodel/_datasets/published_runs/README.md",
        "perfmodel/_datasets/examples/dlrm_8gpu.yaml",
        "perfmodel/_datasets/models/gpt3_175b.yaml",
        "perfmodel/schema/run.schema.json",
        "perfmodel/hardware/catalogue/catalogue.json",
        "perfmodel/plan/stacks/megatron_core.yaml",
        "perfmodel/py.typed",
    ],
)
def test_the_wheel_carries_what_the_package_needs(wheel_names, name):
    assert name in wheel_names


def test_importing_perfmodel_brings_no_heavy_library():
    heavy = "torch", "pandas", "sklearn", "xgboost", "matplotlib", "distributed"
    code = f"import sys, perfmodel; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_help_needs_neither_numpy_nor_yaml():
    code = (
        "import sys\nfrom perfmodel.cli.parser import build_parser\nbuild_parser().format_help()\n"
        "print([m for m in ('numpy', 'yaml', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_published_runs_match_their_manifest():
    folder = datasets_path("published_runs")
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    for name, facts in manifest["files"].items():
        raw = (folder / name).read_bytes()
        assert hashlib.sha256(raw).hexdigest() == facts["sha256"]
        assert raw.count(b"\n") == facts["rows"]


@pytest.mark.parametrize(
    "imports",
    [
        "import perfmodel as pm",
        "import perfmodel.predict, perfmodel as pm",
        "from perfmodel.predict import price_run; import perfmodel as pm",
    ],
)
def test_the_api_of_a_notebook(imports):
    code = f"{imports}\nrun = pm.Run.load({str(datasets_path('examples', 'dlrm_8gpu.yaml'))!r})\n"
    code += "print(type(pm.predict(run)).__name__, pm.predict(run).iteration_time_s > 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "Prediction True\n", done.stderr
