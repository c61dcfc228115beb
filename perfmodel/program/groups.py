"""Where the communicators of a plan lie: shapes on nodes and rank numbers.

Ranks are numbered with tensor parallelism fastest, then context, data and pipeline parallelism,
as Megatron-LM does; expert-parallel groups are neighbours along the data-parallel axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InvalidPlanError
from perfmodel.hardware.records import Cluster, GroupShape
from perfmodel.plan.records import Plan


@dataclass(frozen=True, slots=True)
class Axis:
    """One parallel axis: `size` ranks, `stride` apart in rank number."""

    size: int
    stride: int


class Groups:
    """Communicators of a plan on a cluster."""

    def __init__(self, plan: Plan, cluster: Cluster) -> None:
        if plan.num_gpus != cluster.num_gpus:
            raise InvalidPlanError(
                f"dp {plan.dp} x tp {plan.tp} x pp {plan.pp} x cp {plan.cp} = {plan.num_gpus} "
                f"does not equal the {cluster.num_gpus} GPUs of the cluster"
            )
        if (plan.dp * plan.cp * plan.tp) % plan.ep:
            raise InvalidPlanError(
                f"ep {plan.ep} does not divide dp x cp x tp = {plan.dp * plan.cp * plan.tp}"
            )
        self.plan = plan
        self.cluster = cluster
        inner = plan.tp * plan.cp
        # Expert groups are neighbours: along dp and cp, and along tp where ep exceeds them.
        expert_stride = plan.tp if plan.ep <= plan.dp * plan.cp else 1
        self.axes = {
            "tp": Axis(plan.tp, 1),
            "cp": Axis(plan.cp, plan.tp),
            "dp": Axis(plan.dp, inner),
            "dpcp": Axis(plan.dp * plan.cp, plan.tp),
            "pp": Axis(plan.pp, inner * plan.dp),
            "ep": Axis(plan.ep, expert_stride),
            # ranks that hold the same experts: what expert gradients are reduced over
            "expert_dp": Axis(
                max(plan.dp * inner // (plan.ep * expert_stride), 1), expert_stride * plan.ep
            ),
        }

    def shape(self, axis: str) -> GroupShape:
        """How the communicators of an axis lie on the nodes."""
        return self._shape(self.axes[axis])

    def add_sharding(self, shard_ranks: int) -> None:
        """Add the axes "shard" and "replica": `shard_ranks` neighbours share one copy."""
        whole = self.axes["dpcp"]
        if whole.size % shard_ranks:
            raise InvalidPlanError(
                f"a shard group of {shard_ranks} ranks does not divide the {whole.size} "
                "data-parallel ranks"
            )
        self.axes["shard"] = Axis(shard_ranks, whole.stride)
        self.axes["replica"] = Axis(whole.size // shard_ranks, whole.stride * shard_ranks)

    def neighbour_shape(self) -> GroupShape:
        """Sender and receiver of two pipeline stages."""
        axis = self.axes["pp"]
        return self._shape(Axis(2, axis.stride))

    def _shape(self, axis: Axis) -> GroupShape:
        per_node = self.cluster.gpus_per_node
        inside = max(1, min(axis.size, per_node // axis.stride if axis.stride <= per_node else 1))
        nodes = -(-axis.size // inside)
        used = min(per_node, self.plan.num_gpus)
        return GroupShape(
            ranks_per_node=inside,
            num_nodes=nodes,
            concurrent=max(1, used // inside),
            stride=min(axis.stride, per_node),
        )

    def stage_ranks(self, stage: int) -> NDArray[np.int64]:
        """Rank numbers of a pipeline stage."""
        size = self.axes["pp"].stride
        return np.arange(stage * size, (stage + 1) * size, dtype=np.int64)

    def members(self, axis: str) -> NDArray[np.int64]:
        """Rank numbers of every communicator of an axis, shape (num_groups, group_size)."""
        chosen = self.axes[axis]
        block = chosen.size * chosen.stride
        ranks = np.arange(self.plan.num_gpus, dtype=np.int64)
        grid = ranks.reshape(-1, chosen.size, chosen.stride) if block else ranks
        return np.ascontiguousarray(np.moveaxis(grid, 1, 2).reshape(-1, chosen.size))

    def between_stages(self, source: int, target: int) -> NDArray[np.int64]:
        """Pairs (rank of stage `source`, the same place in stage `target`)."""
        return np.stack([self.stage_ranks(source), self.stage_ranks(target)], axis=1)
