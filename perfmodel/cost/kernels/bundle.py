"""Fitted kernel models on disk: a manifest in JSON and one file of arrays a model. No pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.cost.kernels.correction import Correction
from perfmodel.cost.kernels.families import FAMILIES, Family
from perfmodel.cost.kernels.kinds import Kind, KindTable
from perfmodel.cost.kernels.learned import KNOWN_LABELS, Branch, Encoder, LearnedModel, Spread
from perfmodel.cost.kernels.residual import Trees
from perfmodel.errors import InputError

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
_BY_NAME: dict[str, Family] = {family.name: family for family in FAMILIES}


@dataclass(slots=True)
class KernelBundle:
    """Models by name, each read when first asked for.

    `manifest` holds everything but the trees: sources, rows, held-out error, ranges, versions.
    """

    manifest: Mapping[str, Any]
    folder: Path | None = None
    models: dict[str, LearnedModel] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the models."""
        return tuple(self.manifest["models"])

    def model(self, name: str) -> LearnedModel | None:
        """Model `name`, None where the bundle has none."""
        if name not in self.models:
            if name not in self.manifest["models"] or self.folder is None:
                return None
            self.models[name] = _read_model(self.folder, name, self.manifest["models"][name])
        return self.models[name]

    @classmethod
    def load(cls, folder: str | Path) -> KernelBundle:
        """Open a bundle; the trees of a model are read when it is first used.

        Raises
        ------
        InputError
            If the folder holds no kernel bundle of this version.
        """
        path = Path(folder)
        try:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{path} holds no readable {MANIFEST}: {error}") from error
        if manifest.get("kind") != "kernels" or manifest.get("schema_version") != SCHEMA_VERSION:
            raise InputError(
                f"{path / MANIFEST} is not a kernel bundle of schema_version {SCHEMA_VERSION}"
            )
        return cls(manifest=manifest, folder=path)

    def save(self, folder: str | Path) -> None:
        """Write all models and the manifest."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        for name in self.names:
            model = self.model(name)
            if model is not None:
                _write_arrays(path / f"{name}.npz", model)
        text = json.dumps(self.manifest, indent=1, sort_keys=True)
        (path / MANIFEST).write_text(text + "\n", encoding="utf-8")


def describe_model(model: LearnedModel) -> dict[str, Any]:
    """Manifest entry of a model."""
    return {
        "family": model.family.name,
        "kinds": [asdict(kind) for kind in model.kinds.kinds],
        "defaults": {k: list(v) for k, v in model.defaults.items()},
        "ranges": {k: list(v) for k, v in model.ranges.items()},
        "interval_half_width": {
            "known": {k: list(v) for k, v in model.spread.known.items()},
            "transfer": list(model.spread.transfer),
        },
        "branches": {
            name: {
                "columns": list(branch.columns),
                "encoders": {k: list(e.names) for k, e in branch.encoders.items()},
                "has_trees": branch.trees is not None,
            }
            for name, branch in (("known", model.known), ("transfer", model.transfer))
        },
    }


def _write_arrays(path: Path, model: LearnedModel) -> None:
    arrays: dict[str, Any] = {}
    for name, branch in (("known", model.known), ("transfer", model.transfer)):
        if branch.trees is not None:
            arrays |= branch.trees.arrays(name)
    np.savez_compressed(path, **arrays)


def _read_model(folder: Path, name: str, entry: Mapping[str, Any]) -> LearnedModel:
    with np.load(folder / f"{name}.npz", allow_pickle=False) as stored:
        arrays = dict(stored)
    branches = {
        which: Branch(
            columns=tuple(b["columns"]),
            # The order is that of the columns; JSON objects are written sorted by key.
            encoders={
                k: Encoder(names=tuple(b["encoders"][k]))
                for k in KNOWN_LABELS
                if k in b["encoders"]
            },
            trees=Trees.from_arrays(arrays, which) if b["has_trees"] else None,
        )
        for which, b in entry["branches"].items()
    }
    width = entry["interval_half_width"]
    return LearnedModel(
        name=name,
        family=_BY_NAME[entry["family"]],
        kinds=KindTable(tuple(_kind(k) for k in entry["kinds"])),
        known=branches["known"],
        transfer=branches["transfer"],
        spread=Spread(known=width["known"], transfer=width["transfer"]),
        defaults={k: (v[0], v[1]) for k, v in entry["defaults"].items()},
        ranges={k: (v[0], v[1]) for k, v in entry["ranges"].items()},
    )


def _kind(entry: Mapping[str, Any]) -> Kind:
    found = entry.get("correction")
    correction = (
        Correction(points=tuple(tuple(p) for p in found["points"]), weights=tuple(found["weights"]))
        if found
        else None
    )
    return Kind(**{**entry, "values": tuple(entry["values"]), "correction": correction})
