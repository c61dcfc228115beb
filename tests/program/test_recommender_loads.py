import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.plan.placement_rules import PlacementRule, place
from perfmodel.plan.sharding import EmbeddingKernel, ShardingKind, ShardingPlan, TableSharding
from perfmodel.program.recommender_loads import rank_loads
from perfmodel.workload.recommender import EmbeddingTable, RecommenderModel

BATCH = 64.0


def _model(pooling: float = 2.0, tables: int = 2) -> RecommenderModel:
    made = tuple(
        EmbeddingTable(name=f"t{i}", rows=10**6, dim=16, pooling=(pooling,)) for i in range(tables)
    )
    return RecommenderModel(name="m", tables=made)


def _plan(*kinds: ShardingKind, ranks: int = 4, **more) -> ShardingPlan:
    entries = []
    for i, kind in enumerate(kinds):
        held = (i,) if kind is ShardingKind.TABLE_WISE else tuple(range(ranks))
        entries.append(TableSharding(table=f"t{i}", kind=kind, ranks=held, **more))
    return ShardingPlan(tables=tuple(entries))


def _loads(plan: ShardingPlan, model: RecommenderModel | None = None):
    model = model or _model(tables=len(plan.tables))
    return rank_loads(model, [plan], 4, global_batch=BATCH, l2_bytes=0.0)


def test_table_wise_ranks_work_on_the_global_batch():
    loads = _loads(_plan(ShardingKind.TABLE_WISE, ShardingKind.TABLE_WISE))
    assert loads.lookups[0].tolist() == [128, 128, 0, 0]
    assert loads.output_elements[0].tolist() == [64 * 16, 64 * 16, 0, 0]
    assert loads.exchange_elements[0].tolist() == [64 * 16, 64 * 16, 0, 0]


def test_column_wise_ranks_read_every_row_in_part():
    loads = _loads(_plan(ShardingKind.COLUMN_WISE))
    assert loads.lookups[0].tolist() == [128] * 4
    assert loads.elements[0].tolist() == [128 * 4] * 4
    assert loads.exchange_elements[0].tolist() == [64 * 4] * 4


def test_row_wise_ranks_share_lookups_and_reduce_whole_vectors():
    loads = _loads(_plan(ShardingKind.ROW_WISE))
    assert loads.lookups[0].tolist() == [32] * 4
    assert loads.reduce_elements[0].tolist() == [64 * 16] * 4
    assert loads.exchange_elements[0].tolist() == [0] * 4


def test_copied_tables_are_local_and_reduce_all_their_rows():
    loads = _loads(_plan(ShardingKind.DATA_PARALLEL))
    assert loads.lookups.sum() == 0
    assert loads.local_lookups[0].tolist() == [32] * 4
    assert loads.dense_elements[0].tolist() == [16e6] * 4


def test_hybrid_ranks_send_only_cold_rows():
    plan = _plan(ShardingKind.HYBRID, hot_fraction=0.75, hot_rows=100.0)
    loads = _loads(plan, _model(pooling=1.0, tables=1))
    assert loads.local_lookups[0].tolist() == [12] * 4
    assert loads.lookups[0].tolist() == [4] * 4
    assert loads.exchange_elements[0].tolist() == [64] * 4
    assert loads.dense_elements[0].tolist() == [1600] * 4


def test_rows_in_host_memory_are_counted_apart():
    plan = _plan(ShardingKind.TABLE_WISE, kernel=EmbeddingKernel.UVM_CACHING, cached_fraction=0.75)
    loads = _loads(plan)
    assert loads.lookups[0, 0] == pytest.approx(96)
    assert loads.host_elements[0, 0] == pytest.approx(32 * 16)


def test_few_distinct_rows_bound_what_is_touched():
    tables = (EmbeddingTable(name="t0", rows=3, dim=16, pooling=(2.0,)),)
    model = RecommenderModel(name="m", tables=tables)
    loads = rank_loads(model, [_plan(ShardingKind.TABLE_WISE)], 4, global_batch=BATCH, l2_bytes=1e6)
    assert loads.distinct_elements[0, 0] == pytest.approx(3 * 16)
    assert loads.cached_elements[0, 0] == loads.elements[0, 0]


@given(
    rule=st.sampled_from(("size_balanced", "planned", "split_balanced", "row_wise", "hybrid")),
    rows=st.lists(st.integers(1, 10**6), min_size=1, max_size=12),
    ranks=st.integers(2, 9),
    batch=st.integers(1, 10**5),
)
def test_no_rule_loses_a_lookup(rule, rows, ranks, batch):
    tables = tuple(
        EmbeddingTable(name=f"t{i}", rows=r, dim=8, pooling=(float(i % 3 + 1),))
        for i, r in enumerate(rows)
    )
    model = RecommenderModel(name="m", tables=tables)
    plan = place(rule, tables, ranks, PlacementRule(rule=rule, copy_below_bytes=1e4))
    loads = rank_loads(model, [plan], ranks, global_batch=batch, l2_bytes=1e6)
    total = loads.lookups.sum() + loads.local_lookups.sum()
    assert total == pytest.approx(batch * model.lookups)
    assert np.all(loads.distinct_elements <= loads.elements * (1 + 1e-9))
