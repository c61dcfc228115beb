"""Programs to time: the peers' workload, a batch of plans, and a deep pipeline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfmodel.program.priced import PricedProgram
from perfmodel.program.records import Overlap, Program, RankClass, Task, TaskKind
from perfmodel.program.work import Cause

# Durations do not change the number of operations; these are of the order of a real layer.
KERNEL_S = (1e-5, 1e-3)
DISPATCH_S = 5e-6
LATENCY_S = 2e-6


def peers_workload(num_ranks: int, num_tasks: int = 864) -> PricedProgram:
    """One SPMD iteration, TP 8; a layer is 4 x (compute, TP all-reduce) and a DP all-reduce."""
    tensor = 8
    tasks: list[Task] = []
    for layer in range(num_tasks // 9):
        for part in range(4):
            waits = (len(tasks) - 1,) if part else ()
            tasks.append(_kernel(f"compute {layer}.{part}", waits))
            tasks.append(_collective(f"tp {layer}.{part}", "tp", "tp", (len(tasks) - 1,)))
        tasks.append(_collective(f"dp {layer}", "dp", "dp", (len(tasks) - 2,)))
    ranks = np.arange(num_ranks)
    grid = ranks.reshape(-1, tensor)
    program = Program(
        classes=(RankClass(name="all", ranks=ranks, tasks=tuple(tasks)),),
        groups={"tp": grid, "dp": np.ascontiguousarray(grid.T)},
        launch_latency_s=LATENCY_S,
    )
    return _priced(program, 1)


def plan_batch(num_plans: int, overlap: Overlap | None = None) -> PricedProgram:
    """8 unequal ranks of 100 tasks, an all-to-all every 12, `num_plans` sets of durations."""
    classes = []
    for rank in range(8):
        tasks = []
        for t in range(100):
            if t % 12 == 5:
                tasks.append(_collective(f"all_to_all {t}", "comm", "world", (t - 1,)))
            else:
                waits = (t - 4,) if t % 12 == 9 else ()
                tasks.append(_kernel(f"kernel {t}", waits, launches=3.0))
        classes.append(RankClass(name=f"rank{rank}", ranks=np.array([rank]), tasks=tuple(tasks)))
    program = Program(
        classes=tuple(classes),
        groups={"world": np.arange(8)[None]},
        scenarios=num_plans,
        launch_latency_s=LATENCY_S,
        overlap=overlap or Overlap(),
    )
    return _priced(program, num_plans)


def pipeline(num_stages: int = 64, micro_batches: int = 64, kernels: int = 30) -> PricedProgram:
    """1F1B, one class a stage: `kernels` a forward, twice that a backward, sends and receives."""
    groups = {}
    for stage in range(num_stages - 1):
        groups[f"forward {stage}"] = np.array([[stage, stage + 1]])
        groups[f"backward {stage}"] = np.array([[stage, stage + 1]])
    classes = tuple(
        RankClass(
            name=f"stage{stage}",
            ranks=np.array([stage]),
            tasks=tuple(_stage_tasks(stage, num_stages, micro_batches, kernels)),
        )
        for stage in range(num_stages)
    )
    return _priced(Program(classes=classes, groups=groups, launch_latency_s=LATENCY_S), 1)


def _stage_tasks(stage: int, num_stages: int, micro_batches: int, kernels: int) -> list[Task]:
    warm = min(num_stages - stage - 1, micro_batches)
    order = [("forward", m) for m in range(warm)]
    for m in range(micro_batches - warm):
        order += [("forward", warm + m), ("backward", m)]
    order += [("backward", m) for m in range(micro_batches - warm, micro_batches)]
    tasks: list[Task] = []
    for direction, m in order:
        is_forward = direction == "forward"
        source, target = (stage - 1, stage) if is_forward else (stage, stage - 1)
        waits: tuple[int, ...] = ()
        if 0 <= source < num_stages - 1:
            lane = f"receive {direction}"
            tasks.append(_collective(f"{lane} {m}", lane, f"{direction} {source}", ()))
            waits = (len(tasks) - 1,)
        for k in range(kernels if is_forward else 2 * kernels):
            tasks.append(_kernel(f"{direction} {m}.{k}", waits if k == 0 else ()))
        if 0 <= target < num_stages - 1:
            lane, done = f"send {direction}", (len(tasks) - 1,)
            tasks.append(_collective(f"{lane} {m}", lane, f"{direction} {target}", done))
    return tasks


def _kernel(name: str, waits: Sequence[int], launches: float = 1.0) -> Task:
    return Task(
        name=name, kind=TaskKind.DEVICE, lane="compute", waits=tuple(waits), launches=launches
    )


def _collective(name: str, lane: str, group: str, waits: Sequence[int]) -> Task:
    return Task(name=name, kind=TaskKind.COLLECTIVE, lane=lane, group=group, waits=tuple(waits))


def _priced(program: Program, scenarios: int) -> PricedProgram:
    generator = np.random.default_rng(0)
    device, dispatch, causes = [], [], []
    for cls in program.classes:
        shape = (len(cls.tasks), scenarios)
        device.append(generator.uniform(*KERNEL_S, shape))
        dispatch.append(np.full(shape, DISPATCH_S))
        causes.append(tuple({Cause.DP_COMM if t.group else Cause.GEMM: 1.0} for t in cls.tasks))
    return PricedProgram(
        program=program,
        device_s=tuple(device),
        dispatch_s=tuple(dispatch),
        causes=tuple(causes),
    )
