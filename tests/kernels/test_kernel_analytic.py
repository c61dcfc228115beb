import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.cost.host import HostModel
from perfmodel.cost.kernels import KernelModel
from perfmodel.hardware.records import Cluster, Dtype, FabricKind, Gpu, Network, NetworkKind, Node
from perfmodel.program.work import (
    Attention,
    Convolution,
    Copy,
    EmbeddingLookup,
    Fixed,
    Gemm,
    GroupedGemm,
    HostDispatch,
    Memory,
    OptimizerStep,
    Pass,
)

A100 = Gpu(
    name="a100", title="A100", vendor="nvidia", architecture="ampere", silicon_family="ga100",
    peak_flop_per_s={
        Dtype.BF16: 312e12, Dtype.FP16: 312e12, Dtype.TF32: 156e12, Dtype.FP32: 19.5e12,
    },
    vector_flop_per_s=19.5e12, memory_bytes=80e9, memory_bytes_per_s=2039e9, l2_bytes=40 * 2**20,
    num_sms=108, clock_hz=1.41e9, power_w=400, pcie_bytes_per_s=31.5e9, compute_capability="8.0",
)  # fmt: skip


def cluster_of(gpu: Gpu) -> Cluster:
    node = Node(
        name="n", title="n", gpu=gpu, num_gpus=1, fabric=FabricKind.NONE, fabric_bytes_per_s=0.0,
        nvlink_domain_gpus=1,
    )  # fmt: skip
    network = Network(
        name="none", title="none", kind=NetworkKind.NONE, port_bytes_per_s=0.0, latency_s=0.0,
        step_latency_s=0.0, achieved_fraction=1.0, has_gpudirect=False,
    )  # fmt: skip
    return Cluster(node=node, network=network, num_nodes=1, gpus_per_node=1, node_bytes_per_s=0.0)


def seconds(*works, gpu=A100):
    return KernelModel().estimate(works, cluster_of(gpu)).seconds


def test_large_gemm_by_hand():
    got = seconds(Gemm(m=8192, n=4096, k=4096))[0, 0]
    flops = 2 * 8192 * 4096 * 4096
    want = flops / (312e12 * 0.78) * (1 + 90 / 8192) * (1 + 45 / 4096) * (1 + 55 / 4096) + 4e-6
    assert got == pytest.approx(want)


def test_thin_gemm_is_bound_by_its_weights():
    got = seconds(Gemm(m=1, n=8192, k=8192))[0, 0]
    compute = 2 * 91 * (8192 + 45) * (8192 + 55) / (312e12 * 0.78)
    traffic = 2 * (8192 * 8192 + 2 * 8192) / (0.75 * 2039e9)
    assert got == pytest.approx(max(compute, traffic) + 4e-6)


def test_memory_by_hand():
    got = seconds(Memory(num_bytes=1e9, launches=3))[0, 0]
    assert got == pytest.approx(1e9 / (0.81 * 2039e9) + 6e-6)


def test_causal_attention_counts_half_and_backward_three_times():
    base = Attention(
        batch=8, heads=32, kv_heads=32, query_len=4096, key_len=4096, head_dim=128, value_dim=128,
        causal=False,
    )  # fmt: skip
    causal = dataclasses.replace(base, causal=True)
    backward = dataclasses.replace(base, direction=Pass.BACKWARD)
    full, half, back = seconds(base, causal, backward)[:, 0] - 5e-6
    assert half == pytest.approx(full / 2)
    assert back == pytest.approx(full * 3)


def test_older_attention_kernels_are_slower():
    works = [
        Attention(
            batch=1, heads=16, kv_heads=16, query_len=2048, key_len=2048, head_dim=64,
            value_dim=64, causal=True, kernel=kernel,
        )
        for kernel in ("flash1", "flash2")
    ]  # fmt: skip
    first, second = seconds(*works)[:, 0]
    assert first > second


def test_formats_a_gpu_lacks_run_as_fp32_or_are_refused_by_name():
    volta = dataclasses.replace(
        A100, title="V100", architecture="volta", peak_flop_per_s={Dtype.FP32: 14e12}
    )
    emulated, plain = seconds(
        Gemm(m=4096, n=4096, k=4096, dtype=Dtype.BF16),
        Gemm(m=4096, n=4096, k=4096, dtype=Dtype.FP32),
        gpu=volta,
    )[:, 0]
    assert emulated == pytest.approx(plain)
    with pytest.raises(ValueError, match="V100 has no fp8"):
        seconds(Gemm(m=8, n=8, k=8, dtype=Dtype.FP8), gpu=volta)


def test_amounts_may_be_scenarios():
    rows = np.array([128.0, 4096.0, 0.0])
    got = seconds(Gemm(m=rows, n=1024, k=1024), Memory(num_bytes=1e6))
    assert got.shape == (2, 3)
    assert np.all(got[1] == got[1, 0])
    assert got[0, 1] > got[0, 0] > got[0, 2] > 0


def test_unknown_architecture_warns_and_is_wider():
    odd = dataclasses.replace(A100, architecture="xe2")
    work = Memory(num_bytes=1e6)
    known, unknown = (KernelModel().estimate([work], cluster_of(g)) for g in (A100, odd))
    assert "xe2" in unknown.warnings[0]
    assert not known.warnings
    assert unknown.log_sigma[0] > known.log_sigma[0]


def test_sorted_embedding_update_touches_distinct_rows_only():
    base = EmbeddingLookup(
        lookups=1e6, outputs=1e5, row_bytes=512, output_bytes=512, num_tables=26,
        unique_fraction=0.1, direction=Pass.BACKWARD, optimizer="rowwise_adagrad",
    )  # fmt: skip
    sorted_, atomic = seconds(base, dataclasses.replace(base, optimizer="sgd"))[:, 0]
    assert sorted_ < atomic


WORKS = [
    (lambda x: Gemm(m=x, n=1024, k=512)),
    (lambda x: Gemm(m=64, n=x, k=512, batch=4)),
    (lambda x: GroupedGemm(experts=8, tokens=x, n=1024, k=512)),
    (lambda x: Memory(num_bytes=x)),
    (lambda x: OptimizerStep(parameters=x, bytes_per_parameter=16)),
    (lambda x: Copy(num_bytes=x)),
    (lambda x: Convolution(
        batch=x, height=56, width=56, in_channels=64, out_channels=64, kernel=3, stride=1)),
    (lambda x: EmbeddingLookup(
        lookups=x, outputs=10, row_bytes=64, output_bytes=64, num_tables=1)),
    (lambda x: Attention(
        batch=1, heads=8, kv_heads=8, query_len=x, key_len=x, head_dim=64, value_dim=64,
        causal=True)),
]  # fmt: skip


@pytest.mark.parametrize("make", WORKS)
@given(low=st.floats(1, 1e6), ratio=st.floats(1, 100))
def test_more_work_never_takes_less_time(make, low, ratio):
    small, large = seconds(make(low), make(low * ratio))[:, 0]
    assert 0 < small <= large * (1 + 1e-12)


def test_every_device_work_is_handled_and_no_host_work():
    model = KernelModel()
    assert all(model.handles(make(8.0)) for make in WORKS)
    assert not model.handles(Fixed(seconds=1.0))


def test_host_work_is_what_it_says():
    works = [HostDispatch(num_ops=np.array([10.0, 20.0]), op_s=5e-6), Fixed(seconds=0.25)]
    got = HostModel().estimate(works, cluster_of(A100))
    assert got.seconds.tolist() == [[pytest.approx(5e-5), pytest.approx(1e-4)], [0.25, 0.25]]
    assert got.log_sigma.tolist() == [0.3, 0.0]
