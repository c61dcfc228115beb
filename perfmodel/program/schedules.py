"""Pipeline schedules: the order in which one stage runs its micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.plan.records import Schedule
from perfmodel.program.work import Pass


@dataclass(frozen=True, slots=True)
class Slot:
    """One forward or backward of a micro-batch through a model chunk of the stage."""

    direction: Pass
    micro_batch: int
    chunk: int = 0


def stage_order(
    schedule: Schedule, stage: int, num_stages: int, num_micro_batches: int, num_chunks: int = 1
) -> list[Slot]:
    """Slots of `stage` in issue order.

    GPipe runs all forwards, then all backwards. 1F1B keeps at most `num_stages - stage`
    micro-batches in flight. Interleaved 1F1B (Narayanan et al., arXiv:2104.04473, section 2.2)
    gives every stage `num_chunks` chunks and needs micro-batches in multiples of `num_stages`;
    otherwise the plain order runs the chunks one after the other.
    """
    if schedule is Schedule.GPIPE:
        return _gpipe(num_micro_batches, num_chunks)
    if num_chunks > 1 and num_micro_batches % num_stages == 0:
        return _interleaved(stage, num_stages, num_micro_batches, num_chunks)
    return _one_f_one_b(num_stages - stage - 1, num_micro_batches)


def _gpipe(num_micro_batches: int, num_chunks: int) -> list[Slot]:
    forward = [
        Slot(Pass.FORWARD, m, c) for c in range(num_chunks) for m in range(num_micro_batches)
    ]
    backward = [
        Slot(Pass.BACKWARD, m, c)
        for c in reversed(range(num_chunks))
        for m in range(num_micro_batches)
    ]
    return forward + backward


def _one_f_one_b(ahead: int, num_micro_batches: int) -> list[Slot]:
    warm_up = min(ahead, num_micro_batches)
    order = [Slot(Pass.FORWARD, m) for m in range(warm_up)]
    for m in range(warm_up, num_micro_batches):
        order.append(Slot(Pass.FORWARD, m))
        order.append(Slot(Pass.BACKWARD, m - warm_up))
    order.extend(
        Slot(Pass.BACKWARD, m) for m in range(num_micro_batches - warm_up, num_micro_batches)
    )
    return order


def _interleaved(
    stage: int, num_stages: int, num_micro_batches: int, num_chunks: int
) -> list[Slot]:
    total = num_micro_batches * num_chunks
    if num_micro_batches == num_stages:
        warm_up = total
    else:
        warm_up = min((num_stages - stage - 1) * 2 + (num_chunks - 1) * num_stages, total)

    def slot(position: int, direction: Pass) -> Slot:
        round_, inside = divmod(position, num_stages * num_chunks)
        chunk, offset = divmod(inside, num_stages)
        if direction is Pass.BACKWARD:
            chunk = num_chunks - chunk - 1
        return Slot(direction, round_ * num_stages + offset, chunk)

    order = [slot(k, Pass.FORWARD) for k in range(warm_up)]
    for k in range(warm_up, total):
        order.append(slot(k, Pass.FORWARD))
        order.append(slot(k - warm_up, Pass.BACKWARD))
    order.extend(slot(k, Pass.BACKWARD) for k in range(total - warm_up, total))
    return order
