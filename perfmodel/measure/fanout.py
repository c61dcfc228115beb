"""Runs a function over many rows in a few processes, in order, with progress and a clean Ctrl-C."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeAlias, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress: TypeAlias = Callable[[int, int], None]

DEFAULT_WORKERS = 2
# Rows of one task: long enough to hide the hand-over, short enough for a live count.
_CHUNK = 8
# Starting processes costs about a second of imports; fewer rows than this are done at once.
_POOL_ROWS = 40


def print_progress(done: int, total: int) -> None:
    """Write a running count to stderr: every row on a terminal, every tenth part elsewhere."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{done}/{total} rows" + ("\n" if done == total else ""))
    elif done == total or done % max(1, total // 10) == 0:
        sys.stderr.write(f"{done}/{total} rows\n")
    sys.stderr.flush()


class Pool:
    """Worker processes kept over several passes; results come in the order of the items.

    `function` must be a module-level function (processes are spawned, not forked).
    """

    def __init__(self, workers: int = DEFAULT_WORKERS) -> None:
        self.workers = workers
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None

    def map(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        progress: Progress | None = None,
    ) -> Iterator[Result]:
        """Results one by one; after KeyboardInterrupt those not yet yielded are lost."""
        for done, result in enumerate(self._results(function, items), 1):
            if progress is not None:
                progress(done, len(items))
            yield result

    def _results(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[Result]:
        if self.workers < 2 or (self._executor is None and len(items) < _POOL_ROWS):
            return map(function, items)
        if self._executor is None:
            self._executor = ProcessPoolExecutor(
                self.workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_leave_interrupts_to_parent,
            )
        return self._executor.map(function, items, chunksize=_CHUNK)


def _leave_interrupts_to_parent() -> None:
    """Ctrl-C reaches the whole process group; only the parent answers it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
