"""Loads of tables that are divided by rows and columns at once, or by columns of a node."""

from __future__ import annotations

import pytest

from perfmodel.plan.sharding import ShardingKind, ShardingPlan, TableSharding
from perfmodel.program.recommender_loads import rank_loads
from perfmodel.workload.recommender import EmbeddingTable, RecommenderModel

MODEL = RecommenderModel(
    name="one", tables=(EmbeddingTable(name="a", rows=100, dim=8, pooling=(4.0,)),)
)


def loads(**fields):
    plan = ShardingPlan(tables=(TableSharding(table="a", **fields),))
    plan.check(MODEL.tables, 4)
    return rank_loads(MODEL, [plan], 4, global_batch=20.0, l2_bytes=1.0)


def test_a_grid_looks_up_half_the_rows_and_reduces_half_the_width_in_its_node():
    found = loads(kind=ShardingKind.GRID, ranks=(0, 1, 2, 3), column_groups=2)
    assert found.lookups[0] == pytest.approx([40.0] * 4)  # 20 samples x 4 rows / 2
    assert found.elements[0] == pytest.approx([160.0] * 4)  # x 4 columns
    assert found.node_reduce_elements[0] == pytest.approx([80.0] * 4)  # 20 vectors x 4 columns
    assert found.exchange_elements[0] == pytest.approx([0.0] * 4)
    assert found.parameters[0] == pytest.approx([200.0] * 4)


def test_columns_of_a_node_are_exchanged_like_columns():
    here = loads(kind=ShardingKind.TABLE_COLUMN_WISE, ranks=(2, 3))
    assert here.lookups[0] == pytest.approx([0, 0, 80.0, 80.0])
    assert here.exchange_elements[0] == pytest.approx([0, 0, 80.0, 80.0])


def test_a_grid_of_one_strip_is_table_row_wise():
    grid = loads(kind=ShardingKind.GRID, ranks=(0, 1))
    rows = loads(kind=ShardingKind.TABLE_ROW_WISE, ranks=(0, 1))
    for name in grid.__slots__:
        assert getattr(grid, name) == pytest.approx(getattr(rows, name))
