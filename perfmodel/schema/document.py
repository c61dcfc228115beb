"""Reads a small YAML or JSON file into plain values that remember their lines.

Strict on purpose: no anchors or aliases (YAML bombs), no tags, no duplicate keys, no depth beyond
what a RUN file needs, numbers and words as in JSON and YAML 1.2 (so `1e-6` is a number, `no` is a
word).
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from perfmodel.errors import InputError

MAX_BYTES = 1_000_000
"""Largest RUN file: a recommender with 10,000 tables needs less than half of it."""
MAX_DEPTH = 20
"""A RUN file nests four levels deep; what goes far beyond was not written by a person."""
_MAX_DIGITS = 400
"""Longer numbers are beyond any range of a field; `float` reads them as infinity."""

Value: TypeAlias = "str | int | float | bool | list[Node] | dict[str, Node] | None"


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a file and the line (from 1) where it, or its key, stands."""

    value: Value
    line: int

    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


def read_document(path: Path) -> Node:
    """Parse a YAML or JSON file.

    Parameters
    ----------
    path : Path
        A regular file of at most `MAX_BYTES`.

    Raises
    ------
    InputError
        One sentence with file and, where there is one, line, if the file cannot be used.
    """
    return parse_document(read_text(path), str(path))


def read_text(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """Text of a file, refused by its size before anything is read.

    Raises
    ------
    InputError
        If it is absent, unreadable, not a file, too large, empty or not UTF-8 text.
    """
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise InputError(f"{path}: not a regular file")
        if info.st_size > max_bytes:
            raise InputError(
                f"{path}: {info.st_size / 1e6:.0f} MB is too large; at most "
                f"{max_bytes / 1e6:g} MB are read"
            )
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: cannot be read ({reason})") from None
    if not raw.strip():
        raise InputError(f"{path}: is empty")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: is not UTF-8 text (byte {error.start})") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(f"{path}:{line}: is a binary file (it holds a zero byte)")
    return text


def parse_document(text: str, name: str) -> Node:
    """Parse YAML or JSON text; `name` stands for the file in errors.

    Raises
    ------
    InputError
        If the text is no single document of mappings, lists and scalars.
    """
    import yaml  # here: the command line answers --help without it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Reader(name, yaml.parse(text, Loader=loader)).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}" if mark else name
        raise InputError(f"{place}: is not valid YAML or JSON ({error.problem})") from None
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{name}: is not valid YAML or JSON ({reason})") from None


class _Reader:
    """Turns parser events into nodes; the parser is asked for one event at a time."""

    def __init__(self, name: str, events: Iterator[Any]) -> None:
        self.name = name
        self.events = events

    def fail(self, line: int, message: str) -> InputError:
        return InputError(f"{self.name}:{line}: {message}")

    def document(self) -> Node:
        next(self.events)  # stream start
        event = next(self.events)
        if type(event).__name__ != "DocumentStartEvent":
            raise InputError(f"{self.name}: holds no values, only comments")
        node = self.node(next(self.events), 1)
        next(self.events)  # document end
        if type(event := next(self.events)).__name__ != "StreamEndEvent":
            raise self.fail(event.start_mark.line + 1, "a second document; one RUN a file")
        return node

    def node(self, event: Any, depth: int) -> Node:
        line = event.start_mark.line + 1
        kind = type(event).__name__
        if kind == "AliasEvent" or event.anchor is not None:
            raise self.fail(line, "anchors and aliases (& and *) are not allowed; repeat the value")
        if event.tag is not None:
            raise self.fail(line, f"the tag {event.tag!r} is not allowed; write the plain value")
        if depth > MAX_DEPTH:
            raise self.fail(line, f"nested deeper than {MAX_DEPTH} levels")
        if kind == "MappingStartEvent":
            return Node(self.mapping(depth), line)
        if kind == "SequenceStartEvent":
            return Node(self.sequence(depth), line)
        return Node(scalar(event.value) if event.implicit[0] else event.value, line)

    def sequence(self, depth: int) -> list[Node]:
        items = []
        while type(event := next(self.events)).__name__ != "SequenceEndEvent":
            items.append(self.node(event, depth + 1))
        return items

    def mapping(self, depth: int) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        while type(event := next(self.events)).__name__ != "MappingEndEvent":
            line = event.start_mark.line + 1
            key = self.node(event, depth + 1).value
            if isinstance(key, list | dict) or event.value == "":
                raise self.fail(line, "a key is not a name")
            name = str(event.value)
            if name in entries:
                raise self.fail(
                    line, f"{name!r} is given twice (first on line {entries[name].line})"
                )
            value = self.node(next(self.events), depth + 1)
            entries[name] = Node(value.value, line)
        return entries


_INT = re.compile(r"[-+]?\d+\Z")
_FLOAT = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\Z")
_WORDS: dict[str, bool | float | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    ".nan": float("nan"), ".NaN": float("nan"), ".NAN": float("nan"), "NaN": float("nan"),
    **{f"{sign}{word}": float(f"{sign}inf") for sign in ("", "+", "-")
       for word in (".inf", ".Inf", ".INF", "Infinity")},
}  # fmt: skip


def scalar(text: str) -> str | int | float | bool | None:
    """Value of an unquoted scalar by the YAML 1.2 core schema (JSON's words included).

    Examples
    --------
    >>> scalar("1e-6"), scalar("no"), scalar("0x10"), scalar("true")
    (1e-06, 'no', '0x10', True)
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text) and len(text) < _MAX_DIGITS:
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    return text
