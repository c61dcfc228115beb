"""The catalogue of named models: one YAML file each in `datasets/models/`, with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from perfmodel.errors import UnknownNameError
from perfmodel.locations import datasets_path
from perfmodel.schema.document import read_document


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """Dimensions of a known model and how it is usually trained."""

    name: str
    title: str
    source: str
    builder: str
    dimensions: Mapping[str, Any]
    training: Mapping[str, Any]  # global_batch, precision, optimizer


def list_models() -> tuple[str, ...]:
    """Names of all models of the catalogue."""
    return tuple(sorted(path.stem for path in datasets_path("models").glob("*.yaml")))


@cache
def named_model(name: str) -> NamedModel:
    """The model called `name` (case, dashes and dots ignored).

    Raises
    ------
    UnknownNameError
        If there is none; the nearest names are offered.
    """
    key = name.strip().lower().replace("-", "_").replace(".", "_")
    if key not in list_models():
        raise UnknownNameError("model", name, list_models())
    return _read(datasets_path("models", f"{key}.yaml"))


def _read(path: Path) -> NamedModel:
    content = read_document(path).plain()
    return NamedModel(
        name=path.stem,
        title=content["title"],
        source=content["source"],
        builder=content["builder"],
        dimensions=content["model"],
        training=content["training"],
    )
