"""Sharding plans: forms that people have, and one sentence for each way to get one wrong."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import InputError, PerfmodelError
from perfmodel.plan.sharding import EmbeddingKernel, ShardingKind, ShardingPlan
from perfmodel.plan.torchrec_plans import (
    plan_from_text,
    plan_from_torchrec,
    read_plan,
)
from perfmodel.plan.write_plans import to_placements, to_torchrec
from perfmodel.workload.recommender import EmbeddingTable

TABLES = (
    EmbeddingTable(name="a", rows=1000, dim=64),
    EmbeddingTable(name="b", rows=3, dim=16),
)
B_OK = {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [0]}


def shard(row, column, rows, columns, rank):
    return {
        "shard_offsets": [row, column],
        "shard_sizes": [rows, columns],
        "placement": f"rank:{rank}/cuda:{rank}",
    }


def with_a(kind, shards=None, ranks=None, kernel="fused", **more):
    a = {"sharding_type": kind, "compute_kernel": kernel, "ranks": ranks, "shards": shards}
    return {"plan": {"sparse.ebc": {"a": a, "b": B_OK, **more}}}


def read(document, ranks=4, per_node=2):
    return plan_from_torchrec(document, TABLES, ranks, per_node)


BAD = [
    (with_a("table_wise", ranks=[1], c=B_OK), "table 'c', which the model does not have"),
    ({"plan": {"": {"b": B_OK}}}, r"does not place table\(s\) a"),
    ({"plan": {"x": {"b": B_OK}, "y": {"b": B_OK}}}, "places table 'b' twice"),
    (with_a("row_wise", [shard(0, 0, 600, 64, 0), shard(500, 0, 500, 64, 1)]), "'a'.*overlap"),
    (with_a("row_wise", [shard(0, 0, 400, 64, 0)]), "'a'.*missing"),
    (with_a("row_wise", [shard(0, 0, 2000, 64, 0)]), "'a'.*outside its 1000 rows"),
    (with_a("table_wise", [shard(0, 0, 1000, 64, 7)]), "'a' is placed on rank 7"),
    (with_a("table_wise", [shard(0, 0, 1000, 64, -1)]), "'a' is placed on rank -1"),
    (with_a("table_wise", ranks=[1], b={**B_OK, "sharding_type": "row_wise",
                                        "ranks": [0, 1, 2, 3]}), "'b'.*3 rows.*4 shards"),
    (with_a("column_wise", [shard(0, 0, 1000, 30, 0), shard(0, 30, 1000, 34, 1)]),
     "'a': column width 30 is not a multiple of 4"),
    (with_a("diagonal", ranks=[1]), "'a': sharding_type 'diagonal' is not one of"),
    (with_a("table_wise", ranks=[1], kernel="magic"), "'a': compute_kernel 'magic'"),
    (with_a("table_wise"), "'a' has neither shards nor ranks"),
    (with_a("table_wise", ranks=[1, 2]), "'a'.*overlap"),
    (with_a("data_parallel", ranks=[0, 1]), "'a' is data_parallel on 2 of 4 ranks"),
    (with_a("table_row_wise", ranks=[1, 2]), "'a': table_row_wise.*different nodes"),
    (with_a("grid_shard", ranks=[0, 1, 2, 3]), "'a': grid_shard needs its shards"),
    (with_a("table_wise", [{"shard_offsets": [0, 0], "shard_sizes": [1000, 64]}]), "has no rank"),
    (with_a("table_wise", ["x"]), "'a': shard 0 is not a mapping"),
    (with_a("table_wise", [shard(0, 0, 10.5, 64, 0)]), "'a': 10.5 is not a whole number"),
    ({"plan": {"": {"a": 3}}}, "'a': no sharding_type"),
    ({"plan": {}}, r"does not place table\(s\) a, b"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "sentence"), BAD, ids=range(len(BAD)))
def test_a_bad_plan_is_refused_by_table_and_reason(document, sentence):
    with pytest.raises(PerfmodelError, match=sentence) as caught:
        read(document)
    assert "\n" not in str(caught.value)


def test_no_ranks_no_plan():
    with pytest.raises(PerfmodelError, match="there are 0"):
        ShardingPlan(tables=()).check(TABLES, 0)


def test_nan_pooling_is_refused():
    with pytest.raises(InputError, match="pooling"):
        EmbeddingTable(name="a", rows=1, dim=4, pooling=(math.nan,))


@pytest.mark.parametrize("text", ["", "{", "3", "plan: [", '{"plan": 3}', "[1]", "[{}]"])
def test_other_files_are_refused_in_one_sentence(text, tmp_path):
    file = tmp_path / "p.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"p\.json: ") as caught:
        read_plan(file, TABLES, 4)
    assert "\n" not in str(caught.value)


def test_grid_shares():
    shards = [shard(r, c, 500, w, rank) for rank, (r, c, w) in enumerate(
        [(0, 0, 32), (500, 0, 32), (0, 32, 32), (500, 32, 32)])]  # fmt: skip
    (a, _) = read(with_a("grid_shard", shards)).tables
    assert a.kind is ShardingKind.GRID
    assert a.column_groups == 2
    assert a.row_shares == (0.5,) * 4
    assert a.column_shares == (0.5,) * 4


def test_two_column_shards_of_one_rank_are_one_wider_shard():
    shards = [shard(0, 16 * i, 1000, 16, rank) for i, rank in enumerate([0, 1, 0, 0])]
    (a, _) = read(with_a("column_wise", shards)).tables
    assert a.ranks == (0, 1)
    assert a.weights == (0.75, 0.25)


def test_the_printed_form():
    text = """
module: sparse.ebc

param    sharding type    compute kernel       ranks
-------  ---------------  -------------------  -------
a        column_wise      fused_uvm_caching    [1, 3]
b        data_parallel    dense                None

| param | shard offsets | shard sizes | placement     |
|-------|---------------|-------------|---------------|
| a     | [0, 0]        | [1000, 16]  | rank:1/cuda:1 |
| a     | [0, 16]       | [1000, 48]  | rank:3/cuda:1 |
"""
    a, b = plan_from_text(text, TABLES, 4, 2).tables
    assert (a.kind, a.ranks) == (ShardingKind.COLUMN_WISE, (1, 3))
    assert (a.weights, a.kernel) == ((0.25, 0.75), EmbeddingKernel.UVM_CACHING)
    assert (b.kind, b.ranks) == (ShardingKind.DATA_PARALLEL, (0, 1, 2, 3))


@st.composite
def plans(draw):
    def entry(rows, dim):
        kind = draw(st.sampled_from([k for k in ShardingKind if k is not ShardingKind.HYBRID]))
        ranks = draw(st.permutations(range(4)))
        node = draw(st.sampled_from([[0, 1], [2, 3]]))
        chosen = {
            "data_parallel": [0, 1, 2, 3], "table_wise": ranks[:1], "row_wise": ranks[:3],
            "column_wise": ranks[:2], "grid_shard": [2, 3, 0, 1],
        }.get(str(kind), node)  # fmt: skip
        fields = {"kind": str(kind), "ranks": chosen}
        if kind is ShardingKind.GRID:
            fields["column_groups"] = 2
        if kind is ShardingKind.COLUMN_WISE:
            fields["weights"] = draw(st.sampled_from([[0.25, 0.75], [0.5, 0.5]]))
        return fields

    return [{"table": t.name, **entry(t.rows, t.dim)} for t in TABLES]


@settings(max_examples=60, deadline=None)
@given(plans())
def test_plans_survive_torchrec_json_and_our_placements(placements):
    plan = plan_from_text(json.dumps(placements), TABLES, 4, 2)
    ours = plan_from_text(json.dumps(to_placements(plan)), TABLES, 4, 2)
    assert ours == plan
    theirs = plan_from_text(json.dumps(to_torchrec(plan, TABLES, 2, "m")), TABLES, 4, 2)
    for before, after in zip(plan.tables, theirs.tables, strict=True):
        assert (before.kind, before.ranks, before.kernel) == (after.kind, after.ranks, after.kernel)
        # 3 rows on 2 ranks are 2 and 1.
        assert after.shares == pytest.approx(before.shares, abs=0.34)
