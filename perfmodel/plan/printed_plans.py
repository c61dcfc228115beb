"""The two tables that `print(plan)` of TorchRec shows, read as its serialised form."""

from __future__ import annotations

import re
from typing import Any

from perfmodel.errors import InputError

_PRINTED = re.compile(r"^\W*param\W+.*sharding[ _]type", re.MULTILINE)
_ROW = re.compile(
    r"^[|\s]*(?P<table>[^|\s]+)[|\s]+\[(?P<offsets>[\d, ]+)\][|\s]+\[(?P<sizes>[\d, ]+)\][|\s]+"
    r"(?P<placement>rank:\S+?)[|\s]*$"
)
_KIND_ROW = re.compile(
    r"^[|\s]*(?P<table>[^|\s]+)[|\s]+(?P<kind>[a-z_]+)[|\s]+(?P<kernel>[a-z_]+)[|\s]+"
    r"(?:\[(?P<ranks>[-\d, ]*)\]|None)[|\s]*$"
)


def is_printed(text: str) -> bool:
    """Whether a text holds the heading of TorchRec's printed plan."""
    return _PRINTED.search(text) is not None


def printed_plan(text: str) -> dict[str, Any]:
    """TorchRec's two printed tables as its serialised form; borders of any style are ignored.

    Raises
    ------
    InputError
        If a shard belongs to no table of the first list.
    """
    tables: dict[str, Any] = {}
    for line in text.splitlines():
        if found := _KIND_ROW.match(line):
            tables[found["table"]] = {
                "sharding_type": found["kind"],
                "compute_kernel": found["kernel"],
                "ranks": _numbers(found["ranks"] or ""),
                "shards": [],
            }
        elif found := _ROW.match(line):
            if found["table"] not in tables:
                raise InputError(f"table {found['table']!r} has shards but no sharding type")
            tables[found["table"]]["shards"].append(
                {
                    "shard_offsets": _numbers(found["offsets"]),
                    "shard_sizes": _numbers(found["sizes"]),
                    "placement": found["placement"],
                }
            )
    return {"plan": {"": tables}}


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part.strip()]
