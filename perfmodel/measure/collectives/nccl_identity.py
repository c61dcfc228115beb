"""Which collective, on how many ranks: decided from labels and checked against the numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from perfmodel.cost.collectives.busbw import busbw_factor
from perfmodel.measure.collectives.nccl_context import Shape
from perfmodel.measure.collectives.nccl_rows import PRINT_GB_S, Half, Row
from perfmodel.measure.collectives.table import COLLECTIVE_NAMES

_REDUCING = ("all_reduce", "reduce_scatter", "reduce")
_ROOTED = ("broadcast", "reduce")
_COUNT_PER_RANK = ("all_gather", "reduce_scatter", "alltoall")
_UNCHECKED_IN_PLACE = ("alltoall", "sendrecv")
_MAX_RANKS = 1 << 20
_MAX_CANDIDATES = 64


def consistent_names(rows: Sequence[Row], num_ranks: int) -> list[str]:
    """Collectives that the printed columns allow for most rows of a run."""
    names = []
    for name in ("all_reduce", *_COUNT_PER_RANK, "broadcast", "reduce", "sendrecv"):
        fitting = sum(fits(row, name, num_ranks) for row in rows)
        if fitting * 2 > len(rows):
            names.append(name)
    return names


def fits(row: Row, name: str, num_ranks: int) -> bool:
    """Whether operator, root, count and bandwidths of `row` agree with `name` on so many ranks."""
    if row.redop is not None:
        is_reducing = row.redop != "none"
        # sendrecv prints a reduction operator although it reduces nothing.
        if name != "sendrecv" and is_reducing != (name in _REDUCING):
            return False
    if row.root is not None and (row.root >= 0) != (name in _ROOTED):
        return False
    if not _checks_fit(row, name):
        return False
    per_rank = num_ranks if name in _COUNT_PER_RANK else 1
    if row.ranks_by_count != per_rank:
        return False
    wire = busbw_factor(COLLECTIVE_NAMES[name], num_ranks) * row.size
    return all(half.shows(half.busbw, wire) for half in row.halves)


def _checks_fit(row: Row, name: str) -> bool:
    """Results are validated in place for all collectives but alltoall and sendrecv."""
    if row.in_place is None or row.out_of_place is None or not row.out_of_place.checked:
        return True
    return row.in_place.checked != (name in _UNCHECKED_IN_PLACE)


def num_ranks_of(rows: Sequence[Row], shape: Shape, named: int | None = None) -> int | str:
    """Ranks of a run, or why they cannot be known.

    The count column tells for all_gather, reduce_scatter and alltoall; busbw over algbw for
    all_reduce; the list of devices, the command and the file name (`named`) for all. They must
    not contradict each other.
    """
    if shape.is_single_rank:
        return "one rank each: a build without MPI ran separate processes"
    by_count = _by_count(rows)
    if by_count is not None:
        return by_count
    intervals = _intervals(rows)
    stated = [n for n in (shape.listed_ranks, shape.command_ranks, named) if n is not None]
    if not intervals:
        return stated[0] if stated else "the log does not say how many ranks took part"
    for number in stated:
        if _votes(number, intervals) * 2 > len(intervals):
            return number
    voted = _by_vote(intervals)
    if voted is not None:
        return voted
    if stated:
        return f"{stated[0]} ranks are listed, but the bandwidths are those of another number"
    return "bandwidths do not tell the number of ranks"


def _by_count(rows: Sequence[Row]) -> int | None:
    """Ranks where most rows count elements per rank."""
    counts = Counter(row.ranks_by_count for row in rows)
    ratio, votes = counts.most_common(1)[0]
    if ratio <= 1 or ratio != int(ratio) or votes * 2 <= len(rows):
        return None
    return int(ratio)


def _intervals(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Ranks that busbw / algbw of an all_reduce allows, for each half that tells.

    Empty where all ratios may be 1: an all_reduce of two ranks or a collective without a factor.
    """
    found = [_interval(half) for row in rows for half in row.halves]
    intervals = [interval for interval in found if interval is not None]
    return [] if all(low <= 2 <= high for low, high in intervals) else intervals


def _votes(number: int, intervals: Sequence[tuple[int, int]]) -> int:
    return sum(low <= number <= high for low, high in intervals)


def _by_vote(intervals: Sequence[tuple[int, int]]) -> int | None:
    """The one number that most intervals hold, if it is one and they are most of them."""
    low, high = min(intervals, key=lambda interval: interval[1] - interval[0])
    if high - low > _MAX_CANDIDATES:
        return None
    votes = {number: _votes(number, intervals) for number in range(low, high + 1)}
    best = max(votes.values())
    winners = [number for number, count in votes.items() if count == best]
    return winners[0] if len(winners) == 1 and best * 2 > len(intervals) else None


def _interval(half: Half) -> tuple[int, int] | None:
    """Range of n for which 2(n-1)/n explains a half; None where printing hides it."""
    if half.algbw < 0.5:
        return None
    low = (half.busbw - PRINT_GB_S) / (half.algbw + PRINT_GB_S)
    high = (half.busbw + PRINT_GB_S) / (half.algbw - PRINT_GB_S)
    if high < 1:
        return None
    first = max(2, math.ceil(2 / (2 - low) - 1e-9)) if low < 2 else _MAX_RANKS
    last = math.floor(2 / (2 - high) + 1e-9) if high < 2 else _MAX_RANKS
    return (first, min(last, _MAX_RANKS)) if first <= last else None
