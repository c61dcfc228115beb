"""Where ranks lie: from sizes of parallel axes to communicators and their shape on the nodes.

Ranks are numbered with the first axis of `order` innermost; rank r sits on GPU r % gpus_per_node
of node r // gpus_per_node. Default order: Megatron's tp-cp-ep-dp-pp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InvalidPlanError
from perfmodel.hardware.records import Cluster, GroupShape

MEGATRON_ORDER = ("tp", "cp", "dp", "pp")
"""Innermost first. Experts (ep) do not add ranks: they regroup those of cp and dp."""

EXPERT_AXES = ("cp", "dp")
"""Axes whose ranks an expert-parallel group takes consecutively, inner one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGrid:
    """Ranks as a grid of parallel axes.

    Parameters
    ----------
    sizes : mapping of str to int
        Ranks along each axis; axes that are absent have size 1. `ep` is the size of an
        expert-parallel group and must divide the product of the axes it regroups.
    order : tuple of str
        Axes, innermost first. May hold axes of any name ("shard", "replica").
    expert_axes : tuple of str
        Neighbouring axes of `order` that `ep` regroups.

    Raises
    ------
    InvalidPlanError
        If a size is not positive, an axis is not in `order`, or `ep` does not divide.
    """

    sizes: Mapping[str, int]
    order: tuple[str, ...] = MEGATRON_ORDER
    expert_axes: tuple[str, ...] = EXPERT_AXES

    def __post_init__(self) -> None:
        for axis, size in self.sizes.items():
            if axis not in (*self.order, "ep"):
                allowed = ", ".join((*self.order, "ep"))
                raise InvalidPlanError(f"axis {axis!r} has no place in the order; use {allowed}")
            if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
                raise InvalidPlanError(f"size {size!r} of axis {axis} is not a positive integer")
        if len(set(self.order)) != len(self.order):
            raise InvalidPlanError(f"order {'-'.join(self.order)} names an axis twice")
        if self.expert_size % self.size("ep"):
            raise InvalidPlanError(
                f"ep {self.size('ep')} does not divide {' x '.join(self.expert_axes)} = "
                f"{self.expert_size}"
            )

    def size(self, axis: str) -> int:
        """Ranks along an axis; 1 where it is not used."""
        return int(self.sizes.get(axis, 1))

    @property
    def expert_size(self) -> int:
        """Ranks that an expert-parallel group may be cut from."""
        return prod(self.size(a) for a in self.expert_axes)

    @property
    def world_size(self) -> int:
        """All ranks."""
        return prod(self.size(axis) for axis in self.order if axis != "ep")

    def groups(self, *axes: str) -> NDArray[np.int64]:
        """Communicators along one axis, or along several taken together.

        Parameters
        ----------
        axes : str
            E.g. "tp"; "dp", "cp" for the ranks that share gradients; "ep" for experts, "edp" for
            the ranks that hold the same experts.

        Returns
        -------
        ndarray of int64, shape (num_groups, group_size)
            Rank numbers; members ascending, groups ascending by their first member.
        """
        if axes in (("ep",), ("edp",)):
            return self._expert_groups(axes[0])
        order = [a for a in self.order if a != "ep"]
        for axis in axes:
            if axis not in order:
                raise InvalidPlanError(f"axis {axis!r} is not one of {', '.join(order)}")
        grid = np.arange(self.world_size, dtype=np.int64).reshape(
            [self.size(a) for a in reversed(order)]
        )
        return _along(grid, [len(order) - 1 - order.index(a) for a in axes])

    def _expert_groups(self, axis: str) -> NDArray[np.int64]:
        pool = self.groups(*self.expert_axes)  # ranks that differ in the expert axes only
        ep = self.size("ep")
        blocks = pool.reshape(len(pool), -1, ep)
        if axis == "edp":
            blocks = blocks.swapaxes(1, 2)
        groups = blocks.reshape(-1, blocks.shape[2])
        return groups[np.argsort(groups[:, 0], kind="stable")]


def _along(grid: NDArray[np.int64], dims: list[int]) -> NDArray[np.int64]:
    """Rows of `grid` along `dims`, members and groups in ascending order."""
    rest = [d for d in range(grid.ndim) if d not in dims]
    size = prod(grid.shape[d] for d in dims)
    groups = np.sort(grid.transpose([*rest, *dims]).reshape(-1, size), axis=1)
    return groups[np.argsort(groups[:, 0], kind="stable")]


def shape_of(groups: NDArray[np.int64], gpus_per_node: int) -> GroupShape:
    """How equal communicators lie on nodes of `gpus_per_node` ranks each.

    Parameters
    ----------
    groups : ndarray of int64, shape (num_groups, group_size)
        All communicators that run the same collective at the same time.
    gpus_per_node : int
        Ranks of one node.

    Returns
    -------
    GroupShape
        Of the widest group: most nodes, then fewest ranks on a node. Where ranks of one group are
        spread unevenly, `ranks_per_node` is rounded up so that `num_ranks` is never short.
        `concurrent` counts the groups with a member on the busiest node.
    """
    nodes = groups // gpus_per_node
    num_groups, size = groups.shape
    changes = np.diff(np.sort(nodes, axis=1), axis=1) != 0
    spans = 1 + changes.sum(axis=1)
    widest = int(np.argmax(spans))
    num_nodes = int(spans[widest])
    pairs = np.unique(
        np.repeat(np.arange(num_groups), size) * (int(nodes.max()) + 1) + nodes.ravel()
    )
    concurrent = int(np.bincount(pairs % (int(nodes.max()) + 1)).max())
    members = np.sort(groups[widest])
    together = np.diff(members)[members[1:] // gpus_per_node == members[:-1] // gpus_per_node]
    return GroupShape(
        ranks_per_node=-(-size // num_nodes),
        num_nodes=num_nodes,
        concurrent=concurrent,
        stride=int(together.min()) if len(together) else 1,
    )


def group_shape(cluster: Cluster, grid: RankGrid, *axes: str) -> GroupShape:
    """Shape of the communicators along `axes` of `grid` on the nodes of `cluster`.

    Raises
    ------
    InvalidPlanError
        If the grid has more or fewer ranks than the cluster has GPUs.

    Examples
    --------
    >>> from perfmodel.hardware.clusters import cluster_from_names
    >>> cluster = cluster_from_names("dgx_a100_80", 2)
    >>> group_shape(cluster, RankGrid(sizes={"tp": 4, "dp": 4}), "dp")
    GroupShape(ranks_per_node=2, num_nodes=2, concurrent=4, stride=4)
    """
    check_fits(cluster, grid)
    return shape_of(grid.groups(*axes), cluster.gpus_per_node)


def check_fits(cluster: Cluster, grid: RankGrid) -> None:
    """Raise InvalidPlanError unless the grid uses every GPU of the cluster exactly once."""
    if grid.world_size != cluster.num_gpus:
        product = " x ".join(f"{a} {grid.size(a)}" for a in grid.order if a != "ep")
        raise InvalidPlanError(
            f"{product} = {grid.world_size} ranks, but the cluster has {cluster.num_gpus} GPUs"
        )
