"""Checks a document against `run.schema.json`; errors are one sentence with file and line.

Interprets the part of JSON Schema that the file uses (see `KEYWORDS`), because a general
validator knows neither lines nor the nearest correct spelling. A test compares the two.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, TypeAlias

from perfmodel.errors import InputError
from perfmodel.schema.place import Section, nearest

Schema: TypeAlias = Mapping[str, Any]

KEYWORDS = {
    "$schema", "$id", "$defs", "$ref", "title", "description", "type", "const", "enum",
    "properties", "required", "additionalProperties", "oneOf", "items", "minItems", "maxItems",
    "minimum", "exclusiveMinimum", "maximum", "minLength", "maxLength",
}  # fmt: skip

_TYPE_NAMES = {
    "object": "a mapping", "array": "a list", "string": "a text", "integer": "a whole number",
    "number": "a number", "boolean": "true or false", "null": "null",
}  # fmt: skip


@cache
def run_schema() -> Schema:
    """The published JSON Schema of a RUN file."""
    file = resources.files("perfmodel.schema").joinpath("run.schema.json")
    schema: Schema = json.loads(file.read_text("utf-8"))
    return schema


def check(section: Section, schema: Schema | None = None) -> None:
    """Check a document, or a part of it, against the RUN schema.

    Parameters
    ----------
    section : Section
        What to check.
    schema : mapping, optional
        The part of the schema that applies; the whole by default.

    Raises
    ------
    InputError
        At the first thing that is not allowed: file, line, field, value and what is allowed.
    """
    schema = run_schema() if schema is None else schema
    if "$ref" in schema:
        check(section, definition(schema["$ref"].rsplit("/", 1)[-1]))
    elif "oneOf" in schema:
        check(section, _choose(section, schema))
    else:
        _check_type(section, schema)
        _check_values(section, schema)
        _check_number(section, schema)
        _check_items(section, schema)
        _check_fields(section, schema)


def definition(name: str) -> Schema:
    """One of the schema's named parts."""
    part: Schema = run_schema()["$defs"][name]
    return part


def _types(schema: Schema) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else list(types)


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    if isinstance(value, int | float):
        whole = isinstance(value, int) or (math.isfinite(value) and value == int(value))
        return "integer" if whole else "number"
    return "string"


def _matches(value: Any, types: list[str]) -> bool:
    kind = _type_of(value)
    return not types or kind in types or (kind == "integer" and "number" in types)


def _field(section: Section) -> str:
    return section.path or "the file"


def _shown(section: Section) -> str:
    value = section.node.plain()
    if isinstance(value, dict | list):
        return _TYPE_NAMES[_type_of(value)]
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _wrong(section: Section, allowed: str) -> InputError:
    return section.fail(f"{_field(section)} is {_shown(section)}; allowed: {allowed}")


def _check_type(section: Section, schema: Schema) -> None:
    types = _types(schema)
    if not _matches(section.node.value, types):
        allowed = " or ".join(_TYPE_NAMES[t] for t in types)
        raise _wrong(section, _with_range(allowed, schema))


def _with_range(allowed: str, schema: Schema) -> str:
    if "exclusiveMinimum" in schema:
        return f"{allowed} above {schema['exclusiveMinimum']:g} and at most {schema['maximum']:g}"
    if "minimum" in schema:
        return f"{allowed} from {schema['minimum']:g} to {schema['maximum']:g}"
    return allowed


def _check_values(section: Section, schema: Schema) -> None:
    value = section.node.value
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    if allowed is None or any(value == a and _type_of(value) == _type_of(a) for a in allowed):
        return
    near = difflib.get_close_matches(str(value).lower(), [str(a) for a in allowed], n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise _wrong(section, ", ".join(json.dumps(a).strip('"') for a in allowed) + hint)


def _check_number(section: Section, schema: Schema) -> None:
    value = section.node.value
    if not isinstance(value, int | float) or isinstance(value, bool) or "maximum" not in schema:
        return
    low, high = schema.get("minimum", -math.inf), schema["maximum"]
    above = value > schema["exclusiveMinimum"] if "exclusiveMinimum" in schema else value >= low
    if not (above and value <= high):  # NaN fails every comparison
        kind = "a whole number" if "integer" in _types(schema) else "a number"
        raise _wrong(section, _with_range(kind, schema))


def _check_items(section: Section, schema: Schema) -> None:
    value = section.node.value
    if isinstance(value, str) and not (
        schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", math.inf)
    ):
        raise _wrong(section, f"a text of 1 to {schema.get('maxLength')} characters")
    if not isinstance(value, list):
        return
    low, high = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    if not low <= len(value) <= high:
        raise section.fail(
            f"{_field(section)} has {len(value)} entries; allowed: {low} to {high:g}"
        )
    for index, item in enumerate(value):
        check(Section(section.file, f"{section.path}[{index}]", item), schema.get("items", {}))


def _check_fields(section: Section, schema: Schema) -> None:
    value = section.node.value
    if not isinstance(value, dict):
        return
    properties = schema.get("properties", {})
    for key, node in value.items():
        child = Section(section.file, f"{section.path}.{key}" if section.path else key, node)
        if key in properties:
            check(child, properties[key])
        elif schema.get("additionalProperties") is False:
            raise child.fail(_unknown(key, section, properties))
    for key in schema.get("required", ()):
        if key not in value:
            raise section.fail(f"{_field(section)} has no {key}{_about(properties.get(key, {}))}")


def _unknown(key: str, section: Section, properties: Mapping[str, Any]) -> str:
    return f"unknown field {key!r} in {_field(section)}{nearest(key, properties)}"


def _about(schema: Schema) -> str:
    if "$ref" in schema:
        schema = definition(schema["$ref"].rsplit("/", 1)[-1])
    text = str(schema.get("description", ""))
    return f"; it is required: {text}" if text else "; it is required"


def _choose(section: Section, schema: Schema) -> Schema:
    """The alternative that the value's type and its telling fields point to."""
    alternatives = [
        definition(a["$ref"].rsplit("/", 1)[-1]) if "$ref" in a else a for a in schema["oneOf"]
    ]
    value = section.node.value
    fitting = [a for a in alternatives if _matches(value, _types(a))]
    if not fitting:
        kinds = dict.fromkeys(_TYPE_NAMES[t] for a in alternatives for t in _types(a))
        raise _wrong(section, " or ".join(kinds))
    if not isinstance(value, dict) or len(fitting) == 1:
        return fitting[0]
    for alternative in fitting:
        if all(_tells(value, key, alternative) for key in alternative["required"][:1]):
            return alternative
    raise _undecided(section, fitting)


def _tells(value: Mapping[str, Any], key: str, alternative: Schema) -> bool:
    const = alternative["properties"][key].get("const")
    return key in value and (const is None or value[key].value == const)


def _undecided(section: Section, alternatives: list[Schema]) -> InputError:
    assert isinstance(section.node.value, dict)
    keys: dict[str, list[str]] = {}
    for alternative in alternatives:
        key = alternative["required"][0]
        const = alternative["properties"][key].get("const")
        keys.setdefault(key, []).extend([const] if const else [])
    for key, consts in keys.items():
        if key in section.node.value:
            child = section.child(key)
            near = difflib.get_close_matches(str(child.node.value), consts, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            return _wrong(child, ", ".join(consts) + hint)
    for key in section.node.value:
        near = difflib.get_close_matches(key.lower(), list(keys), n=1, cutoff=0.7)
        if near:
            return section.child(key).fail(
                f"unknown field {key!r} in {_field(section)}; did you mean {near[0]}?"
            )
    parts = [f"{k} ({', '.join(v)})" if v else k for k, v in keys.items()]
    return section.fail(f"{_field(section)} needs one of: {', '.join(parts)}")
