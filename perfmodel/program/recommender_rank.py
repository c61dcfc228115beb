"""The ordered tasks of one rank of a recommender."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.plan.stack import Stack
from perfmodel.program.builder import TaskList
from perfmodel.program.recommender_comm import Communication, Step, dense_parameters
from perfmodel.program.recommender_settings import RecommenderSettings
from perfmodel.program.recommender_work import DenseWork, EmbeddingWork, amount
from perfmodel.program.records import Task
from perfmodel.program.work import Cause, Copy, Fixed, Memory, Pass, Work
from perfmodel.workload.recommender import RecommenderModel
from perfmodel.workload.records import Workload

# Operators that a framework issues: a layer forward (product with bias, activation) and backward
# (activation, two products, bias sum), an optimiser or cast over all parameters.
_OPS_FORWARD, _OPS_BACKWARD = 2.0, 4.0
# Of the operators that a feature needs, those of the lookup; gradients and update need the others.
_LOOKUP_FORWARD_OPS = 1 / 3


# Fused optimisers, fp32: value and gradient read, value written, and their states read and written
# (momentum and Adagrad one, Adam two, LAMB four passes more).
_FUSED_BYTES = (("lamb", 52.0), ("adam", 28.0), ("adagrad", 20.0), ("momentum", 20.0))
_SGD_BYTES = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBuilder:
    """Builds the task list of one rank; `loads` are its columns, one value a scenario."""

    rank: int
    model: RecommenderModel
    loads: dict[str, NDArray[np.float64]]
    workload: Workload
    settings: RecommenderSettings
    stack: Stack
    communication: Communication

    def build(self) -> tuple[Task, ...]:
        """Tasks in issue order: input, forward, backward, update, host work of the step."""
        tasks = TaskList(op_s=self.stack.host_op_s)
        ready = self._input(tasks)
        if self.settings.captures_graph:
            tasks.thread = None  # the launch of the graph is part of the host time of the step
        lookups = self._lookup(tasks, ready)
        vectors, bottom = self._exchange_forward(tasks, lookups)
        tasks.kernels(
            "interaction forward",
            self._dense.interaction(self.local_batch, Pass.FORWARD),
            waits=(*vectors, *bottom),
        )
        self._top(tasks)
        last = self._backward_embeddings(tasks)
        tasks.thread = "forward"
        seconds = self.stack.host_step_s
        if seconds > 0:
            step = tasks.host("step", Fixed(seconds=seconds, cause=Cause.HOST_STEP), waits=last)
            # The next iteration's first kernel waits for it, even where a graph issues kernels.
            first = tasks.tasks[lookups]
            waits = (*first.waits_previous, step)
            tasks.tasks[lookups] = replace(first, waits_previous=waits)
        return tuple(tasks.tasks)

    # Sizes

    @property
    def num_ranks(self) -> int:
        """Ranks of the job."""
        return self.communication.num_ranks

    @property
    def local_batch(self) -> float:
        """Samples of this rank's MLPs."""
        return self.workload.global_batch / self.num_ranks

    @property
    def _keeps_bottom_apart(self) -> bool:
        return self.settings.keeps_bottom_on_first_rank and self.num_ranks > 1

    @property
    def _bottom_batch(self) -> float:
        if not self._keeps_bottom_apart:
            return self.local_batch
        return self.workload.global_batch if self.rank == 0 else 0.0

    @property
    def _dense(self) -> DenseWork:
        return DenseWork(
            model=self.model, precision=self.workload.precision, settings=self.settings
        )

    @property
    def _embedding(self) -> EmbeddingWork:
        return EmbeddingWork(
            loads=self.loads,
            precision=self.workload.precision,
            settings=self.settings,
            optimizer=row_optimizer(self.workload.optimizer, self.settings),
            writes_compute_dtype=self.num_ranks == 1 or not self.settings.casts_under_amp,
        )

    # Input

    def _input(self, tasks: TaskList) -> tuple[int, ...]:
        """Reading and copying of the next batch, beside this one."""
        rate = self.stack.input_samples_per_s_per_node
        waits: list[int] = []
        if rate:
            samples = self.local_batch * self.communication.ranks_per_node
            work = Fixed(seconds=samples / rate, cause=Cause.INPUT)
            waits.append(tasks.host("read batch", work, lane="loader"))
        if self.settings.copies_input:
            # Dense features and ids; ids of sharded tables come for the global batch.
            per_sample = 4.0 * self.model.num_dense
            ids = self.loads["lookups"] + self.loads["local_lookups"]
            if self.settings.exchanges_ids:
                ids = np.full_like(ids, self.local_batch * self.model.lookups)
            size = amount(self.local_batch * per_sample + ids * self.settings.id_bytes)
            copy = Copy(num_bytes=size, cause=Cause.INPUT)
            thread = "loader" if rate else None
            waits.append(tasks.kernels("copy batch", [copy], lane="copy", thread=thread))
        return tuple(waits)

    # Forward

    def _lookup(self, tasks: TaskList, ready: tuple[int, ...]) -> int:
        """Ids to their tables' ranks and the lookup itself; input was prefetched."""
        waits = self._steps(tasks, self.communication.ids, Pass.FORWARD, ())
        works: list[Work] = list(self._embedding.forward())
        if self.settings.has_casts(self.workload.precision):
            works += self._dense_casts()
        return tasks.kernels(
            "lookup forward",
            works,
            num_ops=self._embedding_ops(_LOOKUP_FORWARD_OPS),
            waits=waits,
            waits_previous=ready,
        )

    def _dense_casts(self) -> list[Work]:
        return [
            Memory(
                num_bytes=self._bottom_batch * self.model.num_dense * 6.0,
                op="cast",
            )
        ]

    def _embedding_ops(self, share: float) -> float:
        s = self.settings
        return max(
            1.0, share * (s.embedding_host_ops + s.feature_host_ops * self.model.num_features)
        )

    def _exchange_forward(
        self, tasks: TaskList, lookups: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Vectors to the ranks of their samples, and the bottom MLP beside or before that."""
        steps = self.communication.vectors
        if self.settings.overlaps_exchange and not self._keeps_bottom_apart:
            vectors = self._steps(tasks, steps, Pass.FORWARD, (lookups,))
            bottom = self._bottom_forward(tasks)
        else:
            bottom = self._bottom_forward(tasks)
            vectors = self._steps(tasks, steps, Pass.FORWARD, (lookups, *bottom))
        return vectors, bottom

    def _bottom_forward(self, tasks: TaskList) -> tuple[int, ...]:
        layers = self.model.bottom_layers()
        if not layers or not self._bottom_batch:
            return ()
        works = self._dense.mlp_forward(layers, self._bottom_batch)
        return (tasks.kernels("bottom MLP forward", works, num_ops=_OPS_FORWARD * len(layers)),)

    def _top(self, tasks: TaskList) -> None:
        layers = self.model.top_layers()
        forward = self._dense.mlp_forward(layers, self.local_batch)
        tasks.kernels("top MLP forward", forward, num_ops=_OPS_FORWARD * len(layers) + 3)
        backward = self._dense.mlp_backward(layers, self.local_batch)
        tasks.kernels(
            "top MLP backward",
            backward,
            num_ops=_OPS_BACKWARD * len(layers) + 3,
            phase=Pass.BACKWARD,
        )

    # Backward

    def _backward_embeddings(self, tasks: TaskList) -> tuple[int, ...]:
        """From the interaction's gradient to the updates; returns the tasks that end the step."""
        overlaps = self.stack.overlaps_gradients
        early, late = self.communication.dense_early, self.communication.dense_late
        top = max(i for i, task in enumerate(tasks.tasks) if task.lane == "compute")
        if self._keeps_bottom_apart:
            early, late = (*early, *late), ()
        dense = self._reduce(tasks, early, top) if overlaps else ()
        inner = tasks.kernels(
            "interaction backward",
            self._dense.interaction(self.local_batch, Pass.BACKWARD),
            phase=Pass.BACKWARD,
        )
        steps = self.communication.gradients
        vectors = self._steps(tasks, steps, Pass.BACKWARD, (inner,))
        bottom = self._bottom_backward(tasks, () if self._overlaps else vectors)
        if overlaps:
            dense += self._reduce(tasks, late, max((inner, *bottom)))
        rows = tasks.kernels(
            "lookup backward",
            self._embedding.backward(),
            num_ops=self._embedding_ops(1 - _LOOKUP_FORWARD_OPS),
            waits=vectors,
            phase=Pass.BACKWARD,
        )
        remaining = self.communication.copied_rows
        if not overlaps:
            remaining = (*early, *late, *remaining)
        dense += self._reduce(tasks, remaining, rows)
        return (self._update(tasks, dense),)

    @property
    def _overlaps(self) -> bool:
        return self.settings.overlaps_exchange and not self._keeps_bottom_apart

    def _bottom_backward(self, tasks: TaskList, waits: tuple[int, ...]) -> tuple[int, ...]:
        layers = self.model.bottom_layers()
        if not layers or not self._bottom_batch:
            return ()
        return (
            tasks.kernels(
                "bottom MLP backward",
                self._dense.mlp_backward(layers, self._bottom_batch),
                num_ops=_OPS_BACKWARD * len(layers),
                waits=waits,
                phase=Pass.BACKWARD,
            ),
        )

    def _reduce(self, tasks: TaskList, steps: tuple[Step, ...], after: int) -> tuple[int, ...]:
        lane = "reduce" if self.settings.has_own_exchange_lane else "comm"
        return self._steps(tasks, steps, Pass.BACKWARD, (after,), lane=lane)

    def _update(self, tasks: TaskList, waits: tuple[int, ...]) -> int:
        """Optimiser of everything that is copied on all ranks."""
        dense = dense_parameters(self.model, with_bottom=self._bottom_batch > 0)
        parameters = amount(self.loads["dense_elements"] + dense)
        traffic = self.settings.dense_bytes_per_parameter or dense_traffic(self.workload.optimizer)
        works = self._dense.update(parameters, traffic)
        return tasks.kernels("update", works, waits=waits, phase=Pass.OPTIMIZER)

    def _steps(
        self,
        tasks: TaskList,
        steps: tuple[Step, ...],
        phase: Pass,
        waits: tuple[int, ...],
        lane: str = "comm",
    ) -> tuple[int, ...]:
        """Collectives one after the other; returns the last one's index."""
        last = waits
        for step in steps:
            index = tasks.collective(
                step.name,
                step.work,
                step.group,
                count=step.count,
                lane=lane,
                waits=last,
                phase=phase,
            )
            last = (index,)
        return last if steps else ()


def dense_traffic(optimizer: str) -> float:
    """Bytes per fp32 parameter that a fused kernel of this optimiser moves."""
    text = optimizer.lower()
    return next((size for word, size in _FUSED_BYTES if word in text), _SGD_BYTES)


def row_optimizer(optimizer: str, settings: RecommenderSettings) -> str:
    """Optimiser of the rows, in the words of `EmbeddingLookup`."""
    text = optimizer.lower()
    if "adagrad" in text:
        return "rowwise_adagrad" if "row" in text else "adagrad"
    if "adam" in text or "lamb" in text:
        return "adam"
    return "exact_sgd" if settings.updates_sorted else "sgd"
