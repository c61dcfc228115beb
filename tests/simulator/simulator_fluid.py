"""An exact event-driven fluid model of one iteration without a host, to check contention."""

from __future__ import annotations

from perfmodel.program.priced import PricedProgram
from perfmodel.program.records import TaskKind

Key = tuple[int, int]  # rank, task


class Fluid:
    """Advances from event to event at constant rates; every rank on its own."""

    def __init__(self, priced: PricedProgram) -> None:
        self.overlap = priced.program.overlap
        self.groups = {k: v.tolist() for k, v in priced.program.groups.items()}
        self.tasks = {}
        self.left: dict[Key, float] = {}
        for c, cls in enumerate(priced.program.classes):
            for rank in cls.ranks.tolist():
                self.tasks[rank] = cls.tasks
                for t in range(len(cls.tasks)):
                    self.left[rank, t] = float(priced.device_s[c][t, 0])
        self.done: set[Key] = set()
        self.time = 0.0

    def finish(self) -> float:
        while len(self.done) < len(self.left):
            active = self.active()
            if not active:
                break
            rates = {key: self.rate(key, active) for key in active}
            step = min(self.left[k] / r for k, r in rates.items() if not self.is_spent(k))
            self.time += step
            for key, rate in rates.items():
                if not self.is_spent(key):
                    self.left[key] -= step * rate
            for key in active:
                if all(self.is_spent(m) for m in self.members(key)):
                    self.done.add(key)
        return self.time

    def is_spent(self, key: Key) -> bool:
        return self.left[key] <= 1e-12

    def heads(self) -> set[Key]:
        found = set()
        for rank, tasks in self.tasks.items():
            lanes = set()
            for t, task in enumerate(tasks):
                if (rank, t) in self.done or task.lane in lanes:
                    continue
                lanes.add(task.lane)
                if all((rank, w) in self.done for w in task.waits):
                    found.add((rank, t))
        return found

    def members(self, key: Key) -> list[Key]:
        rank, t = key
        task = self.tasks[rank][t]
        if task.kind is not TaskKind.COLLECTIVE:
            return [key]
        row = next(r for r in self.groups[task.group] if rank in r)
        place = [u for u, x in enumerate(self.tasks[rank]) if x.group == task.group].index(t)
        return [
            (r, [u for u, x in enumerate(self.tasks[r]) if x.group == task.group][place])
            for r in row
        ]

    def active(self) -> list[Key]:
        heads = self.heads()
        running = [k for k in heads if all(m in heads for m in self.members(k))]
        # What needs no time is done at once and disturbs nobody.
        spent = [k for k in running if all(self.is_spent(m) for m in self.members(k))]
        if spent:
            self.done |= set(spent)
            return self.active() if len(self.done) < len(self.left) else []
        return running

    def rate(self, key: Key, active: list[Key]) -> float:
        rank, t = key
        mine = [self.tasks[rank][u] for r, u in active if r == rank and u != t]
        comms = [x for x in mine if x.kind is TaskKind.COLLECTIVE]
        computes = [
            x for x in mine if x.kind is TaskKind.DEVICE and x.lane in self.overlap.compute_lanes
        ]
        task = self.tasks[rank][t]
        if task.kind is TaskKind.DEVICE:
            slowed = comms and task.lane in self.overlap.compute_lanes
            return 1 / (1 + self.overlap.compute_slowdown) if slowed else 1.0
        link = self.overlap.shared_links.get(task.lane)
        lanes = 1 + sum(
            link is not None and self.overlap.shared_links.get(x.lane) == link for x in comms
        )
        return 1 / (1 + (self.overlap.comm_slowdown if computes else 0.0)) / lanes
