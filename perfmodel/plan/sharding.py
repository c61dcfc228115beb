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
    HYBRID = "hybrid"  # frequent rows on every rank, the others divided among ranks


class EmbeddingKernel(StrEnum):
    """Where rows are read from."""

    FUSED = "fused"  # GPU memory
    UVM = "uvm"  # host memory, over PCIe
    UVM_CACHING = "uvm_caching"  # host memory behind a cache in GPU memory


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSharding:
    """Placement of one table.

    `ranks` are distinct global ranks: one for table-wise, all that hold a share otherwise. Shares
    are equal unless `weights` gives them (fractions of rows or columns, one for each rank).
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

    @property
    def shares(self) -> tuple[float, ...]:
        """Fraction of rows or columns on each of `ranks`."""
        if self.kind is ShardingKind.DATA_PARALLEL:
            return (1.0,) * len(self.ranks)
        return self.weights or (1 / len(self.ranks),) * len(self.ranks)


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
    if entry.kind is ShardingKind.COLUMN_WISE and len(entry.ranks) > table.dim:
        raise InvalidPlanError(
            f"table {entry.table!r} has {table.dim} columns for {len(entry.ranks)} ranks; use fewer"
        )


def _few(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:5]) + (f" and {len(every) - 5} more" if len(every) > 5 else "")
