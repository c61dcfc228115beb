"""`perfmodel evaluate TABLE…`: cost models against measured tables."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from perfmodel.cli.output import print_json
from perfmodel.errors import InputError
from perfmodel.measure.tables import TableKind, read_tables, write_table
from perfmodel.report.quantity import percent, table


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
        "summary": result.summary,
        "by_op": result.by_op,
        "by_gpu": result.by_gpu,
        "by_source": result.by_source,
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
    from perfmodel.measure.kernels import evaluate_kernels

    return evaluate_kernels(rows, bundle=options.bundle, leave_out=options.leave_out)


def _text(document: Mapping[str, Any]) -> str:
    lines = [f"{document['rows']} rows of {document['kind']}, {document['refused']} refused"]
    for key in ("summary", "by_op", "by_gpu", "by_source"):
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
