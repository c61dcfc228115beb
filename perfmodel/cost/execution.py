"""The execution bundle: fitted parameters and interval widths, with where they came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.cost.parameters import ParameterSet
from perfmodel.cost.spread import SpreadTable
from perfmodel.errors import InputError, MissingCapabilityError
from perfmodel.locations import datasets_path

SCHEMA_VERSION = 1
SHIPPED = ("bundles", "execution", "bundle.json")
"""Place of the shipped bundle inside `datasets/`."""
_MAX_BYTES = 10_000_000  # a bundle of all parameters takes about 30 kB
_LARGEST_FACTOR = 100.0  # a multiplier beyond 1/100 to 100 is a damaged file, not a fit


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionBundle:
    """`manifest` names data, rows, held-out errors, versions and the command that rebuilds it."""

    parameters: ParameterSet = field(default_factory=ParameterSet)
    spread: SpreadTable = field(default_factory=SpreadTable)
    manifest: Mapping[str, Any] = field(default_factory=dict)


def shipped_path() -> Path | None:
    """The bundle that comes with perfmodel, if any does."""
    try:
        return datasets_path(*SHIPPED)
    except MissingCapabilityError:
        return None


def load_execution(path: str | PathLike[str] | None = None) -> ExecutionBundle:
    """Read a bundle; without a path the shipped one, or the priors if none is shipped.

    Raises
    ------
    InputError
        If the file is not a bundle this version reads.
    """
    file = Path(path) if path is not None else shipped_path()
    if file is None:
        return ExecutionBundle()
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise InputError(f"{file}: larger than an execution bundle can be (10 MB)")
        document = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file}: not a readable execution bundle (JSON)") from error
    return _from_document(document, file)


def _from_document(document: Any, file: Path) -> ExecutionBundle:
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        raise InputError(f"{file}: schema_version must be {SCHEMA_VERSION}")
    try:
        values = {str(k): float(v) for k, v in document["parameters"].items()}
        quantiles = {str(k): (float(q), int(n)) for k, (q, n) in document["spread"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{file}: parameters and spread must map names to numbers") from error
    for name, value in values.items():
        if not 1 / _LARGEST_FACTOR <= value <= _LARGEST_FACTOR:
            raise InputError(f"{file}: parameter {name!r} {value!r} is not between 0.01 and 100")
    return ExecutionBundle(
        parameters=ParameterSet(values=dict(values)),
        spread=SpreadTable(quantiles=quantiles),
        manifest=document.get("manifest") or {},
    )


def write_execution(bundle: ExecutionBundle, path: str | PathLike[str]) -> None:
    """Write `bundle` as JSON, names sorted, so that equal fits give equal files."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "parameters": {
            name: round(float(np.ravel(value)[0]), 6)
            for name, value in sorted(bundle.parameters.values.items())
        },
        "spread": {
            name: [round(width, 4), rows]
            for name, (width, rows) in sorted(bundle.spread.quantiles.items())
        },
        "manifest": dict(bundle.manifest),
    }
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=1, sort_keys=False) + "\n", "utf-8")
