"""The communicators of a plan: their rank numbers and how they lie on the nodes.

Ranks are numbered with tensor parallelism fastest, then context, data and pipeline parallelism,
as Megatron-LM does; expert-parallel groups are neighbours along context and data parallelism.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InvalidPlanError
from perfmodel.hardware.placement import EXPERT_AXES, RankGrid, check_fits, shape_of
from perfmodel.hardware.records import Cluster, GroupShape
from perfmodel.plan.records import Plan

# Communicator kinds of a plan and the axes of the rank grid along which they lie.
_ALONG: dict[str, tuple[str, ...]] = {
    "tp": ("tp",),
    "cp": ("cp",),
    "dp": ("cp", "dp"),  # ranks that hold the same parameters and share gradients
    "ep": ("ep",),
    "expert_dp": ("edp",),
}
_SHARDED_ORDER = ("tp", "shard", "replica", "pp")


class Groups:
    """Communicators of a plan on a cluster.

    Raises
    ------
    InvalidPlanError
        If the plan does not use every GPU once, or expert or shard groups do not divide it.
    """

    def __init__(self, plan: Plan, cluster: Cluster) -> None:
        # Experts are also dealt over tensor-parallel ranks where the others are too few.
        beyond = plan.ep > plan.dp * plan.cp
        self.grid = RankGrid(
            sizes={"tp": plan.tp, "cp": plan.cp, "dp": plan.dp, "pp": plan.pp, "ep": plan.ep},
            expert_axes=("tp", *EXPERT_AXES) if beyond else EXPERT_AXES,
        )
        check_fits(cluster, self.grid)
        self.plan = plan
        self.cluster = cluster
        self._members: dict[str, NDArray[np.int64]] = {}
        self._shapes: dict[str, GroupShape] = {}

    def members(self, kind: str) -> NDArray[np.int64]:
        """Rank numbers of every communicator of a kind, shape (num_groups, group_size)."""
        if kind not in self._members:
            self._members[kind] = self.grid.groups(*_ALONG[kind])
        return self._members[kind]

    def shape(self, kind: str) -> GroupShape:
        """How the communicators of a kind lie on the nodes."""
        if kind not in self._shapes:
            self._shapes[kind] = shape_of(self.members(kind), self.cluster.gpus_per_node)
        return self._shapes[kind]

    def add_sharding(self, shard_ranks: int) -> None:
        """Add the kinds "shard" and "replica": `shard_ranks` neighbours share one copy."""
        size = self.plan.dp * self.plan.cp
        if size % shard_ranks:
            raise InvalidPlanError(
                f"a shard group of {shard_ranks} ranks does not divide the {size} data-parallel "
                "ranks"
            )
        sizes = {
            "tp": self.plan.tp,
            "shard": shard_ranks,
            "replica": size // shard_ranks,
            "pp": self.plan.pp,
        }
        grid = RankGrid(sizes=sizes, order=_SHARDED_ORDER, expert_axes=("shard",))
        for kind in ("shard", "replica"):
            self._members[kind] = grid.groups(kind)

    def neighbour_shape(self) -> GroupShape:
        """Sender and receiver of two pipeline stages."""
        return shape_of(self.between_stages(0, 1), self.cluster.gpus_per_node)

    def stage_ranks(self, stage: int) -> NDArray[np.int64]:
        """Rank numbers of a pipeline stage."""
        size = self.plan.num_gpus // self.plan.pp
        return np.arange(stage * size, (stage + 1) * size, dtype=np.int64)

    def between_stages(self, source: int, target: int) -> NDArray[np.int64]:
        """Pairs (rank of stage `source`, the same place in stage `target`)."""
        return np.stack([self.stage_ranks(source), self.stage_ranks(target)], axis=1)
