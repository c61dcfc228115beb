"""`perfmodel evaluate TABLE…`: cost models against measured tables."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from perfmodel.cli.output import print_json
from perfmodel.errors import InputError
from perfmodel.locations import datasets_path
from perfmodel.measure.tables import TableKind, read_tables, write_table
from perfmodel.report.quantity import percent, table

_BREAKDOWNS = ("summary", "by_op", "by_gpu", "by_source", "by_case")


def run(options: Namespace) -> int:
    """Predict every row, compare, and write the rows where asked."""
    kind, rows = read_tables(options.files)
    result = _evaluate(kind, rows, options)
    if options.out:
        write_table(result.rows, options.out)
    document = {
        "kind": kind,
        "rows": len(result.rows),
        "refused": result.refused,
        **{key: found for key in _BREAKDOWNS if (found := getattr(result, key, None))},
    }
    if options.json:
        print_json(document)
    else:
        print(_text(document))
    return 0


def _evaluate(kind: TableKind, rows: Any, options: Namespace) -> Any:
    if kind is TableKind.COLLECTIVES:
        from perfmodel.measure.collectives import evaluate_collectives

        return evaluate_collectives(
            rows, bundle=options.bundle, leave_out=options.leave_out, protocol=options.protocol
        )
    if options.protocol:
        raise InputError(f"--protocol {options.protocol} is for tables of collectives")
    from perfmodel.measure.kernels.evaluate import evaluate_kernels

    bundle = options.bundle
    if bundle is None and options.leave_out is None:
        bundle = datasets_path("bundles", "kernels")
    return evaluate_kernels([rows], bundle=bundle, leave_out=options.leave_out)


def _text(document: Mapping[str, Any]) -> str:
    lines = [f"{document['rows']} rows of {document['kind']}, {document['refused']} refused"]
    for key in [k for k in _BREAKDOWNS if k in document]:
        parts = {"all": document[key]} if key == "summary" else document[key]
        rows = [_score(name, score) for name, score in parts.items() if score.get("rows")]
        if rows:
            lines += ["", key.replace("_", " "), *table(rows)]
    return "\n".join(lines)


def _score(name: str, score: Mapping[str, Any]) -> dict[str, Any]:
    shares = ("geomean_error", "mape", "median", "p90", "worst", "coverage")
    return {
        "": name,
        "rows": int(score["rows"]),
        **{key: percent(score[key]) for key in shares if score.get(key) is not None},
    }
