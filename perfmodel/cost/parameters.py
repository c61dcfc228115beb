"""Calibration parameters: log-linear corrections of durations by cause, GPU, dtype, stack, link.

A parameter multiplies the duration of every work it applies to, on top of its prior. What it
applies to is a cause (the gemm of one architecture and dtype, the host time of one stack, the
network of one kind), never a run. A bundle stores fitted values; without one all are 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from perfmodel.hardware.records import Cluster, NetworkKind
from perfmodel.program.work import (
    Attention,
    Cause,
    Collective,
    Convolution,
    Gemm,
    GroupedGemm,
    Work,
)


class StackLike(Protocol):
    """What a parameter may know of a stack."""

    @property
    def name(self) -> str:
        """Name of the profile."""
        ...

    @property
    def is_known(self) -> bool:
        """False for a generic stand-in."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSet:
    """Values by name, each a multiplier (float or (scenarios,) array); missing ones are 1."""

    values: Mapping[str, float | NDArray[np.float64]] = field(default_factory=dict)

    def multiplier(self, names: Sequence[str]) -> float | NDArray[np.float64]:
        """Product of the named values, each on top of its prior."""
        product: float | NDArray[np.float64] = 1.0
        for name in names:
            product = product * prior_value(name)
            value = self.values.get(name)
            if value is not None:
                product = product * value
        return product


# Inside a training step, groups on several nodes reach 0.64 of the nominal network rate (491
# published runs, information 0.93) where the same collective alone reaches 0.94: ranks arrive
# apart, other groups share switches, copies to and from buckets are part of it.
_NETWORK_IN_TRAINING = 0.94 / 0.64


def prior_value(name: str) -> float:
    """First value of a parameter: 1 but for networks, which are slower inside training."""
    return _NETWORK_IN_TRAINING if name.startswith("network.") else 1.0


# Causes whose rate is a property of what the stack runs, not of the GPU alone.
_STACK_CAUSES = {
    Cause.ATTENTION, Cause.ELEMENTWISE, Cause.LOGITS, Cause.HOST, Cause.HOST_STEP, Cause.OPTIMIZER,
    Cause.EMBEDDING, Cause.INTERACTION, Cause.INPUT,
}  # fmt: skip


def parameter_names(work: Work, cluster: Cluster, stack: StackLike) -> tuple[str, ...]:
    """Names of the parameters that act on `work`, most general first."""
    gpu = cluster.gpu
    if isinstance(work, Collective):
        return _collective_names(work, cluster, stack)
    names: tuple[str, ...]
    if isinstance(work, Gemm | GroupedGemm | Convolution):
        names = (f"{work.cause}.{gpu.architecture}.{work.dtype}",)
    elif isinstance(work, Attention):
        names = (f"attention.{work.kernel}.{gpu.architecture}",)
    else:
        names = (f"{work.cause}.all",)
    if work.cause in _STACK_CAUSES and stack.is_known:
        names = (*names, f"{work.cause}.{stack.name}")
    return names


def _collective_names(work: Collective, cluster: Cluster, stack: StackLike) -> tuple[str, ...]:
    if work.group.num_nodes > 1 and cluster.network.kind is not NetworkKind.NONE:
        link = f"network.{cluster.network.kind}"
    else:
        link = f"fabric.{cluster.node.fabric}.{cluster.gpu.architecture}"
    names = (link, f"{work.cause}.all")
    return (*names, f"{work.cause}.{stack.name}") if stack.is_known else names
