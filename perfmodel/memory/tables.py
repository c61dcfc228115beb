"""Embedding tables of recommenders on the rank that holds most of them."""

from __future__ import annotations

from perfmodel.memory.records import Part
from perfmodel.plan.records import Plan
from perfmodel.workload.records import Workload


def table_bytes_by_rank(workload: Workload, plan: Plan) -> dict[str, dict[Part, float]]:
    """Table, optimiser-state and cache bytes by rank; empty without sharded tables."""
    return {}
