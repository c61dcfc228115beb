"""Settings of a foreign file: read once each, what nobody read is reported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from perfmodel.errors import InputError

_FEW = 30  # names that still make a readable sentence


@dataclass(slots=True)
class Foreign:
    """Sections of a RUN as far as a foreign file states them.

    `batch` holds `global`, `micro` and `accumulation` where stated; the cluster is what the
    launcher says (`num_nodes`, `gpus_per_node`).
    """

    file: str
    workload: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    stack: dict[str, Any] = field(default_factory=dict)
    batch: dict[str, float] = field(default_factory=dict)
    cluster: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def set_known(self, section: dict[str, Any], values: Mapping[str, Any]) -> None:
        """Write the values that are not None into a section."""
        section.update({k: v for k, v in values.items() if v is not None})

    def not_modelled(self, name: str, value: Any, effect: str) -> None:
        """Warn that a setting changes the answer and is left out."""
        self.warnings.append(f"{self.file}: {name} {_short(value)} is not modelled: {effect}")


class Fields:
    """Named settings with checks of their kind; every one that is asked for counts as read."""

    def __init__(self, file: str, values: Mapping[str, Any]) -> None:
        self.file = file
        self.values = dict(values)
        self._read: set[str] = set()

    def first(self, *names: str) -> Any:
        """Value of the first of `names` that is stated (null and "auto" are not)."""
        found = None
        for name in names:
            if name in self.values:
                self._read.add(name)
                value = self.values[name]
                if found is None and value is not None and value != "auto":
                    found = value
        return found

    def _name_of(self, value: Any, names: Iterable[str]) -> str:
        return next((n for n in names if self.values.get(n) is value), next(iter(names), ""))

    def _fail(self, value: Any, names: tuple[str, ...], wanted: str) -> InputError:
        name = self._name_of(value, names)
        hint = " (a variable that the file does not set)" if "$" in str(value) else ""
        return InputError(f"{self.file}: {name} {_short(value)} is not {wanted}{hint}")

    def number(self, *names: str) -> float | None:
        """A finite number; None where none is stated."""
        value = self.first(*names)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise self._fail(value, names, "a number")
        return float(value)

    def whole(self, *names: str) -> int | None:
        """A whole number; None where none is stated."""
        value = self.number(*names)
        if value is None:
            return None
        if value != int(value):
            raise self._fail(value, names, "a whole number")
        return int(value)

    def positive(self, *names: str) -> int | None:
        """A whole number of at least 1; None where none is stated."""
        value = self.whole(*names)
        if value is not None and value < 1:
            raise self._fail(value, names, "at least 1")
        return value

    def needed(self, *names: str) -> int:
        """A positive whole number that must be stated."""
        value = self.positive(*names)
        if value is None:
            raise InputError(f"{self.file}: {' or '.join(names)} is missing")
        return value

    def flag(self, *names: str) -> bool | None:
        """A switch; None where none is stated."""
        value = self.first(*names)
        if value is None or isinstance(value, bool):
            return value
        if value in (0, 1):
            return bool(value)
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        raise self._fail(value, names, "true or false")

    def text(self, *names: str) -> str | None:
        """A word; None where none is stated."""
        value = self.first(*names)
        return None if value is None else str(value)

    def harmless(self, pattern: re.Pattern[str]) -> None:
        """Settings whose whole name matches change neither time nor memory."""
        self._read |= {name for name in self.values if pattern.fullmatch(name)}

    def warn_of(self, foreign: Foreign, effects: Mapping[str, str]) -> None:
        """Name each setting that is on and whose effect is not modelled."""
        for pattern, effect in effects.items():
            for name, value in self.values.items():
                if re.fullmatch(pattern, name) and name not in self._read:
                    self._read.add(name)
                    if _is_on(value):
                        foreign.not_modelled(name, value, effect)

    def report_rest(self, foreign: Foreign) -> None:
        """One warning with every setting nobody read."""
        rest = [n for n, v in self.values.items() if n not in self._read and v is not None]
        if rest:
            more = f" and {len(rest) - _FEW} more" if len(rest) > _FEW else ""
            named = ", ".join(rest[:_FEW]) + more
            foreign.warnings.append(f"{self.file}: not known and not used: {named}")


def _is_on(value: Any) -> bool:
    return value not in (None, False, 0, 0.0, "", "none", "null", "auto", [], {})


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by dots; empty mappings vanish.

    Examples
    --------
    >>> flatten({"a": {"b": 1, "c": {"d": [2]}}, "e": {}})
    {'a.b': 1, 'a.c.d': [2]}
    """
    out: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            out.update(flatten(value, f"{prefix}{key}."))
        else:
            out[f"{prefix}{key}"] = value
    return out
