"""Hand-computed times, and properties that hold on every path."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.cost.collectives import CollectiveModel, closed_form_seconds, comm_path
from perfmodel.cost.collectives.busbw import (
    algbw_bytes_per_s,
    busbw_bytes_per_s,
    busbw_factor,
    seconds_from_busbw,
)
from perfmodel.cost.collectives.regimes import lines_of
from perfmodel.cost.collectives.residual import Residual
from perfmodel.errors import InputError
from perfmodel.hardware.clusters import cluster_from_names
from perfmodel.hardware.records import Dtype, FabricKind, GroupShape
from perfmodel.program.work import Collective, CollectiveKind

NODES = ("dgx1_v100", "dgx2", "dgx_a100_80", "dgx_h100", "dgx_b200", "gb200_nvl72",
         "pcie_l40s_8", "pcie_rtx4090_8", "azure_nd96isr_mi300x_v5", "aws_p5_48xlarge")  # fmt: skip


def path_of(node: str, ranks: int, nodes: int = 1, **group: int):
    cluster = cluster_from_names(node, nodes)
    return comm_path(cluster, GroupShape(ranks_per_node=ranks, num_nodes=nodes, **group))


def test_busbw_factors_are_those_of_nccl_tests():
    assert busbw_factor(CollectiveKind.ALL_REDUCE, 8) == 1.75
    assert busbw_factor(CollectiveKind.ALL_GATHER, 8) == 0.875
    assert busbw_factor(CollectiveKind.REDUCE_SCATTER, 4) == 0.75
    assert busbw_factor(CollectiveKind.ALL_TO_ALL, 2) == 0.5
    assert busbw_factor(CollectiveKind.BROADCAST, 16) == 1.0
    with pytest.raises(InputError, match="num_ranks 0"):
        busbw_factor(CollectiveKind.ALL_REDUCE, 0)


def test_busbw_and_time_are_inverse():
    kind = CollectiveKind.ALL_REDUCE
    busbw = busbw_bytes_per_s(kind, 8, 17179869184, 62239e-6)
    assert busbw == pytest.approx(483.05e9, rel=1e-4)  # a row of an H100 log: algbw 276.03
    assert algbw_bytes_per_s(17179869184, 62239e-6) == pytest.approx(276.03e9, rel=1e-4)
    assert seconds_from_busbw(kind, 8, 17179869184, busbw) == pytest.approx(62239e-6)


def test_large_ring_all_gather_runs_at_the_bus_rate():
    path = path_of("dgx_a100_80", 8)
    size = 1e12
    seconds = closed_form_seconds(CollectiveKind.ALL_GATHER, size, path)
    assert float(seconds) == pytest.approx(0.875 * size / path.ring_bytes_per_s, rel=1e-3)


def test_small_ring_all_gather_is_base_and_hops_of_ll():
    path = path_of("dgx_a100_80", 8)
    seconds = closed_form_seconds(CollectiveKind.ALL_GATHER, 8.0, path)
    assert float(seconds) == pytest.approx(6.6e-6 + 7 * 0.6e-6, rel=1e-3)


def test_all_reduce_uses_the_switch_only_where_it_can_add():
    path = path_of("dgx_h100", 8)
    float_names = {line.name for line in lines_of(CollectiveKind.ALL_REDUCE, path, Dtype.BF16)}
    int_names = {line.name for line in lines_of(CollectiveKind.ALL_REDUCE, path, Dtype.INT8)}
    assert "nvls" in float_names
    assert "nvls" not in int_names
    ampere = lines_of(CollectiveKind.ALL_REDUCE, path_of("dgx_a100_80", 8), Dtype.BF16)
    assert "nvls" not in {line.name for line in ampere}


def test_switch_tree_of_two_nodes_can_beat_the_ring():
    # 2(N-1)/N = 1 crossing of each byte against 2(n-1)/n = 1.875 for a ring of 16.
    path = replace(path_of("dgx_h100", 8, 2), net_ring_bytes_per_s=10e9)
    lines = {x.name: x for x in lines_of(CollectiveKind.ALL_REDUCE, path, Dtype.BF16)}
    assert lines["nvls_tree"].s_per_byte < lines["ring/simple"].s_per_byte
    assert lines["tree/simple"].s_per_byte > lines["ring/simple"].s_per_byte


def test_one_rank_costs_nothing():
    assert float(closed_form_seconds(CollectiveKind.ALL_REDUCE, 1e9, path_of("dgx_h100", 1))) == 0


def test_cube_mesh_all_to_all_is_slower_than_its_ring():
    path = path_of("dgx1_v100", 8)
    assert path.ring_bytes_per_s == pytest.approx(120e9)
    assert path.p2p_bytes_per_s == pytest.approx(120e9 * 45 / 121)
    four = path_of("dgx1_v100", 4)
    two = path_of("dgx1_v100", 2)
    assert two.ring_bytes_per_s < four.ring_bytes_per_s < path.ring_bytes_per_s


def test_groups_that_run_at_once_share_the_nics():
    alone = path_of("dgx_a100_80", 4, 4)
    shared = path_of("dgx_a100_80", 4, 4, concurrent=2)
    # Half the GPUs have half the NICs near them: two such groups do not disturb each other …
    assert shared.net_ring_bytes_per_s == alone.net_ring_bytes_per_s
    one_nic = cluster_from_names("aws_p3dn_24xlarge", 4)
    single = comm_path(one_nic, GroupShape(ranks_per_node=1, num_nodes=4))
    crowded = comm_path(one_nic, GroupShape(ranks_per_node=1, num_nodes=4, concurrent=8))
    # … but eight groups behind one NIC get an eighth each.
    assert crowded.net_ring_bytes_per_s == pytest.approx(single.net_ring_bytes_per_s / 8)


def test_ring_rate_across_nodes_grows_with_gpus_per_node_but_all_to_all_does_not():
    rates = [path_of("dgx_h100", r, 4) for r in (1, 2, 4, 8)]
    ring = [p.net_ring_bytes_per_s for p in rates]
    assert ring == pytest.approx([ring[0] * k for k in (1, 2, 4, 8)])
    assert len({p.net_rank_bytes_per_s for p in rates}) == 1


def test_nvlink_domain_spans_the_trays_of_a_rack():
    path = path_of("gb200_nvl72", 4, 8)
    assert path.num_nodes == 1
    assert path.ranks_per_node == 32
    assert path_of("gb200_nvl72", 4, 36).num_nodes == 2


def test_pcie_without_peer_access_is_slower():
    cluster = cluster_from_names("pcie_l40s_8")
    blocked = replace(cluster, node=replace(cluster.node, fabric=FabricKind.PCIE_HOST))
    group = GroupShape(ranks_per_node=2, num_nodes=1)
    assert comm_path(blocked, group).ring_bytes_per_s < comm_path(cluster, group).ring_bytes_per_s


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (GroupShape(ranks_per_node=0, num_nodes=1), "at least 1"),
        (GroupShape(ranks_per_node=9, num_nodes=1), "does not fit"),
        (GroupShape(ranks_per_node=8, num_nodes=3), "does not fit"),
    ],
)
def test_group_that_does_not_fit_is_refused(group, words):
    with pytest.raises(InputError, match=words):
        comm_path(cluster_from_names("dgx_a100_80", 2), group)


SIZES = st.floats(0, 1e13)
PATHS = st.builds(
    path_of, st.sampled_from(NODES), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 5])
)


@given(
    PATHS, st.sampled_from(CollectiveKind), SIZES, SIZES, st.sampled_from([Dtype.BF16, Dtype.INT8])
)
@settings(max_examples=150, deadline=None)
def test_time_never_falls_with_size_and_is_never_below_the_wire(path, kind, a, b, dtype):
    low, high = sorted((a, b))
    for model in (CollectiveModel(Residual()), CollectiveModel()):
        times, sigma = model.predict(kind, np.array([low, high]), path, dtype)
        assert times[0] <= times[1] * (1 + 1e-12)
        assert np.isfinite(times).all()
        assert (sigma >= 0).all()
        assert (times > 0).all() or path.num_ranks == 1


@given(PATHS, st.sampled_from(CollectiveKind), st.floats(1, 1e12))
@settings(max_examples=100, deadline=None)
def test_time_is_continuous_in_size(path, kind, size):
    model = CollectiveModel()
    times, _ = model.predict(kind, np.array([size, size * 1.001]), path, Dtype.BF16)
    assert times[1] <= times[0] * 1.01 + 1e-15


def test_barrier_does_not_depend_on_size():
    path = path_of("dgx_h100", 8)
    times = closed_form_seconds(CollectiveKind.BARRIER, np.array([0.0, 1e9]), path)
    assert times[0] == times[1] > 0


def test_estimate_prices_scenarios_and_uses_the_busiest_rank():
    cluster = cluster_from_names("dgx_a100_80", 2)
    group = GroupShape(ranks_per_node=8, num_nodes=2)
    plain = Collective(kind=CollectiveKind.ALL_TO_ALL, num_bytes=1e7, group=group)
    skewed = replace(plain, max_rank_bytes=4e7)
    four = replace(plain, num_bytes=4e7)
    many = replace(plain, num_bytes=np.array([1e7, 4e7]))
    model = CollectiveModel()
    estimate = model.estimate([plain, skewed, four, many], cluster)
    assert estimate.seconds.shape == (4, 2)
    assert estimate.seconds[1, 0] == estimate.seconds[2, 0] > estimate.seconds[0, 0]
    assert estimate.seconds[3].tolist() == pytest.approx(
        [estimate.seconds[0, 0], estimate.seconds[2, 0]]
    )
    assert math.isfinite(estimate.log_sigma.sum())
    assert not model.handles(object())  # type: ignore[arg-type]


def test_unfitted_model_says_so():
    cluster = cluster_from_names("dgx_a100_80")
    work = Collective(
        kind=CollectiveKind.ALL_REDUCE,
        num_bytes=1e6,
        group=GroupShape(ranks_per_node=8, num_nodes=1),
    )
    warnings = CollectiveModel(Residual()).estimate([work], cluster).warnings
    assert any("specifications alone" in text for text in warnings)
    assert CollectiveModel().estimate([work], cluster).warnings == ()


@pytest.mark.parametrize(
    ("node", "nodes", "words"),
    [("dgx_h100", 32, "over 32 nodes"), ("pcie_l40s_8", 1, "--comm"), ("dgx_h100", 2, None)],
)
def test_what_was_never_measured_is_flagged(node, nodes, words):
    work = Collective(
        kind=CollectiveKind.ALL_REDUCE,
        num_bytes=1e6,
        group=GroupShape(ranks_per_node=8, num_nodes=nodes),
    )
    warnings = CollectiveModel().estimate([work], cluster_from_names(node, nodes)).warnings
    assert bool(warnings) == (words is not None)
    assert words is None or words in warnings[0]
