"""The fitted residual on disk: JSON with a manifest beside it, found among the shipped datasets."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.collectives.residual import KNOTS, Residual
from perfmodel.errors import InputError, MissingCapabilityError
from perfmodel.locations import datasets_path

FILE_NAME = "residual.json"
MANIFEST_NAME = "manifest.json"
SCHEMA_VERSION = 1


def default_folder() -> Path:
    """Folder of the shipped bundle."""
    return datasets_path("bundles", "collectives")


@cache
def default_residual() -> Residual | None:
    """The shipped residual, read once; None where the datasets are not installed."""
    try:
        folder = default_folder()
    except MissingCapabilityError:
        return None
    return load_residual(folder) if (folder / FILE_NAME).is_file() else None


@cache
def fitted_sources() -> frozenset[str]:
    """Sources that the shipped bundle was fitted on."""
    try:
        text = (default_folder() / MANIFEST_NAME).read_text(encoding="utf-8")
    except (MissingCapabilityError, OSError):
        return frozenset()
    return frozenset(json.loads(text)["sources"])


def load_residual(folder: Path) -> Residual:
    """Read a bundle.

    Raises
    ------
    InputError
        If the folder holds no bundle, or one of another schema or other knots.
    """
    path = folder / FILE_NAME if folder.is_dir() else folder
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable bundle ({error})") from None
    if not isinstance(content, dict) or content.get("schema_version") != SCHEMA_VERSION:
        raise InputError(f"{path}: schema_version must be {SCHEMA_VERSION}")
    if tuple(content.get("knots", ())) != KNOTS:
        raise InputError(f"{path}: fitted with other knots; rebuild it with perfmodel fit")
    return Residual(
        coefficients={k: np.array(v, dtype=float) for k, v in content["coefficients"].items()},
        sigma={k: np.array(v, dtype=float) for k, v in content["sigma"].items()},
    )


def save_residual(residual: Residual, folder: Path, manifest: dict[str, object]) -> None:
    """Write a bundle and its manifest into `folder`, which is made if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "schema_version": SCHEMA_VERSION,
        "knots": list(KNOTS),
        "coefficients": {k: _rounded(v) for k, v in sorted(residual.coefficients.items())},
        "sigma": {k: _rounded(v) for k, v in sorted(residual.sigma.items())},
    }
    _write(folder / FILE_NAME, content)
    _write(folder / MANIFEST_NAME, manifest)


def _rounded(values: NDArray[np.float64]) -> list[float]:
    return [round(float(v), 4) for v in values]


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
