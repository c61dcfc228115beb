"""Rebuilds the shipped bundle: `python -m perfmodel.measure.kernels.rebuild OUT`.

Reads the kernel tables under `$PERFMODEL_CORPUS/kernels`; about 15 minutes on two cores.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from perfmodel.errors import InputError, PerfmodelError
from perfmodel.measure.kernels.fit import fit_kernels

TABLES = (
    "gemm", "attention", "moe", "elementwise", "norm", "softmax", "conv", "memops", "embedding",
)  # fmt: skip


def corpus_tables() -> list[Path]:
    """Kernel tables of the corpus.

    Raises
    ------
    InputError
        If PERFMODEL_CORPUS is not set or lacks a table.
    """
    corpus = os.environ.get("PERFMODEL_CORPUS")
    if not corpus:
        raise InputError("PERFMODEL_CORPUS is not set; it names the folder of measured tables")
    paths = [Path(corpus) / "kernels" / f"{name}.parquet" for name in TABLES]
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise InputError(f"the corpus has no {missing[0]}")
    return paths


def main(arguments: list[str]) -> int:
    """Fit and write; 0 where it worked, 2 with one sentence where it did not."""
    if len(arguments) != 1:
        print("usage: python -m perfmodel.measure.kernels.rebuild OUT", file=sys.stderr)
        return 2
    try:
        fit_kernels(corpus_tables(), arguments[0])
    except PerfmodelError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
