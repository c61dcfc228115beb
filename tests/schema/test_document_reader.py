"""Text of RUN files: what is read, what is refused, and where the error points."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import InputError
from perfmodel.schema.document import MAX_BYTES, parse_document, read_document, scalar


def test_numbers_and_words_follow_yaml_1_2():
    assert scalar("1e-6") == 1e-6
    assert scalar("no") == "no"
    assert scalar("010") == 10
    assert scalar("1:30") == "1:30"
    assert scalar("true") is True
    assert scalar("~") is None
    assert math.isnan(scalar(".nan"))
    assert scalar("9" * 5000) == math.inf


def test_json_with_tabs_and_yaml_give_the_same_values():
    as_json = parse_document('{"a":\t[1, 2.5, {"b": null}],\n\t"c": "yes"}', "f").plain()
    as_yaml = parse_document("a: [1, 2.5, {b: }]\nc: yes\n", "f").plain()
    assert as_json == as_yaml == {"a": [1, 2.5, {"b": None}], "c": "yes"}


def test_lines_are_those_of_keys():
    document = parse_document("a: 1\nb:\n  c: 2\n", "f")
    assert document.value["b"].line == 2
    assert document.value["b"].value["c"].line == 3


REFUSED = {
    "anchor": ("a: &x 1\nb: *x\n", "f:1: anchors and aliases"),
    "bomb": ("a: &a [x, x]\nb: &b [*a, *a]\n", "f:1: anchors and aliases"),
    "tag": ("a: !!python/object:os.system x\n", "f:1: the tag"),
    "twice": ("a: 1\nb: 2\na: 3\n", "f:3: 'a' is given twice (first on line 1)"),
    "two documents": ("a: 1\n---\nb: 2\n", "f:2: a second document"),
    "comments only": ("# nothing\n", "f: holds no values"),
    "deep list": ("- " * 30 + "x", "f:1: nested deeper than 20 levels"),
    "deep mapping": ('{"a":' * 30 + "1" + "}" * 30, "f:1: nested deeper than 20 levels"),
    "very deep": ("[" * 200_000, "f:1: "),
    "truncated": ('{"a": [1, 2', "f:"),
    "tab": ("a:\n\tb: 1\n", "f:2: is not valid YAML or JSON"),
    "list as key": ("? [1, 2]\n: 3\n", "f:1: a key is not a name"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_run_file_never_holds_is_refused_with_its_line(case):
    text, start = REFUSED[case]
    with pytest.raises(InputError) as caught:
        parse_document(text, "f")
    assert str(caught.value).startswith(start)


def test_a_large_file_is_refused_without_reading_it(tmp_path):
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(1_000_000_000)  # sparse: takes no space
    with pytest.raises(InputError, match="1000 MB is too large; at most 1 MB"):
        read_document(path)
    assert MAX_BYTES < 1_000_000_000


@given(st.binary(max_size=200))
def test_any_bytes_give_values_or_an_input_error(tmp_path_factory, raw):
    path = tmp_path_factory.mktemp("any") / "f.yaml"
    path.write_bytes(raw)
    with contextlib.suppress(InputError):
        read_document(path)
