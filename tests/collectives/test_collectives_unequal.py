"""Unequal all_to_all: hand-computed loads, equality when balanced, monotone in every entry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from perfmodel.cost.collectives import comm_path
from perfmodel.cost.collectives.unequal import equivalent_bytes
from perfmodel.errors import InputError
from perfmodel.hardware.clusters import cluster_from_names
from perfmodel.hardware.records import GroupShape

ONE = comm_path(cluster_from_names("dgx_a100_80"), GroupShape(ranks_per_node=4, num_nodes=1))
TWO = comm_path(cluster_from_names("dgx_a100_80", 2), GroupShape(ranks_per_node=2, num_nodes=2))
MATRICES = arrays(float, (4, 4), elements=st.floats(0, 1e9))


@pytest.mark.parametrize("path", [ONE, TWO])
def test_balanced_matrix_is_the_equal_all_to_all(path):
    assert equivalent_bytes(np.full((4, 4), 2.5e6), path) == pytest.approx(1e7)


def test_busiest_receiver_decides_inside_a_node():
    matrix = np.zeros((4, 4))
    matrix[1, 0], matrix[2, 0], matrix[3, 0] = 1e6, 2e6, 3e6
    # Rank 0 receives 6 MB; in an equal one 3/4 of S crosses a rank's link, so S = 8 MB.
    assert equivalent_bytes(matrix, ONE) == pytest.approx(8e6)


def test_sender_and_receiver_of_the_same_bytes_do_not_add():
    matrix = np.zeros((4, 4))
    matrix[0, 1] = matrix[1, 0] = 3e6
    assert equivalent_bytes(matrix, ONE) == pytest.approx(4e6)


def test_own_part_is_free():
    assert equivalent_bytes(np.diag([1e9] * 4), ONE) == 0


def test_traffic_inside_nodes_does_not_load_the_nics():
    inside, across = np.zeros((4, 4)), np.zeros((4, 4))
    inside[0, 1] = across[0, 2] = 8e6
    ratio = TWO.p2p_bytes_per_s / TWO.net_rank_bytes_per_s
    assert equivalent_bytes(across, TWO) == pytest.approx(16e6)  # half of an equal one leaves
    assert equivalent_bytes(inside, TWO) == pytest.approx(16e6 / ratio)


@given(MATRICES, st.integers(0, 3), st.integers(0, 3), st.floats(0, 1e9))
@settings(max_examples=200, deadline=None)
def test_more_bytes_never_take_less(matrix, i, j, extra):
    larger = matrix.copy()
    larger[i, j] += extra
    for path in (ONE, TWO):
        assert equivalent_bytes(larger, path) >= equivalent_bytes(matrix, path) * (1 - 1e-12)


@given(MATRICES)
@settings(max_examples=100, deadline=None)
def test_unequal_is_never_faster_than_its_mean(matrix):
    off = matrix.copy()
    np.fill_diagonal(off, 0)
    mean = np.full((4, 4), off.sum() / 12)
    assert equivalent_bytes(off, ONE) >= equivalent_bytes(mean, ONE) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.ones((3, 3)), "does not fit 4 ranks"),
        (np.full((4, 4), -1.0), "negative"),
        (np.full((4, 4), np.nan), "negative or not a number"),
    ],
)
def test_bad_matrix_is_refused(matrix, words):
    with pytest.raises(InputError, match=words):
        equivalent_bytes(matrix, ONE)
