"""What evaluating one iteration yields, for one scenario or for many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

# A float (one scenario, folded), or an array (scenarios,) or (scenarios, ranks of the class).
Value: TypeAlias = float | NDArray[np.float64]
# Values of the items of a lane: a list of floats, or an array with the items as first axis.
Values: TypeAlias = list[float] | NDArray[np.float64]


@dataclass(slots=True, eq=False)
class Iteration:
    """One iteration by lane; times count from the end of the iteration before.

    `clock` is where each lane stands at the end; `start` is filled for streams only and is the
    arrival of a collective; `rendezvous` is when each meeting starts to transfer: one value, or
    one by member class where ranks are simulated one by one.
    """

    clock: list[Value]
    start: list[Values]
    end: list[Values]
    rendezvous: list[tuple[Value, ...]]

    def take(self, chosen: NDArray[np.bool_]) -> Iteration:
        """The same of some scenarios; arrays only."""
        return Iteration(
            clock=[np.asarray(v)[chosen] for v in self.clock],
            start=[np.asarray(v)[:, chosen] for v in self.start],
            end=[np.asarray(v)[:, chosen] for v in self.end],
            rendezvous=[tuple(np.asarray(v)[chosen] for v in m) for m in self.rendezvous],
        )


@dataclass(slots=True, eq=False)
class Past:
    """Ends of an earlier iteration and, by lane, what to subtract to count from now."""

    end: list[Values]
    offset: list[Value]


class Evaluator(Protocol):
    """Evaluates all operations of a schedule once."""

    def iterate(self, clocks: Sequence[Value], past: Sequence[Past]) -> Iteration:
        """One iteration from where the lanes stand; `past[b - 1]` lies b iterations back."""
        ...

    def zero_clocks(self) -> list[Value]:
        """Lanes that all stand at time 0."""
        ...

    def take(self, chosen: NDArray[np.bool_]) -> Evaluator:
        """The evaluator of some of the scenarios."""
        ...
