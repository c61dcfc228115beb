"""TorchRec's rating term by term, against hand-computed values and what TorchRec 1.8 printed."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perfmodel.errors import InvalidPlanError
from perfmodel.plan.sharding import EmbeddingKernel, ShardingKind, ShardingPlan, TableSharding
from perfmodel.plan.torchrec_plans import plan_from_torchrec
from perfmodel.search.torchrec_rating import TorchRecRating, imbalance, plan_for_torchrec
from perfmodel.units import GIB
from perfmodel.workload.recommender import EmbeddingTable

CORPUS = os.environ.get("PERFMODEL_CORPUS")
# Rates of 1 byte a ms make every term a count of bytes.
BYTE = 1e3 / GIB
UNIT = TorchRecRating(
    num_ranks=4, ranks_per_node=4, batch=10.0, hbm_gib_per_s=BYTE, intra_gib_per_s=BYTE,
    inter_gib_per_s=BYTE / 2,
)  # fmt: skip
TABLE = EmbeddingTable(name="a", rows=100, dim=128, pooling=(3.0,))


@pytest.mark.parametrize(
    ("kind", "width", "forward", "comms", "backward_comms"),
    [
        # 30 ids x 4 ranks x (8 + 512 bytes) + 10 vectors x 4 ranks x 512 bytes; 20,480 bytes sent
        (ShardingKind.TABLE_WISE, 128, 30 * 4 * 520 + 20480, 20480, 20480),
        # half the columns: 1.15 times as slow, half the vectors
        (ShardingKind.COLUMN_WISE, 64, 1.15 * (30 * 4 * 264 + 10240), 10240, 10240),
        # 16 columns are read like 32, 1.75 times as slow
        (ShardingKind.COLUMN_WISE, 16, 1.75 * (30 * 4 * 136 + 2560), 2560, 2560),
        (ShardingKind.ROW_WISE, 128, 30 * 520 + 20480, 20480, 20480 * (1 + 2.455)),
        # one node: the table once over the network of 4 GPUs at half a byte each, 9.22 passes
        (ShardingKind.DATA_PARALLEL, 128, 2 * (30 * 520 + 10 * 512), 0,
         51200 / (0.5 * 4) + 9.22 * 51200 * 2),
    ],
)  # fmt: skip
def test_terms_by_hand(kind, width, forward, comms, backward_comms):
    terms = UNIT.terms(TABLE, kind, width)
    assert terms.forward_compute == pytest.approx(forward, rel=1e-9)
    assert terms.backward_compute == pytest.approx(2 * forward, rel=1e-9)
    assert terms.forward_comms == pytest.approx(comms, rel=1e-9)
    assert terms.backward_comms == pytest.approx(backward_comms, rel=1e-9)
    assert terms.total == pytest.approx(3 * forward + comms + backward_comms, rel=1e-9)


def test_past_one_host_everything_goes_over_the_network():
    far = replace(UNIT, ranks_per_node=2)
    assert far.terms(TABLE, ShardingKind.TABLE_WISE, 128).forward_comms == pytest.approx(2 * 20480)


def test_all_reduce_of_copies_over_many_nodes_counts_twice():
    two = replace(UNIT, ranks_per_node=2).terms(TABLE, ShardingKind.DATA_PARALLEL, 128)
    four = replace(UNIT, ranks_per_node=1).terms(TABLE, ShardingKind.DATA_PARALLEL, 128)
    passes = 9.22 * 51200 * 2
    assert two.backward_comms - passes == pytest.approx(51200 * 1.5 / (0.5 * 2))
    assert four.backward_comms - passes == pytest.approx(2 * 51200 * 1.5 / 0.5)


def test_a_plan_is_rated_by_its_slowest_rank():
    plan = ShardingPlan(
        tables=(TableSharding(table="a", kind=ShardingKind.TABLE_WISE, ranks=(2,)),)
    )
    sums = UNIT.by_rank(plan, [TABLE])
    assert [s > 0 for s in sums] == [False, False, True, False]
    assert UNIT.rate(plan, [TABLE]) == max(sums)
    assert imbalance(sums) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kernel": EmbeddingKernel.UVM}, "uvm is not rated"),
        ({"kind": ShardingKind.TABLE_ROW_WISE}, "table_row_wise is not rated"),
    ],
)
def test_what_is_not_rated_is_refused(change, sentence):
    entry = TableSharding(table="a", kind=ShardingKind.TABLE_WISE, ranks=(2,))
    with pytest.raises(InvalidPlanError, match=sentence):
        UNIT.rate(ShardingPlan(tables=(replace(entry, **change),)), [TABLE])


def problem(name):
    if CORPUS is None:
        pytest.skip("PERFMODEL_CORPUS is not set: the planner problems are there")
    folder = Path(CORPUS) / "dlrm" / "planner_problems"
    spec = json.loads((folder / f"{name}.json").read_text())
    tables = tuple(
        EmbeddingTable(name=t["name"], rows=t["rows"], dim=t["dim"], pooling=(t["pooling"],))
        for t in spec["tables"]
    )
    hardware = spec["hardware"]
    rating = TorchRecRating(
        num_ranks=spec["world_size"], ranks_per_node=spec["local_world_size"],
        batch=spec["batch"], memory_gib=hardware["hbm_cap_gib"],
        hbm_gib_per_s=hardware["hbm_bw_gibps"], intra_gib_per_s=hardware["intra_bw_gibps"],
        inter_gib_per_s=hardware["inter_bw_gibps"],
    )  # fmt: skip
    return rating, tables, folder


def test_fixed_plans_are_rated_as_torchrec_rated_them():
    """26 tables on 8 ranks: what TorchRec 1.8's estimators gave, to the digits it was noted in."""
    rating, tables, folder = problem("26x8")
    every = tuple(range(8))
    rows = [TableSharding(table=t.name, kind=ShardingKind.ROW_WISE, ranks=every) for t in tables]
    robin = [
        TableSharding(table=t.name, kind=ShardingKind.TABLE_WISE, ranks=(i % 8,))
        for i, t in enumerate(tables)
    ]
    mixed = [row if t.rows > 1e6 else one for t, row, one in zip(tables, rows, robin, strict=True)]
    for entries, printed in ((rows, 9.91), (robin, 7.36), (mixed, 5.10)):
        assert rating.rate(ShardingPlan(tables=tuple(entries)), tables) == pytest.approx(
            printed, abs=0.006
        )
    assert np.mean(rating.by_rank(ShardingPlan(tables=tuple(robin)), tables)) == pytest.approx(
        2.51, abs=0.006
    )
    annealed = json.loads((folder / "26x8_plan_annealed.json").read_text())
    plan = plan_from_torchrec(annealed, tables, 8)
    assert rating.rate(plan, tables) == pytest.approx(3.005, abs=6e-4)


@pytest.mark.parametrize(
    ("name", "limit"),  # TorchRec's planner: 3.218, 12.025, 129.7 (cut off after 303 s)
    [("26x8", 3.01), ("200x16", 11.94), ("800x64", 50.0)],
)
def test_our_plans_beat_torchrecs_under_its_own_rating(name, limit):
    rating, tables, _ = problem(name)
    plan, found = plan_for_torchrec(rating, tables, max_evaluations=60_000)
    assert rating.rate(plan, tables) == pytest.approx(found.best.rating, rel=1e-9)
    assert found.best.rating <= limit
    assert found.best.rating >= found.lower_bound * (1 - 1e-9)
    sizes = [0.0] * rating.num_ranks
    known = {t.name: t for t in tables}
    for entry in plan.tables:
        for rank, share in zip(entry.ranks, entry.column_shares, strict=True):
            sizes[rank] += rating.size(
                known[entry.table], entry.kind, share * known[entry.table].dim
            )
    assert max(sizes) <= rating.memory_gib * GIB * 0.85 * (1 + 1e-9)
    assert not math.isnan(max(sizes))
