"""Users' own catalogue files: added where they are right, refused with file and line elsewhere."""

import pytest

from perfmodel.errors import InputError
from perfmodel.hardware.clusters import cluster_from_names, resolve_cluster
from perfmodel.hardware.listing import catalogue_rows
from perfmodel.hardware.user_yaml import load_user_catalogue

PLAIN_GPU = """\
gpus:
  scratch:
    memory_gib: 10
    memory_bandwidth_gb_s: 100
    sm_count: 10
    boost_clock_mhz: 1000
    l2_mib: 4
    tdp_w: 100
    peak_tflops_dense: {fp32: 1, fp16_tensor: 8}
"""


def load(tmp_path, text):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return load_user_catalogue(file)


def test_gpu_with_plain_numbers(tmp_path):
    known = load(tmp_path, PLAIN_GPU)
    gpu = known.gpu("scratch")
    assert gpu.peak_flop_per_s["fp16"] == 8e12
    assert gpu.memory_bytes == 10 * 2**30
    assert cluster_from_names("scratch", known=known).node.num_gpus == 8
    assert catalogue_rows("gpus", known)[-1]["confidence"] == "user"


def test_like_overlays_a_known_part_and_keeps_its_platform(tmp_path):
    known = load(
        tmp_path,
        "gpus:\n  capped:\n    like: h100_sxm5_80\n    tdp_w: {value: 500, source: nvidia-smi}\n"
        "    memory_gib: 96\n",
    )
    gpu = known.gpu("capped")
    assert (gpu.power_w, gpu.memory_bytes) == (500, 96 * 2**30)
    assert gpu.num_sms == 132
    assert cluster_from_names("capped", known=known).node.title == "DGX H100"


def test_node_and_network_of_ones_own(tmp_path):
    known = load(
        tmp_path,
        """\
networks:
  mine_net: {kind: roce, rate_gb_per_s_bits: 50, latency_us_one_way: 3,
    collective_step_latency_us: 15, achieved_fraction: 0.9, gpudirect_rdma: true}
nodes:
  mine:
    gpus: {count: 4, gpu: NVIDIA A40}
    fabric: {type: pcie, per_gpu_gb_s_one_direction: 31.5}
    nics: {count: 2, gb_per_s_each_bits: 50, type: mine_net}
""",
    )
    cluster = resolve_cluster({"node": "mine", "num_nodes": 2}, known=known)
    assert cluster.gpu.name == "a40"
    assert cluster.node_bytes_per_s == 2 * 50e9 / 8
    assert cluster.network.latency_s == pytest.approx(3e-6)


def test_shipped_catalogue_is_not_changed(tmp_path):
    load(tmp_path, "nodes:\n  mine: {like: dgx_h100, gpus: {gpu: a40}}\n")
    assert cluster_from_names("dgx_h100").gpu.name == "h100_sxm5_80"


BAD = [
    ("gpu: {}\n", 1, "unknown section 'gpu'; did you mean 'gpus'"),
    ("gpus:\n  a:\n    memory_gb: 3\n", 3, "did you mean 'memory_gib'"),
    ("gpus:\n  a: {memory_gib: 3}\n", 2, "lacks the field 'memory_bandwidth_gb_s'"),
    (PLAIN_GPU.replace("tdp_w: 100", "tdp_w: -5"), 8, "'-5' must be a positive number"),
    (PLAIN_GPU.replace("tdp_w: 100", "tdp_w: .nan"), 8, "must be a positive number"),
    (PLAIN_GPU.replace("tdp_w: 100", "tdp_w: 1e300"), 8, "must be a positive number"),
    (PLAIN_GPU.replace("sm_count: 10", "sm_count: 10.5"), 5, "whole number"),
    (PLAIN_GPU.replace("tdp_w: 100", "tdp_w: [1]"), 8, "single value"),
    (PLAIN_GPU.replace("tdp_w: 100", "tdp_w: {source: x}"), 8, "no 'value'"),
    (PLAIN_GPU.replace("tdp_w: 100", "tdp_w: {value: 1, sorce: x}"), 8, "did you mean 'source'"),
    (PLAIN_GPU.replace("tdp_w: 100", "tdp_w: 100\n    tdp_w: 100"), 9, "occurs twice"),
    (PLAIN_GPU.replace("fp32: 1, ", ""), 2, "lacks the field 'fp32'"),
    ("gpus:\n  a:\n    like: h100_sxm5\n", 3, "h100_sxm5_80"),
    ("nodes:\n  a: {like: dgx_h100, gpus: {gpu: tpu}}\n", 2, "unknown GPU 'tpu'"),
    ("nodes:\n  a: {like: dgx_h100, nics: {type: foo}}\n", 2, "unknown network 'foo'"),
    ("nodes:\n  a: {like: dgx_h100, fabric: {type: magic}}\n", 2, "not one of nvlink_direct"),
    ("nodes:\n  a: {like: dgx_h100, fabric: {p2p: maybe}}\n", 2, "true or false"),
    (
        "nodes:\n  a: {like: hgx_a100_4, fabric: {nvlink_matrix_links: [[0, 1], [1, 0]]}}\n",
        2,
        "4 x 4",
    ),
    ("gpus: &x {}\nnodes: *x\n", 1, "anchors"),
    ("gpus: [1]\n", 1, "mapping"),
    ("- gpus\n", 1, "mapping"),
    ("gpus:\n  a: {\n", 3, "not valid YAML"),
    ("gpus:\n  ? [a]\n  : 1\n", 2, "plain word"),
    ("[" * 100, 1, "nested too deeply"),
    ("", 1, "empty"),
]


@pytest.mark.parametrize(("text", "line", "words"), BAD)
def test_errors_name_file_and_line(tmp_path, text, line, words):
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'mine.yaml'}:{line}: ")
    assert words in message
    assert "\n" not in message


def test_file_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_user_catalogue(tmp_path / "absent.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match="UTF-8"):
        load_user_catalogue(binary)
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * 1_000_001)
    with pytest.raises(InputError, match="larger than 1 MB"):
        load_user_catalogue(large)
