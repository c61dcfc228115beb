"""Places shards on ranks so that the fullest rank has least to do: the additive embedding problem.

Every table has options (how it is cut); an option has equal shards with a cost and a size each.
Some put one shard on every rank, the others choose distinct ranks. The rating of a placement is
the largest sum of costs of a rank, as TorchRec's planner rates plans; memory is a limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InputError, RefusedError

Floats = NDArray[np.float64]
_ENOUGH = 1e-4  # a placement this near to the lower bound is as good as optimal
_KICKED = 3  # tables moved at random to leave a local optimum
_ELITE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to cut a table: `count` equal shards; `everywhere` means one on each rank."""

    count: int
    cost: float  # of a shard, in the unit of the rating
    size: float  # bytes of a shard
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """Option and ranks of every table, and the rating."""

    options: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...]
    rating: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best placement, others that were the best for a while, and how good it can get."""

    best: Placement
    elite: tuple[Placement, ...]
    lower_bound: float
    evaluated: int


def lower_bound(tables: Sequence[Sequence[Option]], num_ranks: int) -> float:
    """No placement rates lower: mean of the cheapest options; cheapest way of the worst table."""
    totals = [min(o.cost * o.count for o in options) for options in tables]
    largest = max(min(o.cost for o in options) for options in tables)
    return max(sum(totals) / num_ranks, largest)


def place_shards(
    tables: Sequence[Sequence[Option]],
    num_ranks: int,
    capacity: float,
    *,
    seed: int = 0,
    max_evaluations: int = 100_000,
    seconds: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Found:
    """Search a placement: longest first, then moves, swaps and cuts, with random kicks.

    Parameters
    ----------
    tables : options of every table, none empty
    num_ranks : int
    capacity : float
        Bytes of a rank.
    seed : int
        Same seed, same answer, unless `seconds` ends the search first.
    max_evaluations : int
        Placements of one table that are tried.
    seconds : float, optional
        Time after which the best one so far is returned.

    Raises
    ------
    RefusedError
        If the tables were not fitted into the ranks; it says how much is missing.
    """
    if not tables or num_ranks < 1:
        raise InputError(f"nothing to place: {len(tables)} tables on {num_ranks} ranks")
    deadline = None if seconds is None else clock() + seconds
    state = _start(tables, num_ranks, capacity)
    bound = lower_bound(tables, num_ranks)
    rng = np.random.default_rng(seed)
    elite = [state.snapshot()]
    while state.evaluated < max_evaluations and (deadline is None or clock() < deadline):
        while state.improve(rng, deadline, clock) and state.evaluated < max_evaluations:
            pass
        found = state.snapshot()
        if found.rating < elite[-1].rating:
            elite.append(found)
        if elite[-1].rating <= bound * (1 + _ENOUGH):
            break
        state.restore(elite[-1])
        state.kick(rng)
    best = elite[-1]
    return Found(
        best=best,
        elite=tuple(elite[-_ELITE:]),
        lower_bound=bound,
        evaluated=state.evaluated,
    )


def _start(tables: Sequence[Sequence[Option]], num_ranks: int, capacity: float) -> _State:
    """Longest first: each table's cheapest option, or the one that fits the ranks so far best.

    Largest first where that leaves some without room.
    """
    cheapest = [min(o.cost * o.count for o in options) for options in tables]
    largest = [min(o.size * o.count for o in options) for options in tables]
    missing = 0.0
    started: list[_State] = []
    for key, keeps_cheapest in ((cheapest, True), (cheapest, False), (largest, False)):
        state = _State(tables, num_ranks, capacity)
        failed = 0.0
        for table in sorted(range(len(tables)), key=lambda t: (-key[t], t)):
            if not state.place_best(table, keeps_cheapest=keeps_cheapest):
                failed += largest[table]
        if not failed:
            started.append(state)
        missing = failed
    if started:
        return min(started, key=lambda s: float(s.load.max()))
    raise RefusedError(
        f"the tables do not fit: {missing / 2**30:.1f} GiB of them find no room on {num_ranks} "
        f"ranks with {capacity / 2**30:.1f} GiB each for tables; use more or larger GPUs"
    )


class _State:
    """Sums of every rank under the current placement."""

    def __init__(self, tables: Sequence[Sequence[Option]], num_ranks: int, capacity: float) -> None:
        self.tables = tables
        self.num_ranks = num_ranks
        self.capacity = capacity
        self.load = np.zeros(num_ranks)
        self.size = np.zeros(num_ranks)
        self.option = [-1] * len(tables)
        self.ranks: list[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)] * len(tables)
        self.evaluated = 0
        self.every = np.arange(num_ranks, dtype=np.int64)

    def snapshot(self) -> Placement:
        """The placement as a record."""
        ranks = tuple(tuple(int(r) for r in rs) for rs in self.ranks)
        return Placement(tuple(self.option), ranks, float(self.load.max()))

    def restore(self, placement: Placement) -> None:
        """Go back to a placement."""
        self.load[:] = 0.0
        self.size[:] = 0.0
        for table, (option, ranks) in enumerate(
            zip(placement.options, placement.ranks, strict=True)
        ):
            self._put(table, option, np.asarray(ranks, dtype=np.int64))

    def _put(self, table: int, option: int, ranks: NDArray[np.int64]) -> None:
        chosen = self.tables[table][option]
        self.load[ranks] += chosen.cost
        self.size[ranks] += chosen.size
        self.option[table], self.ranks[table] = option, ranks

    def _take(self, table: int) -> tuple[int, NDArray[np.int64]]:
        option, ranks = self.option[table], self.ranks[table]
        chosen = self.tables[table][option]
        self.load[ranks] -= chosen.cost
        self.size[ranks] -= chosen.size
        return option, ranks

    def place_best(self, table: int, *, keeps_cheapest: bool = False) -> bool:
        """Put a table where the fullest rank ends lowest; False if nothing fits.

        With `keeps_cheapest` the cut is the cheapest one that fits, wherever it ends.
        """
        best: tuple[float, float, int, NDArray[np.int64]] | None = None
        top = float(self.load.max())
        for number, option in enumerate(self.tables[table]):
            ranks = self._ranks_for(option)
            self.evaluated += 1
            if ranks is None:
                continue
            peak = max(top, float(self.load[ranks].max()) + option.cost)
            whole = option.cost * option.count
            key = (whole, peak) if keeps_cheapest else (peak, whole)
            if best is None or key < best[:2]:
                best = (*key, number, ranks)
        if best is None:
            return False
        self._put(table, best[2], best[3])
        return True

    def _ranks_for(self, option: Option) -> NDArray[np.int64] | None:
        """The least loaded ranks with room."""
        room = self.size + option.size <= self.capacity
        if option.everywhere:
            return self.every if room.all() else None
        if option.count == 1:
            rank = int(np.argmin(np.where(room, self.load, np.inf)))
            return np.array([rank], dtype=np.int64) if room[rank] else None
        if int(room.sum()) < option.count:
            return None
        order = np.argsort(np.where(room, self.load, np.inf), kind="stable")
        return order[: option.count].astype(np.int64)

    def improve(
        self, rng: np.random.Generator, deadline: float | None, clock: Callable[[], float]
    ) -> bool:
        """One move, cut or swap that relieves the fullest rank; False if there is none."""
        top = float(self.load.max())
        rank = int(np.argmax(self.load))
        here = [t for t, ranks in enumerate(self.ranks) if rank in ranks]
        for table in rng.permutation(len(here)):
            if deadline is not None and clock() > deadline:
                return False
            if self._replace(here[table], top) or self._swap(here[table], rank, top):
                return True
        return False

    def _replace(self, table: int, top: float) -> bool:
        before = self._take(table)
        fullest = int(np.argmax(self.load))
        if self.load[fullest] < top - 1e-12 * top and self.place_best(table):
            if self.load.max() < top * (1 - 1e-12):
                return True
            self._take(table)
        self._put(table, *before)
        return False

    def _swap(self, table: int, rank: int, top: float) -> bool:
        """Exchange a whole table of the fullest rank with a smaller one elsewhere."""
        mine = self.tables[table][self.option[table]]
        if mine.count != 1:
            return False
        best, partner = top * (1 - 1e-12), -1
        for other, ranks in enumerate(self.ranks):
            if len(ranks) != 1 or ranks[0] == rank:
                continue
            theirs = self.tables[other][self.option[other]]
            gain = mine.cost - theirs.cost
            there = int(ranks[0])
            self.evaluated += 1
            if gain <= 0 or not self._has_room(mine, theirs, rank, there):
                continue
            peak = max(self.load[rank] - gain, self.load[there] + gain)
            if peak < best:
                best, partner = peak, other
        if partner < 0:
            return False
        option, _ = self._take(table)
        other_option, there_ranks = self._take(partner)
        self._put(table, option, there_ranks)
        self._put(partner, other_option, np.array([rank], dtype=np.int64))
        return True

    def _has_room(self, mine: Option, theirs: Option, rank: int, there: int) -> bool:
        more = mine.size - theirs.size
        return bool(
            self.size[there] + more <= self.capacity and self.size[rank] - more <= self.capacity
        )

    def kick(self, rng: np.random.Generator) -> None:
        """Move a few tables to random ranks or cuts that have room."""
        for table in rng.permutation(len(self.tables))[:_KICKED]:
            before = self._take(int(table))
            number = int(rng.integers(len(self.tables[table])))
            option = self.tables[table][number]
            ranks = self.every
            if not option.everywhere:
                ranks = np.sort(rng.permutation(self.num_ranks)[: option.count])
            if (self.size[ranks] + option.size <= self.capacity).all():
                self._put(int(table), number, ranks)
            else:
                self._put(int(table), *before)
