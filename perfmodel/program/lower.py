"""Lowering: workload x plan x stack x cluster -> Program."""

from __future__ import annotations

from perfmodel.errors import RefusedError
from perfmodel.hardware.records import Cluster
from perfmodel.plan.records import Plan
from perfmodel.plan.stack import Stack
from perfmodel.program.records import Program
from perfmodel.program.transformer import lower_transformer
from perfmodel.workload.records import Workload


def lower(workload: Workload, plan: Plan, stack: Stack, cluster: Cluster) -> Program:
    """Program of one training iteration.

    Raises
    ------
    InvalidPlanError
        If the plan does not fit the workload or the cluster.
    RefusedError
        If the family of the model has no lowering.
    """
    family = workload.model.family
    if family == "transformer":
        return lower_transformer(workload, plan, stack, cluster)
    if family == "dlrm":
        from perfmodel.program.recommender import lower_recommender

        return lower_recommender(workload, plan, stack, cluster)
    if family == "cnn":
        from perfmodel.program.convnet import lower_convnet

        return lower_convnet(workload, plan, stack, cluster)
    raise RefusedError(
        f"models of family {family!r} cannot be lowered; known: cnn, dlrm, transformer"
    )
