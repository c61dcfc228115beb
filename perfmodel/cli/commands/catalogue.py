"""`perfmodel catalogue [section]`: what is known, by name."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from perfmodel.cli.output import print_json
from perfmodel.hardware.listing import catalogue_rows
from perfmodel.plan.stacks import list_stacks
from perfmodel.report.quantity import table
from perfmodel.schema.models import list_models, named_model

_SECTIONS = ("gpus", "nodes", "networks", "models", "stacks")


def run(options: Namespace) -> int:
    """List a section in full, or all in short."""
    sections = [options.section] if options.section else list(_SECTIONS)
    rows = {name: section_rows(name) for name in sections}
    if options.json:
        print_json(rows)
    elif options.section:
        print("\n".join(table(rows[options.section])))
    else:
        for name, entries in rows.items():
            print(f"{name} ({len(entries)}): {', '.join(str(e['name']) for e in entries)}\n")
        print(f"perfmodel catalogue {'|'.join(_SECTIONS)} shows the figures")
    return 0


def section_rows(section: str) -> list[dict[str, Any]]:
    """Rows of a section; the first column is the name to use in a RUN file."""
    if section == "models":
        return [_model_row(name) for name in list_models()]
    if section == "stacks":
        return [
            {
                "name": p.stack.name,
                "year": p.stack.year,
                "families": ", ".join(p.families),
                "title": p.stack.title,
            }
            for p in list_stacks()
        ]
    return catalogue_rows(section)


def _model_row(name: str) -> dict[str, Any]:
    model = named_model(name)
    return {
        "name": name,
        "builder": model.builder,
        "title": model.title,
        "batch": model.training.get("global_batch"),
        "precision": model.training.get("precision"),
        "source": model.source,
    }
