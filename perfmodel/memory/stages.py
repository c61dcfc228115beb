"""Which layers and how many parameters a pipeline stage holds on one of its ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perfmodel.plan.records import Plan
from perfmodel.workload.records import Block, Experts, Linear, Pointwise, Split, TokenEmbedding


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """`parts` are (block, repeats) in forward order; `index` counts stages from the input."""

    index: int
    parts: tuple[tuple[Block, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameters on one rank: trained dense ones, those of experts, and frozen ones."""

    dense: float = 0.0
    experts: float = 0.0
    frozen: float = 0.0
    largest_unit: float = 0.0  # of one layer: what FSDP gathers at a time

    @property
    def trained(self) -> float:
        """Parameters that have a gradient."""
        return self.dense + self.experts

    @property
    def all(self) -> float:
        """Every parameter."""
        return self.trained + self.frozen


def split_into_stages(blocks: tuple[Block, ...], num_stages: int) -> tuple[Stage, ...]:
    """Deal layers to pipeline stages in order.

    An even deal where the layers divide; otherwise the input and the output side count as one
    layer each, the balance that frameworks with an uneven split are set to.
    """
    layers = [b for b in blocks if b.is_layer for _ in range(b.repeat)]
    firsts = [i for i, b in enumerate(blocks) if b.is_layer]
    start = firsts[0] if firsts else len(blocks)
    head = [(b, b.repeat) for b in blocks[:start]]
    tail = [(b, b.repeat) for b in blocks[start:] if not b.is_layer]
    counts = _layer_counts(len(layers), num_stages)
    stages, taken = [], 0
    for index, count in enumerate(counts):
        parts = _merge(layers[taken : taken + count])
        taken += count
        if index == 0:
            parts = head + parts
        if index == num_stages - 1:
            parts = parts + tail
        stages.append(Stage(index=index, parts=tuple(parts)))
    return tuple(stages)


def _layer_counts(num_layers: int, num_stages: int) -> list[int]:
    whole, rest = divmod(num_layers, num_stages)
    if rest == 0 or num_stages == 1:
        return [whole + (rest if i == 0 else 0) for i in range(num_stages)]
    load = [whole] * num_stages
    weight = [float(n) for n in load]
    weight[0] += 1
    weight[-1] += 1
    for _ in range(rest):
        emptiest = min(range(num_stages), key=lambda i: (weight[i], i))
        load[emptiest] += 1
        weight[emptiest] += 1
    return load


def _merge(layers: Iterable[Block]) -> list[tuple[Block, int]]:
    parts: list[tuple[Block, int]] = []
    for layer in layers:
        if parts and parts[-1][0] is layer:
            parts[-1] = (layer, parts[-1][1] + 1)
        else:
            parts.append((layer, 1))
    return parts


def parameters_of(stage: Stage, plan: Plan, num_stages: int) -> Parameters:
    """Parameters that one rank of `stage` holds before anything is sharded over data parallel."""
    dense = experts = frozen = unit = 0.0
    for block, repeats in stage.parts:
        mine = _block_parameters(block, plan)
        dense += mine.dense * repeats
        experts += mine.experts * repeats
        frozen += mine.frozen * repeats
        if block.is_layer:
            unit = max(unit, mine.all)
    if num_stages > 1 and stage.index == 0:
        # A tied vocabulary is counted with the logits; the first stage holds a second copy.
        tied = sum(
            o.vocab * o.dim / plan.tp
            for block, _ in stage.parts
            for o in block.operators
            if isinstance(o, TokenEmbedding) and o.is_tied
        )
        dense += tied
    return Parameters(dense=dense, experts=experts, frozen=frozen, largest_unit=unit)


def _block_parameters(block: Block, plan: Plan) -> Parameters:
    dense = experts = frozen = 0.0
    has_frozen = any(isinstance(o, Linear) and not o.is_trainable for o in block.operators)
    for operator in block.operators:
        if isinstance(operator, Experts):
            experts += operator.num_parameters / (plan.ep * plan.tp)
        elif isinstance(operator, Linear):
            divisor = 1 if operator.split is Split.NONE else plan.tp
            if operator.is_trainable:
                dense += operator.num_parameters / divisor
            else:
                frozen += operator.num_parameters / divisor
        elif isinstance(operator, Pointwise) and has_frozen:
            frozen += operator.num_parameters  # adapters leave the norms alone
        else:
            divisor = plan.tp if isinstance(operator, TokenEmbedding) else 1
            dense += getattr(operator, "num_parameters", 0) / divisor
    return Parameters(dense=dense, experts=experts, frozen=frozen, largest_unit=0.0)
