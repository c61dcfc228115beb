"""The exception tree. Every error a user can cause is one sentence and knows its exit code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PerfmodelError(Exception):
    """Root of all errors raised on purpose; `exit_code` is what the command line returns."""

    exit_code = 2


class InputError(PerfmodelError, ValueError):
    """A file, field or value is not usable; the message names it and what is allowed."""


class InvalidPlanError(InputError):
    """A plan does not fit its workload or cluster."""


class UnknownNameError(InputError):
    """A catalogue name does not exist; the nearest names are offered."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        near = difflib.get_close_matches(name.lower(), sorted(set(known)), n=3, cutoff=0.4)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        super().__init__(f"unknown {kind} {name!r}{hint} (perfmodel catalogue lists all)")
        self.kind = kind
        self.name = name


class RefusedError(PerfmodelError):
    """A well-formed run that cannot be predicted honestly; the message says what is missing."""


class DeadlockError(PerfmodelError):
    """Ranks wait for each other forever, e.g. collectives issued in different orders."""


class MissingCapabilityError(PerfmodelError):
    """An optional library or a device is absent."""

    exit_code = 3
