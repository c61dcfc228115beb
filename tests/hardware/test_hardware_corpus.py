"""Every spelling of the measured corpus resolves. Skipped where PERFMODEL_CORPUS is unset."""

import json
import os
from pathlib import Path

import pytest

from perfmodel.errors import UnknownNameError
from perfmodel.hardware.aliases import resolve_collective, resolve_dtype, resolve_gpu
from perfmodel.hardware.clusters import cluster_from_run

CORPUS = os.environ.get("PERFMODEL_CORPUS")
pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS, reason="PERFMODEL_CORPUS is unset: no measured corpus"),
]

# The tables themselves do not name these devices.
NAMELESS = {"unstated", "unstated-amd", "unknown NVLink pair", "AMD Radeon Graphics", "", "nan"}


def runs():
    for file in sorted(Path(CORPUS, "e2e").rglob("*.jsonl")):
        with file.open() as lines:
            yield from (json.loads(line) for line in lines)


def check_gpu(name):
    if name in NAMELESS:
        with pytest.raises(UnknownNameError):
            resolve_gpu(name)
    else:
        resolve_gpu(name)


def test_every_run_gets_a_cluster():
    seen = set()
    for row in runs():
        hardware = row["hardware"]
        key = json.dumps(hardware, sort_keys=True)
        if key not in seen:
            seen.add(key)
            cluster = cluster_from_run(hardware)
            assert cluster.num_gpus == hardware["num_gpus"]
            assert cluster.num_nodes == hardware["nodes"]
    assert len(seen) > 50


def test_every_precision_of_runs():
    for precision in {row["precision"] for row in runs()}:
        resolve_dtype(precision)


def test_every_device_and_dtype_of_kernel_tables():
    parquet = pytest.importorskip("pyarrow.parquet")
    for file in sorted(Path(CORPUS, "kernels").glob("*.parquet")):
        columns = [c for c in ("gpu", "dtype") if c in parquet.read_schema(file).names]
        table = parquet.read_table(file, columns=columns)
        for value in table["gpu"].unique().to_pylist():
            check_gpu(str(value))
        for value in table["dtype"].unique().to_pylist() if "dtype" in columns else ():
            resolve_dtype(value)


def test_every_device_of_the_gpu_list_is_close_to_its_figures():
    lines = Path(CORPUS, "kernels", "gpus.csv").read_text().splitlines()
    header = lines[0].split(",")
    for line in lines[1:]:
        row = dict(zip(header, line.split(","), strict=True))
        part, _ = resolve_gpu(row["gpu"])
        # Clocks and bandwidths of recent parts are quoted up to 14 % apart (catalogue README).
        assert part.peak_flop_per_s["fp32"] / 1e12 == pytest.approx(
            float(row["peak_fp32_gemm_tflops"]), rel=0.15
        ), row["gpu"]
        assert part.memory_bytes_per_s / 1e9 == pytest.approx(float(row["mem_bw_gbps"]), rel=0.15)
        if row["peak_bf16_tflops"] and "fp16" in part.peak_flop_per_s:
            assert part.peak_flop_per_s["fp16"] / 1e12 == pytest.approx(
                float(row["peak_bf16_tflops"]), rel=0.15
            ), row["gpu"]


def test_every_device_dtype_and_collective_of_collective_tables():
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(
        Path(CORPUS, "collectives", "measured.parquet"), columns=["gpu", "dtype", "collective"]
    )
    for value in table["gpu"].unique().to_pylist():
        check_gpu("nan" if value is None else str(value))
    for value in table["dtype"].unique().to_pylist():
        resolve_dtype(value)
    for value in table["collective"].unique().to_pylist():
        resolve_collective(value)


def test_every_device_of_traces():
    def devices(value, key=None):
        if isinstance(value, dict):
            for k, v in value.items():
                yield from devices(v, k)
        elif isinstance(value, list):
            for v in value:
                yield from devices(v, key)
        elif key == "gpu" and isinstance(value, str):
            yield value

    manifest = json.loads(Path(CORPUS, "traces", "manifest.json").read_text())
    names = set(devices(manifest))
    assert names
    for name in names:
        check_gpu(name)
