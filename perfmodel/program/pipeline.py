"""Pipeline parallelism: one rank class a stage, point-to-point transfers between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perfmodel.plan.records import Plan
from perfmodel.plan.stack import Stack
from perfmodel.program.builder import TaskList
from perfmodel.program.chunks import Chunk, ChunkBuilder, split_layers
from perfmodel.program.data_parallel import DataParallel
from perfmodel.program.groups import Groups
from perfmodel.program.operators import Stretch
from perfmodel.program.records import RankClass
from perfmodel.program.schedules import Slot, stage_order
from perfmodel.program.work import Cause, Collective, CollectiveKind, Pass
from perfmodel.workload.records import Block, Workload
from perfmodel.workload.transformer import TransformerModel


@dataclass(slots=True)
class _StageState:
    """Tasks of a stage while they are appended."""

    tasks: TaskList
    computed: list[int] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)  # transfers the next compute waits for


class PipelineLowering:
    """Builds the rank classes of a pipelined transformer."""

    def __init__(
        self,
        workload: Workload,
        plan: Plan,
        stack: Stack,
        groups: Groups,
        builder: ChunkBuilder,
        dp: DataParallel,
    ) -> None:
        self.workload = workload
        self.plan = plan
        self.stack = stack
        self.groups = groups
        self.builder = builder
        self.dp = dp
        self.count = plan.num_micro_batches(workload.global_batch)
        # interleaving needs micro-batches in multiples of the stages; else chunks run in a row
        interleaves = plan.vp > 1 and self.count % plan.pp == 0
        self.num_chunks = plan.vp if interleaves else 1
        self.links: dict[str, NDArray[np.int64]] = {}

    def lower(
        self, model: TransformerModel
    ) -> tuple[tuple[RankClass, ...], dict[str, NDArray[np.int64]]]:
        """Rank classes, one a stage, and the communicators they use."""
        chunks = self._chunks(model)
        transfer = self.transfer(model)
        classes = []
        for stage in range(self.plan.pp):
            mine = [chunks[c * self.plan.pp + stage] for c in range(self.num_chunks)]
            tasks = self._stage(stage, mine, transfer)
            classes.append(
                RankClass(
                    name=f"stage {stage}",
                    ranks=self.groups.stage_ranks(stage),
                    tasks=tuple(tasks.tasks),
                )
            )
        return tuple(classes), {**self.dp.communicators(), **self.links}

    def _chunks(self, model: TransformerModel) -> list[Chunk]:
        parts = split_layers(model.layer_kinds(), self.plan.pp * self.num_chunks)
        ends = [b for b in model.blocks() if not b.is_layer]
        pieces: list[list[Block]] = [list(part) for part in parts]
        pieces[0] = [ends[0], *pieces[0]]
        pieces[-1] = [*pieces[-1], *ends[1:]]
        return [self.builder.build(piece) for piece in pieces]

    def transfer(self, model: TransformerModel) -> Collective:
        """What one stage sends to the next for a micro-batch."""
        precision = self.workload.precision
        rows = model.seq * self.plan.micro_batch * self.workload.filled_fraction / self.plan.cp
        num_bytes = rows * model.hidden * precision.activation.num_bytes
        if self.plan.sequence_parallel or (self.stack.scatters_p2p and self.plan.tp > 1):
            num_bytes /= self.plan.tp
        return Collective(
            kind=CollectiveKind.SEND_RECV,
            num_bytes=num_bytes,
            group=self.groups.neighbour_shape(),
            dtype=precision.activation,
            cause=Cause.PP_COMM,
        )

    def _stage(self, stage: int, chunks: list[Chunk], transfer: Collective) -> TaskList:
        tasks = TaskList(op_s=self.stack.host_op_s)
        state = _StageState(tasks)
        schedule = self.plan.schedule
        order = stage_order(schedule, stage, self.plan.pp, self.count, self.num_chunks)
        # all but the last backward have run when overlapped reductions may start
        overlapped = self.dp.overlap_fraction if len(order) > 1 else 0.0
        for slot in order[:-1]:
            self._slot(state, stage, slot, chunks[slot.chunk], transfer)
        early: list[int] = []
        if overlapped:
            early = self.dp.reduce(tasks, chunks, state.computed[-1], share=overlapped)
        self._slot(state, stage, order[-1], chunks[order[-1].chunk], transfer)
        ends = self.dp.reduce(tasks, chunks, state.computed[-1], share=1 - overlapped)
        ends.extend(early)
        self.dp.update(tasks, chunks, [state.computed[-1], *ends])
        return tasks

    def _slot(
        self, state: _StageState, stage: int, slot: Slot, chunk: Chunk, transfer: Collective
    ) -> None:
        tasks = state.tasks
        waits = list(state.sent)
        source = self._neighbour(stage, slot, incoming=True)
        if source is not None:
            waits.append(self._move(tasks, slot, source, transfer, "recv", ()))
        stretch = chunk.forward if slot.direction is Pass.FORWARD else chunk.backward
        ring = chunk.context.scaled(1 / 3 if slot.direction is Pass.FORWARD else 2 / 3)
        beside = add_context(tasks, ring, waits)
        computed = tasks.kernels(
            f"{slot.direction}_m{slot.micro_batch}_c{slot.chunk}",
            stretch.items,
            num_ops=stretch.num_ops,
            waits=waits,
            phase=slot.direction,
        )
        state.computed.append(computed)
        state.sent = beside
        target = self._neighbour(stage, slot, incoming=False)
        if target is not None:
            sent = self._move(tasks, slot, target, transfer, "send", (computed,))
            if not self.stack.overlaps_p2p:
                state.sent = [*beside, sent]

    def _neighbour(self, stage: int, slot: Slot, *, incoming: bool) -> tuple[int, int] | None:
        """(from, to) stages of the transfer before or after a slot; None at the ends."""
        step = 1 if slot.direction is Pass.FORWARD else -1
        position = slot.chunk * self.plan.pp + stage
        other = position - step if incoming else position + step
        if not 0 <= other < self.plan.pp * self.num_chunks:
            return None
        there = other % self.plan.pp
        return (there, stage) if incoming else (stage, there)

    def _move(
        self,
        tasks: TaskList,
        slot: Slot,
        ends: tuple[int, int],
        transfer: Collective,
        side: str,
        waits: tuple[int, ...],
    ) -> int:
        kind = f"{slot.direction}:{ends[0]}-{ends[1]}"
        if kind not in self.links:
            self.links[kind] = self.groups.between_stages(*ends)
        return tasks.collective(
            f"{side}_{slot.direction}_m{slot.micro_batch}_c{slot.chunk}",
            transfer,
            kind,
            lane=f"p2p_{side}_{slot.direction}",
            waits=waits,
            phase=slot.direction,
        )


def add_context(tasks: TaskList, exchange: Stretch, waits: Sequence[int]) -> list[int]:
    """Ring exchange of keys and values beside attention, on its own stream; [] without one."""
    if not exchange.items:
        return []
    return [
        tasks.kernels(
            "context_ring", exchange.items, num_ops=exchange.num_ops, lane="cp", waits=waits
        )
    ]
