import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import InputError, InvalidPlanError
from perfmodel.plan.placement_rules import PlacementRule, place, sharding_from_text
from perfmodel.plan.sharding import ShardingKind, ShardingPlan, TableSharding
from perfmodel.workload.recommender import EmbeddingTable


def _tables(*rows: int, dim: int = 16, pooling: float = 1.0) -> list[EmbeddingTable]:
    return [
        EmbeddingTable(name=f"t{i}", rows=r, dim=dim, pooling=(pooling,))
        for i, r in enumerate(rows)
    ]


def _ranks(plan: ShardingPlan) -> list[tuple[int, ...]]:
    return [t.ranks for t in plan.tables]


def test_size_balanced_puts_the_largest_on_the_emptiest_rank():
    plan = place("size_balanced", _tables(100, 60, 50, 10), 2)
    assert _ranks(plan) == [(0,), (1,), (1,), (0,)]


def test_capped_rule_limits_the_number_of_tables_a_rank():
    plan = place("size_balanced_capped", _tables(1000, 1, 1, 1), 2)
    assert sorted(r for (r,) in _ranks(plan)) == [0, 0, 1, 1]


def test_serpentine_deals_to_and_fro():
    plan = place("serpentine", _tables(60, 50, 40, 30, 20, 10), 3)
    assert _ranks(plan) == [(0,), (1,), (2,), (2,), (1,), (0,)]


def test_first_rank_stays_free_above_the_threshold():
    rule = PlacementRule(rule="size_balanced_capped", first_rank_free_above=4)
    many = place("size_balanced_capped", _tables(*range(1, 27)), 8, rule)
    few = place("size_balanced_capped", _tables(*range(1, 27)), 4, rule)
    assert all(0 not in ranks for ranks in _ranks(many))
    counts = [_ranks(many).count((i,)) for i in range(1, 8)]
    assert sum(counts) == 26
    assert max(counts) == 4  # 26 tables on 7 ranks
    assert any(0 in ranks for ranks in _ranks(few))


def test_thresholds_split_columns_and_rows_as_tensorflow_dlrm_does():
    rule = PlacementRule(rule="serpentine", column_split_elements=5e9, row_split_elements=1e10)
    tables = _tables(45_833_188, 227_605_432, 1000, dim=128)
    plan = place("serpentine", tables, 8, rule)
    assert [t.kind for t in plan.tables] == [
        ShardingKind.COLUMN_WISE,
        ShardingKind.ROW_WISE,
        ShardingKind.TABLE_WISE,
    ]
    assert len(plan.tables[0].ranks) == 2


def test_busy_tables_are_divided_and_small_ones_copied():
    rule = PlacementRule(rule="split_balanced", copy_below_bytes=1000)
    tables = [*_tables(10), EmbeddingTable(name="hot", rows=10**6, dim=16, pooling=(100.0,))]
    tables += [EmbeddingTable(name=f"cold{i}", rows=10**6, dim=16) for i in range(7)]
    plan = {t.table: t for t in place("split_balanced", tables, 8, rule).tables}
    assert plan["t0"].kind is ShardingKind.DATA_PARALLEL
    assert plan["hot"].kind is ShardingKind.ROW_WISE
    assert len(plan["hot"].ranks) == 8
    assert plan["cold0"].kind is ShardingKind.TABLE_WISE


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("none (single GPU)", "single"),
        ("replicated", "replicated"),
        ("HugeCTR hybrid embedding (frequent rows replicated, others distributed)", "hybrid"),
        ("no hybrid embedding in its log (table-wise or distributed by the library)", "serpentine"),
        (
            "table-wise model parallel (hybrid parallel), whole tables placed greedily; MLPs data "
            "parallel",
            "serpentine",
        ),
        ("row-wise over all GPUs", "row_wise"),
        ("column-wise", "column_wise"),
        ("TorchRec planner", "planned"),
        (None, "serpentine"),
        ("by magic", "serpentine"),
    ],
)
def test_sentences_of_published_runs_are_read_by_rules(text, note):
    rule = PlacementRule(rule="serpentine")
    assert sharding_from_text(text, _tables(5, 4, 3), 2, rule).note == note


def test_hybrid_embedding_is_for_one_hot_features():
    plan = sharding_from_text(None, _tables(50, 40, pooling=3), 2, PlacementRule(rule="hybrid"))
    assert plan.note == "split_balanced"


def test_one_rank_holds_everything_whatever_the_rule():
    assert place("hybrid", _tables(5, 4), 1).note == "single"


def test_unknown_rule_lists_the_known_ones():
    with pytest.raises(InputError, match=r"'alphabetic' is not known; use one of .*serpentine"):
        place("alphabetic", _tables(1), 2)


WHOLE = ("size_balanced", "size_balanced_capped", "serpentine", "round_robin", "lookup_balanced")


@given(
    rule=st.sampled_from((*WHOLE, "planned", "split_balanced", "hybrid", "row_wise")),
    rows=st.lists(st.integers(1, 10**6), min_size=1, max_size=40),
    pooling=st.lists(st.floats(0, 100), min_size=40, max_size=40),
    ranks=st.integers(1, 17),
)
def test_every_rule_makes_a_plan_that_fits(rule, rows, pooling, ranks):
    tables = [
        EmbeddingTable(name=f"t{i}", rows=r, dim=8, pooling=(pooling[i],))
        for i, r in enumerate(rows)
    ]
    plan = place(rule, tables, ranks)
    plan.check(tables, ranks)
    assert [t.table for t in plan.tables] == [t.name for t in tables]


def _entry(table: str = "t0", ranks: tuple[int, ...] = (0,), kind: str = "table_wise"):
    return TableSharding(table=table, kind=ShardingKind(kind), ranks=ranks)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([_entry("ghost")], "table 'ghost', which the model does not have; its tables are t0"),
        ([], r"does not place table\(s\) t0"),
        ([_entry(), _entry()], "places table 't0' twice"),
        ([_entry(ranks=(7,))], "rank 7; ranks are 0 to 1"),
        ([_entry(kind="data_parallel")], "data_parallel on 1 of 2 ranks"),
    ],
)
def test_plans_that_do_not_fit_are_refused_by_name(entries, said):
    with pytest.raises(InvalidPlanError, match=said):
        ShardingPlan(tables=tuple(entries)).check(_tables(10), 2)


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": ()},
        {"ranks": (0, 0)},
        {"ranks": (0, 1)},
        {"hot_fraction": 2.0},
        {"kind": ShardingKind.ROW_WISE, "ranks": (0, 1), "weights": (0.5, 0.1)},
    ],
)
def test_impossible_placements_are_refused(change):
    fields = {"table": "t0", "kind": ShardingKind.TABLE_WISE, "ranks": (0,), **change}
    with pytest.raises(InvalidPlanError, match="t0"):
        TableSharding(**fields)
