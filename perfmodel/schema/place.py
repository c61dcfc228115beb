"""Where a value stands in a file, for errors that say so."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from perfmodel.errors import InputError, RefusedError
from perfmodel.schema.document import Node

_FEW = 40  # names that still make a readable sentence


@dataclass(frozen=True, slots=True)
class Section:
    """A node of a file, with the file's name and the dotted path of its key."""

    file: str
    path: str
    node: Node

    def at(self, line: int) -> str:
        """File and line."""
        return f"{self.file}:{line}"

    def child(self, key: str) -> Section:
        """The value under `key` of a mapping."""
        assert isinstance(self.node.value, dict)
        path = f"{self.path}.{key}" if self.path else key
        return Section(self.file, path, self.node.value[key])

    def fail(self, message: str) -> InputError:
        """Error at this place."""
        return InputError(f"{self.at(self.node.line)}: {message}")

    def line_of(self, message: str) -> int:
        """Line of the first field of this section that `message` names, else of the section."""
        if isinstance(self.node.value, dict):
            for word in re.findall(r"\w+", message.lower()):
                if word in self.node.value:
                    return self.node.value[word].line
        return self.node.line

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Give errors raised inside file and line: of the field they name, or of this section."""
        try:
            yield
        except (InputError, RefusedError) as error:
            message = str(error)
            if message.startswith(f"{self.file}:"):
                raise
            place = self.at(self.line_of(message))
            raise InputError(f"{place}: {message}") from None


def nearest(name: str, known: Iterable[str], num: int = 3) -> str:
    """The nearest known spellings as a half-sentence; all of them where none is near.

    Examples
    --------
    >>> nearest("tabel_wise", ["table_wise", "row_wise"], 1)
    '; did you mean table_wise?'
    """
    every = list(known)
    near = difflib.get_close_matches(name.lower(), every, n=num, cutoff=0.6)
    if near:
        return f"; did you mean {', '.join(near)}?"
    few = ", ".join(every[:_FEW]) + (" \u2026" if len(every) > _FEW else "")
    return f"; allowed: {few}" if every else ""
