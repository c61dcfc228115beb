"""Builds the task list of one rank class in issue order."""

from __future__ import annotations

from collections.abc import Iterable

from perfmodel.program.records import Task, TaskKind, WorkItem
from perfmodel.program.work import Amount, Collective, HostDispatch, Pass, Work

Item = Work | tuple[Work, Amount]


class TaskList:
    """Appends tasks and hands out their indices for later `waits`.

    `op_s` is what the framework needs to issue one operator; kernels captured in a CUDA graph are
    issued with `issued_by=None`.
    """

    def __init__(self, *, op_s: float, thread: str | None = "forward") -> None:
        self.tasks: list[Task] = []
        self.op_s = op_s
        self.thread = thread
        # Micro-batches of a stage are issued from the same list of items: one tuple serves all,
        # and is priced once. The list is kept beside it so that its id stays its own.
        self._shared: dict[int, tuple[object, tuple[WorkItem, ...]]] = {}

    def _work(self, items: Iterable[Item]) -> tuple[WorkItem, ...]:
        found = self._shared.get(id(items))
        if found is None or not isinstance(items, list | tuple) or len(items) != len(found[1]):
            found = (items, tuple(_item(i) for i in items))
            self._shared[id(items)] = found
        return found[1]

    def _single(self, work: Work, count: Amount) -> tuple[WorkItem, ...]:
        found = self._shared.get(id(work))
        if found is None or found[1][0].count is not count:
            found = (work, (WorkItem(work, count),))
            self._shared[id(work)] = found
        return found[1]

    def _append(self, task: Task) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1

    def kernels(
        self,
        name: str,
        items: Iterable[Item],
        *,
        num_ops: float | None = None,
        lane: str = "compute",
        waits: Iterable[int] = (),
        waits_previous: Iterable[int] = (),
        phase: Pass = Pass.FORWARD,
        thread: str | None = None,
    ) -> int:
        """Append kernels that run back to back on a stream; `num_ops` operators issue them."""
        work = self._work(items)
        ops = float(len(work)) if num_ops is None else num_ops
        issuer = thread or self.thread
        return self._append(
            Task(
                name=name,
                kind=TaskKind.DEVICE,
                lane=lane,
                work=work,
                waits=tuple(waits),
                waits_previous=tuple(waits_previous),
                issued_by=issuer,
                dispatch=HostDispatch(num_ops=ops, op_s=self.op_s) if issuer else None,
                launches=max(ops, 1.0),
                phase=phase,
            )
        )

    def collective(
        self,
        name: str,
        work: Collective,
        group: str,
        *,
        count: Amount = 1.0,
        lane: str = "comm",
        waits: Iterable[int] = (),
        waits_previous: Iterable[int] = (),
        phase: Pass = Pass.FORWARD,
    ) -> int:
        """Append `count` equal collectives on communicators of kind `group`."""
        return self._append(
            Task(
                name=name,
                kind=TaskKind.COLLECTIVE,
                lane=lane,
                work=self._single(work, count),
                waits=tuple(waits),
                waits_previous=tuple(waits_previous),
                issued_by=self.thread,
                dispatch=HostDispatch(num_ops=1.0, op_s=self.op_s) if self.thread else None,
                group=group,
                phase=phase,
            )
        )

    def host(
        self,
        name: str,
        work: Work,
        *,
        lane: str | None = None,
        waits: Iterable[int] = (),
        waits_previous: Iterable[int] = (),
        phase: Pass = Pass.FORWARD,
    ) -> int:
        """Append work of a host thread; with `waits` on device tasks it is a synchronisation."""
        return self._append(
            Task(
                name=name,
                kind=TaskKind.HOST,
                lane=lane or self.thread or "forward",
                work=(WorkItem(work),),
                waits=tuple(waits),
                waits_previous=tuple(waits_previous),
                issued_by=None,
                phase=phase,
            )
        )


def _item(item: Item) -> WorkItem:
    return WorkItem(*item) if isinstance(item, tuple) else WorkItem(item)
