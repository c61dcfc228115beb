"""Rules by which libraries place embedding tables, and the reading of a published sentence.

Each rule is a function of the tables and the ranks that may hold them; a stack names the one it
follows (`placement` in its options).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from perfmodel.errors import InputError
from perfmodel.plan.sharding import EmbeddingKernel, ShardingKind, ShardingPlan, TableSharding
from perfmodel.workload.recommender import EmbeddingTable

# MLPerf DLRM logs of HugeCTR print 0.89 to 0.93 of lookups and 31 to 76 thousand categories as
# frequent (recommender_model.md, section 5).
HOT_FRACTION = 0.9
HOT_ROWS = 50e3


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRule:
    """How a stack places tables when nobody tells it.

    Tables of more than `row_split_elements` values are divided by rows among all ranks, of more
    than `column_split_elements` by columns, of more than `host_bytes` (fp32) stay in host memory.
    Above `first_rank_free_above` ranks the first rank holds no tables.
    """

    rule: str = "size_balanced"
    whole_table_rule: str = ""  # where a text says "table-wise"; empty: `rule` if it is one
    column_split_elements: float = math.inf
    row_split_elements: float = math.inf
    host_bytes: float = math.inf
    copy_below_bytes: float = 0.0  # split_balanced copies tables (fp32) smaller than this
    first_rank_free_above: float = math.inf
    hot_fraction: float = HOT_FRACTION
    hot_rows: float = HOT_ROWS

    @classmethod
    def of(cls, options: Mapping[str, float | str | bool]) -> PlacementRule:
        """Read the rule from the options of a stack."""

        def number(name: str, default: float) -> float:
            return float(options.get(name, default))

        return cls(
            rule=str(options.get("placement", "size_balanced")),
            whole_table_rule=str(options.get("table_wise_placement", "")),
            column_split_elements=number("column_split_elements", math.inf),
            row_split_elements=number("row_split_elements", math.inf),
            host_bytes=number("host_tables_above_bytes", math.inf),
            copy_below_bytes=number("copy_tables_below_bytes", 0.0),
            first_rank_free_above=number("first_rank_free_above", math.inf),
            hot_fraction=number("hot_fraction", HOT_FRACTION),
            hot_rows=number("hot_rows", HOT_ROWS),
        )


# What a sentence says, by what it contains; the first line that fits counts. An empty rule means
# the stack's own table-wise rule.
_TEXT_RULES: tuple[tuple[str, str], ...] = (
    ("no hybrid", "table_wise"),
    ("hybrid embedding", "hybrid"),
    ("frequent rows", "hybrid"),
    ("single gpu", "single"),
    ("replicated", "replicated"),
    ("whole tables", "table_wise"),
    ("table-row-wise", "table_row_wise"),
    ("table_row_wise", "table_row_wise"),
    ("table-wise", "table_wise"),
    ("table_wise", "table_wise"),
    ("column", "column_wise"),
    ("row-wise", "row_wise"),
    ("row_wise", "row_wise"),
    ("distributed", "row_wise"),
    ("model parallel", "table_wise"),
    ("model-parallel", "table_wise"),
    ("round", "round_robin"),
    ("data parallel", "replicated"),
    ("data-parallel", "replicated"),
    ("data_parallel", "replicated"),
    ("planner", "planned"),
    ("auto", "split_balanced"),
)


def sharding_from_text(
    text: str | None, tables: Sequence[EmbeddingTable], num_ranks: int, rule: PlacementRule
) -> ShardingPlan:
    """Placement that a free-text description means, e.g. "table-wise, whole tables".

    Parameters
    ----------
    text : str or None
        Description of a published run; None or nothing recognised: the stack's own rule.
    tables : sequence of EmbeddingTable
    num_ranks : int
    rule : PlacementRule
        The stack's rule; it decides what the text leaves open.

    Returns
    -------
    ShardingPlan
        Its `note` names the rule that was applied.
    """
    words = (text or "").lower()
    name = next((r for word, r in _TEXT_RULES if word in words), rule.rule)
    if name == "table_wise":
        own = rule.rule if rule.rule in _WHOLE else "size_balanced"
        name = rule.whole_table_rule or own
    if name == "hybrid" and any(p != 1 for t in tables for p in t.pooling):
        name = "split_balanced"  # hybrid embedding serves one-hot features only
    return place(name, tables, num_ranks, rule)


def place(
    name: str, tables: Sequence[EmbeddingTable], num_ranks: int, rule: PlacementRule | None = None
) -> ShardingPlan:
    """Place all tables by a named rule.

    Parameters
    ----------
    name : str
        size_balanced, size_balanced_capped, serpentine, round_robin, lookup_balanced, planned
        (whole tables or slices of columns); split_balanced (rows of busy tables divided); hybrid,
        replicated, row_wise, column_wise, table_row_wise (all tables alike); single.
    tables : sequence of EmbeddingTable
    num_ranks : int
    rule : PlacementRule, optional
        Thresholds; none by default.

    Raises
    ------
    InputError
        If there is no such rule.
    """
    rule = rule or PlacementRule(rule=name)
    if num_ranks == 1:
        name = "single" if name != "replicated" else name
    everyone = tuple(range(num_ranks))
    if name in _WHOLE:
        placed = _place_whole(tables, num_ranks, rule, _WHOLE[name], divides_busy=name == "planned")
    elif name in _UNIFORM:
        placed = [_uniform(t, _UNIFORM[name], everyone, rule) for t in tables]
    elif name == "single":
        placed = [_single(t, rule) for t in tables]
    elif name == "split_balanced":
        placed = _place_split(tables, everyone, rule)
    else:
        allowed = ", ".join((*_WHOLE, *_UNIFORM, "single", "split_balanced"))
        raise InputError(f"placement rule {name!r} is not known; use one of {allowed}")
    return ShardingPlan(tables=tuple(placed), note=name)


_UNIFORM: dict[str, ShardingKind] = {
    "hybrid": ShardingKind.HYBRID,
    "replicated": ShardingKind.DATA_PARALLEL,
    "row_wise": ShardingKind.ROW_WISE,
    "column_wise": ShardingKind.COLUMN_WISE,
    "table_row_wise": ShardingKind.TABLE_ROW_WISE,
}


def _uniform(
    table: EmbeddingTable, kind: ShardingKind, ranks: tuple[int, ...], rule: PlacementRule
) -> TableSharding:
    is_hybrid = kind is ShardingKind.HYBRID
    if kind is ShardingKind.COLUMN_WISE:
        ranks = ranks[: table.dim]
    return TableSharding(
        table=table.name,
        kind=kind,
        ranks=ranks,
        hot_fraction=rule.hot_fraction if is_hybrid else 0.0,
        hot_rows=rule.hot_rows if is_hybrid else 0.0,
    )


def _single(table: EmbeddingTable, rule: PlacementRule) -> TableSharding:
    return TableSharding(
        table=table.name,
        kind=ShardingKind.TABLE_WISE,
        ranks=(0,),
        kernel=_kernel(table.num_parameters, rule),
    )


def _kernel(elements: float, rule: PlacementRule) -> EmbeddingKernel:
    fp32_bytes = 4
    is_large = elements * fp32_bytes > rule.host_bytes
    return EmbeddingKernel.UVM if is_large else EmbeddingKernel.FUSED


@dataclass(frozen=True, slots=True)
class _Piece:
    """A table or a slice of its columns, to be placed whole."""

    table: EmbeddingTable
    share: float

    @property
    def elements(self) -> float:
        return self.table.num_parameters * self.share

    @property
    def work(self) -> float:
        return self.table.lookups * self.table.dim * self.share


_Dealer = Callable[[Sequence[_Piece], Sequence[int]], list[int]]


def _place_whole(
    tables: Sequence[EmbeddingTable],
    num_ranks: int,
    rule: PlacementRule,
    deal: _Dealer,
    *,
    divides_busy: bool = False,
) -> list[TableSharding]:
    everyone = tuple(range(num_ranks))
    holders = everyone[1:] if num_ranks > rule.first_rank_free_above else everyone
    busy = sum(t.lookups * t.dim for t in tables) / num_ranks if divides_busy else math.inf
    split_rows = [
        t for t in tables if t.num_parameters > rule.row_split_elements or t.lookups * t.dim > busy
    ]
    pieces = [p for t in tables if t not in split_rows for p in _slices(t, len(holders), rule)]
    by_table: dict[str, list[tuple[int, float]]] = {}
    for piece, rank in zip(pieces, deal(pieces, holders), strict=True):
        by_table.setdefault(piece.table.name, []).append((rank, piece.share))
    placed = [_uniform(t, ShardingKind.ROW_WISE, everyone, rule) for t in split_rows]
    dims = {t.name: t for t in tables}
    placed += [
        _joined(dims[name], parts, rule, ShardingKind.COLUMN_WISE)
        for name, parts in by_table.items()
    ]
    order = {t.name: i for i, t in enumerate(tables)}
    return sorted(placed, key=lambda p: order[p.table])


def _place_split(
    tables: Sequence[EmbeddingTable], ranks: tuple[int, ...], rule: PlacementRule
) -> list[TableSharding]:
    """Small tables are copied; rows of tables busier than an even share of a rank are divided.

    HugeCTR's `auto` plan does this: it halves the hottest shards, then deals out greedily.
    """
    fp32_bytes = 4
    copied = [t for t in tables if t.num_parameters * fp32_bytes < rule.copy_below_bytes]
    spread = [t for t in tables if t not in copied]
    mean = sum(_Piece(t, 1.0).work for t in spread) / len(ranks)
    pieces = []
    for table in spread:
        wanted = max(1, math.ceil(_Piece(table, 1.0).work / mean)) if mean > 0 else 1
        count = min(2 ** math.ceil(math.log2(wanted)), len(ranks), table.rows)
        pieces += [_Piece(table, 1 / count)] * count
    parts: dict[str, list[tuple[int, float]]] = {}
    for piece, rank in zip(pieces, _lookup_balanced(pieces, ranks), strict=True):
        parts.setdefault(piece.table.name, []).append((rank, piece.share))
    return [
        _joined(t, parts[t.name], rule, ShardingKind.ROW_WISE)
        if t.name in parts
        else _uniform(t, ShardingKind.DATA_PARALLEL, ranks, rule)
        for t in tables
    ]


def _slices(table: EmbeddingTable, most: int, rule: PlacementRule) -> list[_Piece]:
    """Halve columns until a slice is small enough (distributed-embeddings does powers of two)."""
    count = 1
    while table.num_parameters / count > rule.column_split_elements and 2 * count <= min(
        most, table.dim
    ):
        count *= 2
    return [_Piece(table, 1 / count)] * count


def _joined(
    table: EmbeddingTable,
    parts: Sequence[tuple[int, float]],
    rule: PlacementRule,
    kind: ShardingKind,
) -> TableSharding:
    shares: dict[int, float] = {}
    for rank, share in parts:
        shares[rank] = shares.get(rank, 0.0) + share
    is_whole = len(shares) == 1
    return TableSharding(
        table=table.name,
        kind=ShardingKind.TABLE_WISE if is_whole else kind,
        ranks=tuple(shares),
        weights=None if is_whole else tuple(shares.values()),
        kernel=_kernel(table.num_parameters / len(shares), rule),
    )


def _largest_first(
    pieces: Sequence[_Piece],
    ranks: Sequence[int],
    size: Callable[[_Piece], float],
    most_per_rank: int,
) -> list[int]:
    """Largest piece first, to the rank that holds least; ties by rank number."""
    heap = [(0.0, r, 0) for r in ranks]
    out = [0] * len(pieces)
    for i in sorted(range(len(pieces)), key=lambda i: -size(pieces[i])):
        load, rank, count = heapq.heappop(heap)
        out[i] = rank
        if count + 1 < most_per_rank:
            heapq.heappush(heap, (load + size(pieces[i]), rank, count + 1))
    return out


def _size_balanced(pieces: Sequence[_Piece], ranks: Sequence[int]) -> list[int]:
    return _largest_first(pieces, ranks, lambda p: p.elements, len(pieces) + 1)


def _size_balanced_capped(pieces: Sequence[_Piece], ranks: Sequence[int]) -> list[int]:
    """No rank gets more than its even share of the number of tables."""
    return _largest_first(pieces, ranks, lambda p: p.elements, -(-len(pieces) // len(ranks)))


def _lookup_balanced(pieces: Sequence[_Piece], ranks: Sequence[int]) -> list[int]:
    return _largest_first(pieces, ranks, lambda p: p.work, len(pieces) + 1)


def _serpentine(pieces: Sequence[_Piece], ranks: Sequence[int]) -> list[int]:
    """Sorted by size and dealt to and fro."""
    count = len(ranks)
    out = [0] * len(pieces)
    order = sorted(range(len(pieces)), key=lambda i: -pieces[i].elements)
    for position, i in enumerate(order):
        lap, step = divmod(position, count)
        out[i] = ranks[step if lap % 2 == 0 else count - 1 - step]
    return out


def _round_robin(pieces: Sequence[_Piece], ranks: Sequence[int]) -> list[int]:
    return [ranks[i % len(ranks)] for i in range(len(pieces))]


_WHOLE: dict[str, _Dealer] = {
    "size_balanced": _size_balanced,
    "size_balanced_capped": _size_balanced_capped,
    "lookup_balanced": _lookup_balanced,
    "serpentine": _serpentine,
    "round_robin": _round_robin,
    # Whole tables by work, rows of those busier than a rank's even share over all ranks: what a
    # cost-based planner tends to.
    "planned": _lookup_balanced,
}
