"""The ShardingPlan: where the embedding tables of a recommender live."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from perfmodel.errors import InvalidPlanError
from perfmodel.workload.recommender import EmbeddingTable


class ShardingKind(StrEnum):
    """How one table is divided, in TorchRec's spelling."""

    DATA_PARALLEL = "data_parallel"  # a copy on every rank, gradients all-reduced
    TABLE_WISE = "table_wise"  # whole on one rank
    ROW_WISE = "row_wise"  # rows divided among ranks, partial sums are reduced
    COLUMN_WISE = "column_wise"  # columns divided among ranks
    TABLE_ROW_WISE = "table_row_wise"  # rows divided among the ranks of one node
    TABLE_COLUMN_WISE = "table_column_wise"  # columns divided among the ranks of one node
    GRID = "grid_shard"  # columns divided among nodes, rows among the ranks of each
    HYBRID = "hybrid"  # frequent rows on every rank, the others divided among ranks


class EmbeddingKernel(StrEnum):
    """Where rows are read from."""

    FUSED = "fused"  # GPU memory
    UVM = "uvm"  # host memory, over PCIe
    UVM_CACHING = "uvm_caching"  # host memory behind a cache in GPU memory


_SPLIT_ROWS = (
    ShardingKind.ROW_WISE, ShardingKind.TABLE_ROW_WISE, ShardingKind.HYBRID, ShardingKind.GRID,
)  # fmt: skip
_SPLIT_COLUMNS = (ShardingKind.COLUMN_WISE, ShardingKind.TABLE_COLUMN_WISE, ShardingKind.GRID)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSharding:
    """Placement of one table.

    `ranks` are distinct global ranks: one for table-wise, all that hold a share otherwise. Shares
    are equal unless `weights` gives them (fractions of rows or columns, one for each rank). A grid
    has its ranks in `column_groups` equal runs: a run holds some columns, its ranks their rows.
    `hot_fraction` is the share of lookups that hit replicated rows (hybrid only), `hot_rows` how
    many rows those are; `cached_fraction` the share of lookups that a UVM cache serves.
    """

    table: str
    kind: ShardingKind
    ranks: tuple[int, ...]
    kernel: EmbeddingKernel = EmbeddingKernel.FUSED
    weights: tuple[float, ...] | None = None
    hot_fraction: float = 0.0
    hot_rows: float = 0.0
    cached_fraction: float = 0.0
    column_groups: int = 1

    def __post_init__(self) -> None:
        if not self.ranks or len(set(self.ranks)) != len(self.ranks):
            raise InvalidPlanError(f"table {self.table!r}: ranks {self.ranks} must be distinct")
        if self.kind is ShardingKind.TABLE_WISE and len(self.ranks) != 1:
            raise InvalidPlanError(
                f"table {self.table!r}: table_wise needs one rank, got {len(self.ranks)}"
            )
        for name in ("hot_fraction", "cached_fraction"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidPlanError(f"table {self.table!r}: {name} is not between 0 and 1")
        if self.weights is not None and (
            len(self.weights) != len(self.ranks) or abs(sum(self.weights) - 1) > 1e-6
        ):
            raise InvalidPlanError(
                f"table {self.table!r}: weights must be one fraction a rank and sum to 1"
            )
        if self.column_groups < 1 or len(self.ranks) % self.column_groups:
            raise InvalidPlanError(
                f"table {self.table!r}: {len(self.ranks)} ranks are not {self.column_groups} equal "
                "column groups"
            )
        if self.column_groups > 1 and self.kind is not ShardingKind.GRID:
            raise InvalidPlanError(f"table {self.table!r}: only grid_shard has column groups")

    @property
    def shares(self) -> tuple[float, ...]:
        """Fraction of the table's values on each of `ranks`."""
        if self.kind is ShardingKind.DATA_PARALLEL:
            return (1.0,) * len(self.ranks)
        return self.weights or (1 / len(self.ranks),) * len(self.ranks)

    @property
    def column_shares(self) -> tuple[float, ...]:
        """Fraction of the columns on each of `ranks`."""
        if self.kind not in _SPLIT_COLUMNS:
            return (1.0,) * len(self.ranks)
        if self.kind is not ShardingKind.GRID:
            return self.shares
        shares, size = self.shares, len(self.ranks) // self.column_groups
        return tuple(sum(shares[i - i % size : i - i % size + size]) for i in range(len(shares)))

    @property
    def row_shares(self) -> tuple[float, ...]:
        """Fraction of the rows on each of `ranks`."""
        if self.kind not in _SPLIT_ROWS:
            return (1.0,) * len(self.ranks)
        pairs = zip(self.shares, self.column_shares, strict=True)
        return tuple(share / columns if columns else 0.0 for share, columns in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingPlan:
    """One placement for every table; `note` says which rule made it."""

    tables: tuple[TableSharding, ...]
    note: str = ""

    def check(self, tables: Sequence[EmbeddingTable], num_ranks: int) -> None:
        """See that the plan fits a model and a number of ranks.

        Raises
        ------
        InvalidPlanError
            If it names a table the model lacks, leaves one out or names one twice, places on a
            rank that does not exist, or divides rows or columns finer than there are.
        """
        if num_ranks < 1:
            raise InvalidPlanError(f"a plan needs ranks to place tables on, there are {num_ranks}")
        known = {t.name: t for t in tables}
        placed: set[str] = set()
        for entry in self.tables:
            if entry.table not in known:
                raise InvalidPlanError(
                    f"the plan places table {entry.table!r}, which the model does not have; "
                    f"its tables are {_few(known)}"
                )
            if entry.table in placed:
                raise InvalidPlanError(f"the plan places table {entry.table!r} twice")
            placed.add(entry.table)
            _check_entry(entry, known[entry.table], num_ranks)
        missing = [name for name in known if name not in placed]
        if missing:
            raise InvalidPlanError(f"the plan does not place table(s) {_few(missing)}")


def _check_entry(entry: TableSharding, table: EmbeddingTable, num_ranks: int) -> None:
    bad = [r for r in entry.ranks if not 0 <= r < num_ranks]
    if bad:
        raise InvalidPlanError(
            f"table {entry.table!r} is placed on rank {bad[0]}; ranks are 0 to {num_ranks - 1}"
        )
    if entry.kind is ShardingKind.DATA_PARALLEL and len(entry.ranks) != num_ranks:
        raise InvalidPlanError(
            f"table {entry.table!r} is data_parallel on {len(entry.ranks)} of {num_ranks} ranks; "
            "it needs all of them"
        )
    groups = entry.column_groups if entry.kind is ShardingKind.GRID else len(entry.ranks)
    if entry.kind in _SPLIT_COLUMNS and groups > table.dim:
        raise InvalidPlanError(
            f"table {entry.table!r} has {table.dim} columns for {groups} ranks; use fewer"
        )


def _few(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:5]) + (f" and {len(every) - 5} more" if len(every) > 5 else "")
