"""Placement of shards under an additive rating: bounds, limits, determinism."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import InputError, RefusedError
from perfmodel.search.makespan import Option, lower_bound, place_shards


def whole(cost, size=1.0):
    return [Option(count=1, cost=cost, size=size)]


def test_two_ranks_by_hand():
    found = place_shards([whole(c) for c in (5.0, 4.0, 3.0, 3.0, 3.0)], 2, 100.0)
    assert found.best.rating == pytest.approx(9.0)  # 5 + 4 against 3 + 3 + 3
    assert found.lower_bound == pytest.approx(9.0)


def test_a_large_table_is_cut():
    big = [Option(count=1, cost=10.0, size=1.0), Option(count=2, cost=5.5, size=0.5)]
    found = place_shards([big, whole(1.0)], 2, 100.0, max_evaluations=2000)
    assert found.best.rating == pytest.approx(6.5)
    assert found.best.options[0] == 1


def test_memory_decides_where_time_does_not():
    tables = [whole(1.0, 3.0), whole(1.0, 3.0), whole(4.0, 1.0), whole(4.0, 1.0)]
    found = place_shards(tables, 2, 4.0, max_evaluations=500)
    where = [ranks[0] for ranks in found.best.ranks]
    assert where[0] != where[1]
    assert where[2] != where[3]


def test_what_does_not_fit_is_refused_with_the_missing_bytes():
    with pytest.raises(RefusedError, match=r"2\.0 GiB of them find no room on 1 rank"):
        place_shards([whole(1.0, 2.0 * 2**30)], 1, 1.0 * 2**30)
    with pytest.raises(InputError, match="0 ranks"):
        place_shards([whole(1.0)], 0, 1.0)


def test_a_clock_ends_the_search_with_a_placement():
    ticks = iter(float(i) for i in range(10**6))
    found = place_shards(
        [whole(c) for c in (5.0, 4.0, 3.0)], 2, 9.0, seconds=1.0, clock=lambda: next(ticks)
    )
    assert found.best.rating == pytest.approx(7.0)


problems = st.lists(
    st.tuples(st.integers(1, 20), st.integers(1, 4)).map(
        lambda cs: (
            [*whole(float(cs[0]), float(cs[1])), Option(count=2, cost=cs[0] * 0.6, size=cs[1] / 2)]
        )
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40, deadline=None)
@given(problems, st.integers(0, 5))
def test_sums_are_right_bounds_hold_and_seeds_repeat(tables, seed):
    ranks, capacity = 2, 12.0
    found = place_shards(tables, ranks, capacity, seed=seed, max_evaluations=600)
    loads, sizes = [0.0] * ranks, [0.0] * ranks
    for options, number, where in zip(tables, found.best.options, found.best.ranks, strict=True):
        option = options[number]
        assert len(set(where)) == option.count
        for rank in where:
            loads[rank] += option.cost
            sizes[rank] += option.size
    assert max(loads) == pytest.approx(found.best.rating)
    assert max(sizes) <= capacity + 1e-9
    assert found.best.rating >= lower_bound(tables, ranks) - 1e-9
    again = place_shards(tables, ranks, capacity, seed=seed, max_evaluations=600)
    assert again.best == found.best


@settings(max_examples=25, deadline=None)
@given(problems)
def test_small_problems_are_near_the_best_of_all_placements(tables):
    found = place_shards(tables, 2, 100.0, max_evaluations=5000)
    ways = [(("w", 0), ("w", 1), ("c", 0))] * len(tables)
    best = float("inf")
    for chosen in product(*ways):
        loads = [0.0, 0.0]
        for (kind, rank), (one, two) in zip(chosen, tables, strict=True):
            if kind == "w":
                loads[rank] += one.cost
            else:
                loads = [v + two.cost for v in loads]
        best = min(best, max(loads))
    assert found.best.rating <= 1.02 * best
