"""Prints answers on standard output; everything else goes to standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document; numbers that JSON cannot hold become null."""
    print(json.dumps(_plain(document), indent=1, ensure_ascii=False, allow_nan=False))


def progress(done: int, total: int) -> None:
    """Show progress on a terminal's standard error, nothing elsewhere."""
    if sys.stderr.isatty():
        end = "\n" if done >= total else ""
        print(f"\r{done} of {total} runs", end=end, file=sys.stderr, flush=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, str | bool | int) or value is None:
        return value if not isinstance(value, str) else str(value)
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
