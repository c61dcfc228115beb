"""Communicators and their shape on the nodes, against a count by hand over all ranks."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import InvalidPlanError
from perfmodel.hardware.clusters import cluster_from_names
from perfmodel.hardware.placement import RankGrid, group_shape, shape_of

SIZES = st.sampled_from([1, 2, 3, 4])


def by_hand(sizes, order, axes):
    """Groups of ranks whose coordinates differ only along `axes`, by looping over the grid."""
    groups = {}
    for rank, coordinates in enumerate(product(*(range(sizes.get(a, 1)) for a in reversed(order)))):
        where = dict(zip(reversed(order), coordinates, strict=True))
        groups.setdefault(tuple(v for a, v in where.items() if a not in axes), []).append(rank)
    return sorted(groups.values())


@given(SIZES, SIZES, SIZES, SIZES, st.permutations(["tp", "cp", "dp", "pp"]))
def test_groups_differ_along_their_axes_only(tp, cp, dp, pp, order):
    sizes = {"tp": tp, "cp": cp, "dp": dp, "pp": pp}
    grid = RankGrid(sizes=sizes, order=tuple(order))
    for axes in (("tp",), ("cp",), ("dp",), ("pp",), ("dp", "cp"), ("tp", "dp")):
        assert grid.groups(*axes).tolist() == by_hand(sizes, order, axes)


@given(SIZES, SIZES, SIZES, SIZES, st.sampled_from([1, 2, 3, 4, 6]))
def test_expert_groups_partition_each_pool(tp, cp, dp, pp, ep):
    sizes = {"tp": tp, "cp": cp, "dp": dp, "pp": pp, "ep": ep}
    if (cp * dp) % ep:
        with pytest.raises(InvalidPlanError, match="ep"):
            RankGrid(sizes=sizes)
        return
    grid = RankGrid(sizes=sizes)
    groups, twins = grid.groups("ep"), grid.groups("edp")
    assert groups.shape[1] == ep
    assert twins.shape[1] == cp * dp // ep
    assert sorted(groups.ravel()) == sorted(twins.ravel()) == list(range(grid.world_size))
    pools = {frozenset(row) for row in grid.groups("cp", "dp").tolist()}
    for row in (*groups.tolist(), *twins.tolist()):
        assert any(set(row) <= pool for pool in pools)
    for group, twin in product(groups.tolist(), twins.tolist()):
        assert len(set(group) & set(twin)) <= 1


def test_expert_ranks_are_neighbours_in_megatron_order():
    grid = RankGrid(sizes={"tp": 2, "dp": 4, "ep": 2})
    assert grid.groups("ep").tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert grid.groups("edp").tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize(
    ("sizes", "axis", "want"),
    [
        # (ranks per node, nodes, concurrent, stride) on 2 nodes of 8
        ({"tp": 8, "dp": 2}, "tp", (8, 1, 1, 1)),
        ({"tp": 8, "dp": 2}, "dp", (1, 2, 8, 1)),
        ({"tp": 2, "dp": 8}, "tp", (2, 1, 4, 1)),
        ({"tp": 2, "dp": 8}, "dp", (4, 2, 2, 2)),
        ({"dp": 16}, "dp", (8, 2, 1, 1)),
        ({"tp": 4, "dp": 2, "pp": 2}, "dp", (2, 1, 4, 4)),
        ({"tp": 4, "dp": 2, "pp": 2}, "pp", (1, 2, 8, 1)),
        ({"tp": 2, "cp": 2, "dp": 4}, "cp", (2, 1, 4, 2)),
    ],
)
def test_shapes_on_two_nodes(sizes, axis, want):
    shape = group_shape(cluster_from_names("dgx_a100_80", 2), RankGrid(sizes=sizes), axis)
    assert (shape.ranks_per_node, shape.num_nodes, shape.concurrent, shape.stride) == want


@given(SIZES, SIZES, SIZES, st.sampled_from([1, 2, 4, 8]))
def test_shape_counts_by_hand(tp, dp, pp, gpus_per_node):
    grid = RankGrid(sizes={"tp": tp, "dp": dp, "pp": pp})
    for axis in ("tp", "dp", "pp"):
        groups = grid.groups(axis)
        shape = shape_of(groups, gpus_per_node)
        spans = [len({rank // gpus_per_node for rank in row}) for row in groups.tolist()]
        assert shape.num_nodes == max(spans)
        assert shape.num_ranks >= groups.shape[1]
        on_node = [
            sum(any(r // gpus_per_node == n for r in row) for row in groups.tolist())
            for n in range(-(-grid.world_size // gpus_per_node))
        ]
        assert shape.concurrent == max(on_node)


def test_uneven_group_rounds_up():
    shape = shape_of(np.arange(12).reshape(1, 12), 8)
    assert (shape.ranks_per_node, shape.num_nodes) == (6, 2)


def test_axes_of_any_name():
    grid = RankGrid(sizes={"shard": 8, "replica": 2}, order=("shard", "replica"), expert_axes=())
    assert grid.groups("replica").tolist() == [[i, i + 8] for i in range(8)]


def test_large_grid_is_fast_enough_to_build():
    grid = RankGrid(sizes={"tp": 8, "dp": 128, "pp": 16})
    assert shape_of(grid.groups("dp"), 8).num_ranks == 128


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_sizes_must_be_positive_integers(size):
    with pytest.raises(InvalidPlanError, match="positive integer"):
        RankGrid(sizes={"tp": size})


def test_unknown_axis_and_repeated_axis():
    with pytest.raises(InvalidPlanError, match="no place in the order"):
        RankGrid(sizes={"zp": 2})
    with pytest.raises(InvalidPlanError, match="twice"):
        RankGrid(sizes={}, order=("tp", "tp"), expert_axes=())
    with pytest.raises(InvalidPlanError, match="not one of"):
        RankGrid(sizes={}).groups("zp")


def test_grid_must_fit_the_cluster():
    with pytest.raises(InvalidPlanError, match="16 ranks, but the cluster has 8 GPUs"):
        group_shape(cluster_from_names("dgx_a100_80"), RankGrid(sizes={"dp": 16}), "dp")
