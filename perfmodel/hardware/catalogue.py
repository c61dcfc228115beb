"""The catalogue: named GPUs, nodes and networks, loaded when first asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from perfmodel.errors import InputError, UnknownNameError
from perfmodel.hardware.build import JSON_FILE, read_yaml
from perfmodel.hardware.entries import Entry, gpu_from_entry, network_from_entry, node_from_entry
from perfmodel.hardware.records import Gpu, Network, NetworkKind, Node

NO_NETWORK = Network(
    name="none", title="no network", kind=NetworkKind.NONE, port_bytes_per_s=0.0, latency_s=0.0,
    step_latency_s=0.0, achieved_fraction=1.0, has_gpudirect=False,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Plain entries by section; records are made on demand.

    `usual_nodes` maps a GPU to the node it is usually sold in; `aliases` holds the spellings of
    other people (see `perfmodel.hardware.aliases`).
    """

    gpus: Mapping[str, Entry]
    nodes: Mapping[str, Entry]
    networks: Mapping[str, Entry]
    usual_nodes: Mapping[str, str] = field(default_factory=dict)
    intra_node: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, Any] = field(default_factory=dict)

    def gpu(self, name: str) -> Gpu:
        """GPU of this canonical name. Raises UnknownNameError."""
        return gpu_from_entry(name, _entry(self.gpus, "GPU", name))

    def node(self, name: str) -> Node:
        """Node of this canonical name. Raises UnknownNameError."""
        return node_from_entry(name, _entry(self.nodes, "node", name), self.gpu)

    def network(self, name: str) -> Network:
        """Network of this canonical name; "none" for a node without one."""
        if name == NO_NETWORK.name:
            return NO_NETWORK
        return network_from_entry(name, _entry(self.networks, "network", name))

    def extended(
        self,
        gpus: Mapping[str, Entry] | None = None,
        nodes: Mapping[str, Entry] | None = None,
        networks: Mapping[str, Entry] | None = None,
    ) -> Catalogue:
        """Catalogue with more entries; a name that exists already is replaced."""
        return Catalogue(
            gpus={**self.gpus, **(gpus or {})},
            nodes={**self.nodes, **(nodes or {})},
            networks={**self.networks, **(networks or {})},
            usual_nodes=self.usual_nodes,
            intra_node=self.intra_node,
            aliases=self.aliases,
        )


def _entry(entries: Mapping[str, Entry], kind: str, name: str) -> Entry:
    try:
        return entries[name]
    except KeyError:
        raise UnknownNameError(kind, name, entries) from None


@cache
def catalogue() -> Catalogue:
    """The shipped catalogue, read once."""
    content = json.loads(JSON_FILE.read_text(encoding="utf-8"))
    del content["schema_version"]
    return Catalogue(**content)


@cache
def gpu(name: str) -> Gpu:
    """GPU of this canonical name (`a100_sxm4_80`); for other spellings see `resolve_gpu`.

    Raises
    ------
    UnknownNameError
        If there is none; the message offers the nearest names.

    Examples
    --------
    >>> gpu("a100_sxm4_80").num_sms
    108
    """
    return catalogue().gpu(name)


@cache
def node(name: str) -> Node:
    """Node of this canonical name (`dgx_a100_80`). Raises UnknownNameError."""
    return catalogue().node(name)


@cache
def network(name: str) -> Network:
    """Network of this canonical name (`ib_hdr`). Raises UnknownNameError."""
    return catalogue().network(name)


def list_gpus() -> tuple[str, ...]:
    """Canonical names of all GPUs, in the order of the catalogue."""
    return tuple(catalogue().gpus)


def list_nodes() -> tuple[str, ...]:
    """Canonical names of all nodes."""
    return tuple(catalogue().nodes)


def list_networks() -> tuple[str, ...]:
    """Canonical names of all networks."""
    return tuple(catalogue().networks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One value of the catalogue and what supports it."""

    value: Any
    confidence: str
    sources: tuple[str, ...]  # "id: what was read (where)"
    disagree: tuple[str, ...] = ()  # "id says X"
    note: str = ""


def sources_of(name: str, field_path: str) -> Fact:
    """Where a value of the catalogue comes from. Parses the YAML: slow, for people.

    Parameters
    ----------
    name : str
        Canonical name of a GPU, node or network.
    field_path : str
        Keys of the YAML joined by dots, e.g. "memory_gib", "peak_tflops_dense.fp32", "nics.count".

    Raises
    ------
    UnknownNameError
        If no entry has that name.
    InputError
        If the entry has no such field, or the field carries no source.
    """
    document, entry = _yaml_entry(name)
    value: Any = entry
    for key in field_path.split("."):
        if not isinstance(value, dict) or key not in value:
            known = ", ".join(value) if isinstance(value, dict) else "none"
            raise InputError(f"{name} has no field {field_path!r}; fields here: {known}")
        value = value[key]
    if not isinstance(value, dict) or "confidence" not in value:
        raise InputError(f"{name}: {field_path!r} carries no source of its own")
    table = document["sources"]
    return Fact(
        value=value.get("value", value.get("values")),
        confidence=value["confidence"],
        sources=tuple(
            f"{s}: {table[s]['what']} ({table[s]['where']})" for s in value.get("sources", ())
        ),
        disagree=tuple(f"{d['source']} says {d['value']}" for d in value.get("disagree", ())),
        note=value.get("note", ""),
    )


@cache
def _documents() -> dict[str, Any]:
    return {section: read_yaml(section) for section in ("gpus", "nodes", "networks")}


def _yaml_entry(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    for section, document in _documents().items():
        if name in document[section]:
            return document, document[section][name]
    known = [*list_gpus(), *list_nodes(), *list_networks()]
    raise UnknownNameError("catalogue entry", name, known)
