"""What the README says is true: its figures, its files, its options."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from perfmodel.cli.parser import build_parser
from perfmodel.locations import datasets_path
from perfmodel.run import Run

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_quoted_errors_are_those_of_the_record():
    gate = runpy.run_path(str(ROOT / "experiments" / "accuracy_gate" / "run.py"))
    record = json.loads(datasets_path("accuracy_record.json").read_text("utf-8"))
    assert gate["table"](record) in README


def test_there_are_two_set_up_commands():
    commands = blocks("sh")
    assert len(commands) == 2
    assert "perfmodel predict" in commands[0]
    assert "pytest" in commands[1]
    assert all(len(command.splitlines()) == 1 for command in commands)


def test_the_run_file_in_the_readme_loads(tmp_path):
    (text,) = blocks("yaml")
    path = tmp_path / "run.yaml"
    path.write_text(text)
    assert Run.load(path).cluster.num_gpus == 32


@pytest.mark.parametrize("name", re.findall(r"datasets/examples/(\w+)\.yaml", README))
def test_examples_that_the_readme_names_exist(name):
    assert datasets_path("examples", f"{name}.yaml").is_file()


@pytest.mark.parametrize("target", re.findall(r"\]\((?!https?:)([^)]+)\)", README))
def test_links_lead_somewhere(target):
    assert (ROOT / target).exists()


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`perfmodel (\w+)", README))))
def test_commands_exist(command):
    choices = build_parser()._subparsers._group_actions[0].choices
    assert command in choices
