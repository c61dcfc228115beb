"""Prices of the work that many candidate plans share: collected first, priced in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.execution import ExecutionBundle
from perfmodel.cost.price import price_works
from perfmodel.cost.protocol import CostModel
from perfmodel.hardware.records import Cluster
from perfmodel.plan.stack import Stack
from perfmodel.program.builder import Item
from perfmodel.program.work import Work

Line: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Places of works in a book and how often each is done."""


class PriceBook:
    """Distinct works by place; `price` prices those that have come since the last time."""

    def __init__(
        self,
        models: Sequence[CostModel],
        cluster: Cluster,
        stack: Stack,
        bundle: ExecutionBundle,
    ) -> None:
        self.models = models
        self.cluster = cluster
        self.stack = stack
        self.bundle = bundle
        self._place: dict[Work, int] = {}
        self._seconds: NDArray[np.float64] = np.zeros(0)

    def line(self, items: Iterable[Item]) -> Line:
        """Enter works (with counts) to be priced later."""
        places, counts = [], []
        for item in items:
            work, count = item if isinstance(item, tuple) else (item, 1.0)
            places.append(self._place.setdefault(work, len(self._place)))
            counts.append(float(count))
        return np.array(places, dtype=np.int64), np.array(counts)

    def price(self) -> None:
        """Price everything entered so far."""
        new = list(self._place)[len(self._seconds) :]
        if new:
            parameters = self.bundle.parameters
            more = price_works(new, self.models, self.cluster, self.stack, parameters)
            self._seconds = np.concatenate([self._seconds, more])

    def total(self, line: Line) -> float:
        """Seconds of a line."""
        places, counts = line
        return float(self._seconds[places] @ counts)
