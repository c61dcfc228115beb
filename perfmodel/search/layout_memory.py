"""Peak memory of all layouts of one shape at once; the same bytes as `perfmodel.memory`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.memory.activations import Rules, Saved, saved_by_block
from perfmodel.memory.overheads import ALLOCATOR_SHARE, communicator_bytes, framework_bytes
from perfmodel.memory.stages import Stage, parameters_of, split_into_stages
from perfmodel.memory.states import model_state
from perfmodel.plan.records import Recompute
from perfmodel.run import Run
from perfmodel.search.layout_space import RECOMPUTES, SHARDS, Shape, layout_plan

Array = NDArray[np.float64]


class LayoutMemory:
    """Peak bytes over (sequence_parallel, micro_batch, vp, recompute, shard)."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.blocks = run.workload.model.blocks()
        self._saved: dict[tuple[int, int, bool], dict[int, Saved]] = {}
        self._stages: dict[int, tuple[Stage, ...]] = {}

    def peaks(
        self,
        shape: Shape,
        sequence: Sequence[bool],
        micro: Array,
        chunks: Array,
        shards: Sequence[int],
    ) -> Array:
        """Bytes of the fullest stage, shape (sequence, micro, chunks, recompute, shards)."""
        if shape.pp not in self._stages:
            self._stages[shape.pp] = split_into_stages(self.blocks, shape.pp)
        peak: Array = np.zeros((len(sequence), len(micro), len(chunks), 3, len(shards)))
        seen: set[object] = set()
        for stage in self._stages[shape.pp]:
            # Behind the second stage equal ones hold ever fewer micro-batches.
            key = tuple((id(b), n) for b, n in stage.parts)
            if key in seen and stage.index > 0:
                continue
            seen.add(key)
            peak = np.maximum(peak, self._stage(stage, shape, sequence, micro, chunks, shards))
        fixed = framework_bytes(self.run.cluster, self.run.stack)
        plan = layout_plan(self.run, shape)
        return peak + fixed + communicator_bytes(plan, self.run.cluster, self.run.stack)

    def _saved_by(self, shape: Shape, sequence: bool) -> dict[int, Saved]:
        key = (shape.tp, shape.cp, sequence)
        if key not in self._saved:
            plan = layout_plan(self.run, shape, sequence_parallel=sequence)
            rules = Rules.of(self.run.workload.precision, plan, self.run.stack)
            self._saved[key] = {id(b): saved_by_block(b, rules) for b in self.blocks}
        return self._saved[key]

    def _stage(
        self,
        stage: Stage,
        shape: Shape,
        sequence: Sequence[bool],
        micro: Array,
        chunks: Array,
        shards: Sequence[int],
    ) -> Array:
        flight = self._in_flight(stage, shape, micro, chunks)  # (micro, chunks)
        activations = np.empty((len(sequence), len(micro), len(chunks), 3))
        losses = np.empty((len(sequence), len(micro)))
        for i, divided in enumerate(sequence):
            saved = self._saved_by(shape, divided)
            boundary = next((s.boundary for s in saved.values()), 0.0)
            messages = 2 * boundary if shape.pp > 1 else 0.0
            losses[i] = max(saved[id(b)].logits for b, _ in stage.parts) * micro
            for r, mode in enumerate(RECOMPUTES):
                held, transient = _kept(stage, saved, mode)
                per_sample = held * flight + transient + messages
                activations[i, :, :, r] = micro[:, None] * per_sample
        return self._with_state(stage, shape, shards, activations, losses)

    def _with_state(
        self, stage: Stage, shape: Shape, shards: Sequence[int], activations: Array, losses: Array
    ) -> Array:
        tensors = activations + losses[:, :, None, None]
        parts = []
        for index in shards:
            plan = layout_plan(self.run, shape, shard=SHARDS[index])
            parameters = parameters_of(stage, plan, shape.pp)
            state = model_state(parameters, self.run.workload, plan, self.run.stack)
            kept = state.parameters + state.gradients + state.optimizer + state.buffers
            parts.append(kept + np.maximum(tensors, state.update))
        return (1 + ALLOCATOR_SHARE) * np.stack(parts, axis=-1)

    def _in_flight(self, stage: Stage, shape: Shape, micro: Array, chunks: Array) -> Array:
        """Micro-batches that a stage holds; see `perfmodel.memory.estimate`."""
        count = self.run.workload.global_batch / (shape.dp * micro)[:, None]
        behind = shape.pp - stage.index - 1
        if shape.pp == 1:
            return np.ones((len(micro), len(chunks)))
        interleaved = (2 * behind + (chunks - 1) * shape.pp + 1) / chunks
        return np.minimum(np.where(chunks > 1, interleaved, behind + 1)[None, :], count)


def _kept(stage: Stage, saved: dict[int, Saved], mode: Recompute) -> tuple[float, float]:
    """Bytes per sample kept to backward, and alive only during it."""
    held = transient = 0.0
    for block, repeats in stage.parts:
        mine = saved[id(block)]
        own = mode if block.is_layer else Recompute.NONE
        held += mine.held(own) * repeats
        transient = max(transient, mine.transient(own))
    return held, transient
