"""The priced Program: a Program and how long each of its tasks takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.program.records import Program
from perfmodel.program.work import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedProgram:
    """Durations in seconds of every task.

    `device_s[c]` and `dispatch_s[c]` have shape (num_tasks, scenarios) for class c, or
    (num_tasks, scenarios, multiplicity) where ranks of a class differ (a straggler, jitter):
    `device_s` is the time on the task's lane (host tasks included), `dispatch_s` the time its
    launch occupies the issuing host thread. `causes[c][t]` splits the duration of task t
    (scenario 0) by cause: fractions that sum to 1.
    """

    program: Program
    device_s: tuple[NDArray[np.float64], ...]
    dispatch_s: tuple[NDArray[np.float64], ...]
    causes: tuple[tuple[Mapping[Cause, float], ...], ...]
    warnings: tuple[str, ...] = ()
