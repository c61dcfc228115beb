"""What one shard of a table adds to a rank's iteration: the additive rating of a plan search.

Lookups are priced by the kernel model at several times their amount, so that only what grows with
the tables counts; exchanges by the slope of the collective model around the size that an even plan
has. Overlap, waiting and launch costs are left to the simulator, which sees the best plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.execution import ExecutionBundle
from perfmodel.cost.parameters import parameter_names
from perfmodel.cost.protocol import CostModel
from perfmodel.errors import RefusedError
from perfmodel.hardware.records import GroupShape
from perfmodel.memory.tables import shard_bytes
from perfmodel.plan.plan_limits import COLUMN_MULTIPLE
from perfmodel.plan.sharding import ShardingKind, ShardingPlan, TableSharding
from perfmodel.program.recommender_loads import rank_loads
from perfmodel.program.recommender_rank import dense_traffic, row_optimizer
from perfmodel.program.recommender_settings import RecommenderSettings
from perfmodel.program.recommender_work import EmbeddingWork
from perfmodel.program.work import Cause, Collective, CollectiveKind, OptimizerStep, Work
from perfmodel.run import Run
from perfmodel.search.makespan import Option
from perfmodel.workload.recommender import EmbeddingTable, RecommenderModel

Array = NDArray[np.float64]

_SMALLEST_WIDTH = 16  # columns; narrower shards waste most of every memory transaction
_MANY = 8.0  # tables that share a launch when the marginal cost of one is taken
_STEP = 1.5  # size ratio over which the slope of a collective is taken
_BATCH = 1000  # options priced at once
# Copies larger than this are never the best: their gradients cross the network every iteration.
_LARGEST_COPY_BYTES = 1e9


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to cut a table, on the first ranks."""

    table: int
    sharding: TableSharding


def candidates(table: EmbeddingTable, index: int, num_ranks: int) -> list[Candidate]:
    """Whole, columns, rows on all ranks, copies."""
    ways: list[tuple[ShardingKind, int]] = [(ShardingKind.TABLE_WISE, 1)]
    count = 2
    while count <= num_ranks and table.dim // count >= _SMALLEST_WIDTH:
        if table.dim % (count * COLUMN_MULTIPLE) == 0:
            ways.append((ShardingKind.COLUMN_WISE, count))
        count *= 2
    if 1 < num_ranks <= table.rows:
        ways.append((ShardingKind.ROW_WISE, num_ranks))
    if num_ranks > 1 and 4.0 * table.num_parameters <= _LARGEST_COPY_BYTES:
        ways.append((ShardingKind.DATA_PARALLEL, num_ranks))
    return [
        Candidate(index, TableSharding(table=table.name, kind=k, ranks=tuple(range(n))))
        for k, n in ways
    ]


class EmbeddingCosts:
    """Prices candidates of one run."""

    def __init__(
        self,
        run: Run,
        model: RecommenderModel,
        models: Sequence[CostModel],
        bundle: ExecutionBundle,
    ) -> None:
        self.run = run
        self.model = model
        self.models = models
        self.bundle = bundle
        self.settings = RecommenderSettings.of(run.stack)
        self.precision = self.settings.effective_precision(run.workload.precision, run.cluster.gpu)
        self.num_ranks = run.plan.num_gpus

    def options(self, found: Sequence[Candidate]) -> list[Option]:
        """Cost (s) and size (bytes) of each candidate's shards; equal tables are priced once."""
        tables = self.model.tables
        keys = [
            (t.rows, t.dim, t.pooling, c.sharding.kind, len(c.sharding.ranks))
            for c in found
            for t in (tables[c.table],)
        ]
        first = {key: i for i, key in reversed(list(enumerate(keys)))}
        distinct = sorted(first.values())
        costs = np.concatenate(
            [
                self._costs([found[i] for i in distinct[s : s + _BATCH]])
                for s in range(0, len(distinct), _BATCH)
            ]
        )
        place = {keys[i]: n for n, i in enumerate(distinct)}
        workload = self.run.workload
        return [
            Option(
                count=len(c.sharding.ranks),
                cost=float(costs[place[key]]),
                size=sum(shard_bytes(tables[c.table], c.sharding, workload).values()),
                everywhere=c.sharding.kind in (ShardingKind.ROW_WISE, ShardingKind.DATA_PARALLEL),
            )
            for c, key in zip(found, keys, strict=True)
        ]

    def _costs(self, found: Sequence[Candidate]) -> Array:
        """Seconds that one shard of each candidate adds to its rank."""
        run = self.run
        plans = [ShardingPlan(tables=(c.sharding,)) for c in found]
        columns = rank_loads(
            self.model, plans, self.num_ranks,
            global_batch=run.workload.global_batch, l2_bytes=run.cluster.gpu.l2_bytes,
        ).select(0)  # fmt: skip
        many = self._lookups({k: v * _MANY for k, v in columns.items()})
        seconds = (many - self._lookups(columns)) / (_MANY - 1)
        if self.num_ranks == 1:
            return seconds
        vector = self.settings.exchange_dtype(self.precision).num_bytes
        gradient = (run.stack.gradient_dtype or self.precision.master).num_bytes
        exchange = 2 * self._slope(CollectiveKind.ALL_TO_ALL)
        reduce = self._slope(CollectiveKind.REDUCE_SCATTER) + self._slope(CollectiveKind.ALL_GATHER)
        copies = gradient * self._slope(CollectiveKind.ALL_REDUCE) + self._update_slope()
        return (
            seconds
            + columns["exchange_elements"] * vector * exchange
            + columns["reduce_elements"] * vector * reduce
            + columns["dense_elements"] * copies
        )

    def _lookups(self, columns: dict[str, Array]) -> Array:
        work = EmbeddingWork(
            loads=columns,
            precision=self.precision,
            settings=self.settings,
            optimizer=row_optimizer(self.run.workload.optimizer, self.settings),
            writes_compute_dtype=self.num_ranks == 1 or not self.settings.casts_under_amp,
        )
        total = np.zeros(len(columns["lookups"]))
        for one in (*work.forward(), *work.backward()):
            # A candidate without such work (a copy has no sharded lookups) costs nothing there.
            total = total + np.nan_to_num(self._seconds(one))
        return total

    def _seconds(self, work: Work) -> Array:
        run = self.run
        for model in self.models:
            if model.handles(work):
                seconds = model.estimate([work], run.cluster).seconds[0]
                names = parameter_names(work, run.cluster, run.stack)
                scaled: Array = seconds * self.bundle.parameters.multiplier(names)
                return scaled
        raise RefusedError(f"no cost model prices {type(work).__name__}")

    def _slope(self, kind: CollectiveKind) -> float:
        """Seconds of one more byte of a collective among all ranks, around an even plan's size."""
        workload, cluster = self.run.workload, self.run.cluster
        dtype = self.settings.exchange_dtype(self.precision)
        size = workload.global_batch * self.model.embedding_width * dtype.num_bytes / self.num_ranks
        per_node = min(cluster.gpus_per_node, self.num_ranks)
        group = GroupShape(ranks_per_node=per_node, num_nodes=self.num_ranks // per_node)
        work = Collective(
            kind=kind, num_bytes=size, group=group, dtype=dtype, cause=Cause.EMBEDDING_COMM
        )
        more = replace(work, num_bytes=size * _STEP)
        rise = float(self._seconds(more)[0] - self._seconds(work)[0])
        return max(rise, 0.0) / (size * (_STEP - 1))

    def _update_slope(self) -> float:
        """Seconds to update one more dense value."""
        traffic = self.settings.dense_bytes_per_parameter or dense_traffic(
            self.run.workload.optimizer
        )
        count = 1e8
        work = OptimizerStep(parameters=count, bytes_per_parameter=traffic)
        return float(self._seconds(work)[0]) / count
