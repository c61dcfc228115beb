"""Users' own GPUs, nodes and networks: a YAML file in the form of the catalogue, checked strictly.

    gpus:
      my_gpu:
        like: h100_sxm5_80          # start from a known part, then say what differs
        tdp_w: 500
        memory_gib: {value: 96, source: "nvidia-smi"}
    nodes:
      my_node: {like: dgx_h100, gpus: {gpu: my_gpu}}

A value is plain or `{value: V, source: "where from"}`. Every error names file and line.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel.errors import InputError, UnknownNameError
from perfmodel.hardware.aliases import resolve_gpu, resolve_network_name
from perfmodel.hardware.catalogue import Catalogue, catalogue
from perfmodel.hardware.entries import check_mesh
from perfmodel.hardware.fields import SECTIONS, Choice, FieldForm, Form, Section

MAX_FILE_BYTES = 1_000_000
"""The shipped catalogue is 0.2 MB; a larger file is a mistake or an attack."""
MAX_NUMBER = 1e9
"""No figure of a device in the catalogue's units comes near; catches a slip of unit."""
MAX_DEPTH = 16
"""The catalogue nests 5 deep; deeper is an attack on the parser's stack."""

_VALUE_KEYS = frozenset({"value", "source", "sources", "confidence", "note", "disagree"})
_TOP_KEYS = (*SECTIONS, "schema_version", "sources")


@dataclass(frozen=True, slots=True)
class _At:
    """A place in a file, for errors."""

    file: str

    def error(self, node: Any, message: str) -> InputError:
        line = node.start_mark.line + 1
        return InputError(f"{self.file}:{line}: {message}")


def load_user_catalogue(path: str | Path, known: Catalogue | None = None) -> Catalogue:
    """The catalogue with the entries of a user's file added.

    Parameters
    ----------
    path : str or Path
        YAML file of at most 1 MB with the sections `gpus`, `nodes`, `networks`; no anchors.
    known : Catalogue, optional
        What it adds to; the shipped one by default.

    Raises
    ------
    InputError
        If the file cannot be read or says something it may not; names file and line.
    """
    known = known or catalogue()
    root = _compose(Path(path))
    at = _At(str(path))
    added: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    if root is None:
        raise InputError(f"{path}:1: the file is empty; give gpus, nodes or networks")
    for key, key_node, value in _items(root, at, "file"):
        if key not in _TOP_KEYS:
            raise at.error(key_node, _unknown("section", key, _TOP_KEYS))
        if key in SECTIONS:
            for name, name_node, entry in _items(value, at, key):
                added[key][name] = _entry(key, name_node, entry, known.extended(**added), at)
    extended = known.extended(**added)
    _check_references(root, extended, added, at)
    return extended


def _compose(path: Path) -> Any:
    """YAML node graph of a file, with line numbers and without anchors."""
    import yaml

    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{path}: larger than {MAX_FILE_BYTES // 10**6} MB; not a catalogue")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text") from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_events(yaml.parse(text, Loader=loader), path)
        return yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"{path}:{line}: not valid YAML ({problem})") from None


def _check_events(events: Iterable[Any], path: Path) -> None:
    """Refuse anchors and deep nesting before a node graph is built."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        line = event.start_mark.line + 1
        if getattr(event, "anchor", None):
            raise InputError(f"{path}:{line}: anchors and aliases are not allowed")
        if depth > MAX_DEPTH:
            raise InputError(f"{path}:{line}: nested too deeply")


def _items(node: Any, at: _At, what: str) -> Iterator[tuple[str, Any, Any]]:
    """Keys of a mapping as text, with their nodes; refuses duplicates and other kinds of node."""
    if node.id != "mapping":
        raise at.error(node, f"{what} must be a mapping of names to values")
    seen: set[str] = set()
    for key_node, value in node.value:
        if key_node.id != "scalar":
            raise at.error(key_node, f"a key of {what} must be a plain word")
        key = str(key_node.value)
        if key in seen:
            raise at.error(key_node, f"{key!r} occurs twice in {what}")
        seen.add(key)
        yield key, key_node, value


def _unknown(kind: str, key: str, allowed: Any) -> str:
    near = difflib.get_close_matches(key, list(allowed), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(allowed)}"
    return f"unknown {kind} {key!r}; {hint}"


def _entry(section: str, name_node: Any, node: Any, known: Catalogue, at: _At) -> dict[str, Any]:
    """One entry: what it is like, overlaid by what it says."""
    name = str(name_node.value)
    base: Mapping[str, Any] = {}
    said = []
    for key, key_node, value in _items(node, at, name):
        if key == "like":
            table: Mapping[str, Any] = getattr(known, section)
            if str(value.value) not in table:
                error = UnknownNameError(section.rstrip("s"), str(value.value), table)
                raise at.error(value, f"like: {error}")
            base = {**table[str(value.value)], "like": str(value.value)}
        else:
            said.append((key, key_node, value))
    form = SECTIONS[section]
    stated = _section(form, said, name, at)
    if "memory_gib" in stated:
        base = {k: v for k, v in base.items() if k != "memory_reported_mib"}
    entry = {"name": name, **_overlay(base, stated), "confidence": "user"}
    _check_required(form, entry, name, name_node, at)
    if section == "nodes":
        mesh = entry["fabric"].get("nvlink_matrix_links")
        try:
            if mesh is not None:
                check_mesh(mesh, int(entry["gpus"]["count"]))
        except InputError as error:
            raise at.error(name_node, f"{name}: {error}") from None
    return entry


def _overlay(base: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in stated.items():
        old = out.get(key)
        nested = isinstance(old, Mapping) and isinstance(value, Mapping)
        out[key] = _overlay(old, value) if nested and isinstance(old, Mapping) else value
    return out


def _check_required(form: Section, entry: Mapping[str, Any], name: str, node: Any, at: _At) -> None:
    for key in form.required:
        if entry.get(key) is None:
            raise at.error(node, f"{name} lacks the field {key!r}")
    for key, field in form.fields.items():
        if isinstance(field, Section) and isinstance(entry.get(key), Mapping):
            _check_required(field, entry[key], f"{name}.{key}", node, at)


def _section(form: Section, items: Any, name: str, at: _At) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, key_node, value in items:
        field = form.fields.get(key)
        if field is None:
            raise at.error(key_node, f"{name}: {_unknown('field', key, form.fields)}")
        out[key] = _value(field, value, f"{name}.{key}", at)
    return out


def _value(field: FieldForm, node: Any, name: str, at: _At) -> Any:
    if isinstance(field, Section):
        if node.id == "scalar" and node.value in ("null", "~", ""):
            return None
        return _section(field, list(_items(node, at, name)), name, at)
    if field is Form.IGNORED:
        return None
    node = _unwrap(node, name, at)
    if field is Form.MATRIX:
        return _matrix(node, name, at)
    if node.id != "scalar":
        raise at.error(node, f"{name} must be a single value")
    return _scalar(field, node, name, at)


def _unwrap(node: Any, name: str, at: _At) -> Any:
    """The value behind `{value: V, source: …}`."""
    if node.id != "mapping":
        return node
    value = None
    for key, key_node, inner in _items(node, at, name):
        if key not in _VALUE_KEYS:
            raise at.error(key_node, f"{name}: {_unknown('key', key, sorted(_VALUE_KEYS))}")
        if key == "value":
            value = inner
    if value is None:
        raise at.error(node, f"{name} has no 'value'")
    return value


def _matrix(node: Any, name: str, at: _At) -> list[list[int]]:
    if node.id != "sequence" or any(row.id != "sequence" for row in node.value):
        raise at.error(node, f"{name} must be {Form.MATRIX}")
    return [
        [int(_scalar(Form.COUNT_OR_ZERO, c, name, at)) for c in row.value] for row in node.value
    ]


def _scalar(field: Form | Choice, node: Any, name: str, at: _At) -> Any:
    text = str(node.value)
    if isinstance(field, Choice):
        if text not in field.allowed:
            raise at.error(node, f"{name} {text!r} is not one of {', '.join(field.allowed)}")
        return text
    if field is Form.TEXT:
        return text
    if field is Form.TRUTH:
        if text.lower() not in ("true", "false"):
            raise at.error(node, f"{name} {text!r} must be {field}")
        return text.lower() == "true"
    number = _number(text)
    if number is None or not _fits(field, number):
        raise at.error(node, f"{name} {text!r} must be {field}")
    return int(number) if number == int(number) else number


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and abs(number) <= MAX_NUMBER else None


def _fits(field: Form, number: float) -> bool:
    whole = number == int(number)
    return {
        Form.POSITIVE: number > 0,
        Form.NON_NEGATIVE: number >= 0,
        Form.FRACTION: 0 < number <= 1.2,
        Form.COUNT: number > 0 and whole,
        Form.COUNT_OR_ZERO: number >= 0 and whole,
    }[field]


def _check_references(
    root: Any, extended: Catalogue, added: Mapping[str, Mapping[str, Any]], at: _At
) -> None:
    """Nodes must name a GPU and a network that exist; spellings become canonical names."""
    places = {
        name: name_node
        for key, _, value in _items(root, at, "file")
        if key == "nodes"
        for name, name_node, _ in _items(value, at, key)
    }
    for name, entry in added["nodes"].items():
        try:
            gpus, nics = entry["gpus"], entry.get("nics")
            entry["gpus"] = {**gpus, "gpu": resolve_gpu(gpus["gpu"], extended)[0].name}
            if nics:
                entry["nics"] = {**nics, "type": resolve_network_name(nics["type"], extended)}
        except UnknownNameError as error:
            raise at.error(places[name], f"{name}: {error}") from None
