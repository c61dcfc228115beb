"""A slow and plain simulator of every rank, iteration after iteration, to check the fast one."""

from __future__ import annotations

import numpy as np

from perfmodel.program.priced import PricedProgram
from perfmodel.program.records import TaskKind


class Reference:
    """Ends of everything by (iteration, rank, task), found by asking recursively."""

    def __init__(self, priced: PricedProgram, iterations: int) -> None:
        self.priced = priced
        self.program = priced.program
        self.iterations = iterations
        self.class_of = {
            int(r): (c, i)
            for c, cls in enumerate(self.program.classes)
            for i, r in enumerate(cls.ranks)
        }
        self.memo: dict[tuple, float] = {}
        self.barrier_at = [0.0]

    def tasks(self, rank: int):
        return self.program.classes[self.class_of[rank][0]].tasks

    def seconds(self, arrays, rank: int, t: int) -> float:
        c, i = self.class_of[rank]
        row = arrays[c][t, 0]
        return float(row if np.ndim(row) == 0 else row[i])

    def finishes(self) -> list[float]:
        """The last end of each iteration."""
        ends = []
        for k in range(self.iterations):
            last = 0.0
            for rank in self.class_of:
                for t, task in enumerate(self.tasks(rank)):
                    last = max(last, self.end(k, rank, t))
                    if task.issued_by is not None and task.kind is not TaskKind.HOST:
                        last = max(last, self.issued(k, rank, t))
            ends.append(max([last, *ends[-1:]]))
            self.barrier_at.append(ends[-1])
        return ends

    def ask(self, key: tuple) -> float:
        if key not in self.memo:
            self.memo[key] = getattr(self, "_" + key[0])(*key[1:])
        return self.memo[key]

    def issued(self, k, rank, t):
        return self.ask(("issued", k, rank, t))

    def start(self, k, rank, t):
        return self.ask(("start", k, rank, t))

    def end(self, k, rank, t):
        return self.ask(("end", k, rank, t))

    def floor(self, k: int) -> float:
        return self.barrier_at[k] if self.program.barrier else 0.0

    def on_thread(self, rank: int, thread: str) -> list[int]:
        return [
            t
            for t, task in enumerate(self.tasks(rank))
            if (task.lane if task.kind is TaskKind.HOST else task.issued_by) == thread
        ]

    def before(self, k, rank, items, t, end) -> float:
        place = items.index(t)
        if place:
            return end(k, rank, items[place - 1])
        if k and not self.program.barrier:
            return end(k - 1, rank, items[-1])
        return self.floor(k)

    def thread_end(self, k, rank, t):
        host = self.tasks(rank)[t].kind is TaskKind.HOST
        return self.end(k, rank, t) if host else self.issued(k, rank, t)

    def waits(self, k, rank, t) -> float:
        task = self.tasks(rank)[t]
        times = [self.end(k, rank, w) for w in task.waits]
        if k and not self.program.barrier:
            times += [self.end(k - 1, rank, w) for w in task.waits_previous]
        return max([self.floor(k), *times])

    def queue(self, k, rank, t) -> float:
        """End of the newest launched task whose last kernel lies `launch_queue` launches back."""
        tasks = self.tasks(rank)
        issued = [
            u
            for u, x in enumerate(tasks)
            if x.kind is not TaskKind.HOST and x.issued_by is not None
        ]
        first = 0 if not self.program.barrier else k
        order = [(j, u) for j in range(first, k + 1) for u in issued]
        order = order[: order.index((k, t))]
        count = 0.0
        for j, u in reversed(order):
            if count + 1 >= self.program.launch_queue:
                return self.end(j, rank, u)
            count += max(tasks[u].launches, 1.0)
        return 0.0

    def _issued(self, k, rank, t):
        items = self.on_thread(rank, self.tasks(rank)[t].issued_by)
        start = max(self.before(k, rank, items, t, self.thread_end), self.queue(k, rank, t))
        return start + self.seconds(self.priced.dispatch_s, rank, t)

    def _start(self, k, rank, t):
        task = self.tasks(rank)[t]
        items = [
            u
            for u, x in enumerate(self.tasks(rank))
            if x.lane == task.lane and x.kind is not TaskKind.HOST
        ]
        start = max(self.before(k, rank, items, t, self.end), self.waits(k, rank, t))
        if task.issued_by is not None:
            rest = self.seconds(self.priced.dispatch_s, rank, t) * (1 - 1 / task.launches)
            start = max(start, self.issued(k, rank, t) - rest + self.program.launch_latency_s)
        return start

    def tail(self, k, rank, t) -> float:
        task = self.tasks(rank)[t]
        if task.issued_by is None:
            return 0.0
        last = self.seconds(self.priced.device_s, rank, t) / task.launches
        return self.issued(k, rank, t) + self.program.launch_latency_s + last

    def _end(self, k, rank, t):
        task = self.tasks(rank)[t]
        if task.kind is TaskKind.HOST:
            items = self.on_thread(rank, task.lane)
            start = max(self.before(k, rank, items, t, self.thread_end), self.waits(k, rank, t))
            return start + self.seconds(self.priced.device_s, rank, t)
        if task.kind is TaskKind.DEVICE:
            work = self.seconds(self.priced.device_s, rank, t)
            return max(self.start(k, rank, t) + work, self.tail(k, rank, t))
        number = [u for u, x in enumerate(self.tasks(rank)) if x.group == task.group].index(t)
        row = next(r for r in self.program.groups[task.group].tolist() if rank in r)
        members = []
        for other in row:
            mine = [u for u, x in enumerate(self.tasks(other)) if x.group == task.group]
            members.append((other, mine[number]))
        together = max(self.start(k, r, u) for r, u in members)
        work = max(self.seconds(self.priced.device_s, r, u) for r, u in members)
        return max([together + work, *(self.tail(k, r, u) for r, u in members)])
