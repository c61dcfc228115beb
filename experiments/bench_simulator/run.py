"""Time the simulator, from a PricedProgram to a Timeline.

Every case runs in a process of its own, three times; the table gives the fastest. `--full` adds
16,384 ranks x 864 tasks simulated one by one.
"""

from __future__ import annotations

import csv
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from workloads import peers_workload, pipeline, plan_batch

from perfmodel.program.priced import PricedProgram
from perfmodel.program.records import Overlap
from perfmodel.simulator import Timeline, simulate

HERE = Path(__file__).parent
REPEATS = 3
CASES: dict[str, tuple[Callable[[], PricedProgram], dict[str, bool]]] = {
    "64 ranks x 864, each": (lambda: peers_workload(64), {"unfold": True}),
    "64 ranks x 864, folded": (lambda: peers_workload(64), {}),
    "1,024 ranks x 864, each": (lambda: peers_workload(1024), {"unfold": True}),
    "4,096 ranks x 36, each": (lambda: peers_workload(4096, 36), {"unfold": True}),
    "16,384 ranks x 36, each": (lambda: peers_workload(16384, 36), {"unfold": True}),
    "16,384 ranks x 864, folded": (lambda: peers_workload(16384), {}),
    "1,000 plans x 8 ranks x 100": (lambda: plan_batch(1000), {}),
    "1,000 plans x 8 ranks x 100, contended": (
        lambda: plan_batch(1000, Overlap(compute_slowdown=0.1, comm_slowdown=0.3)),
        {},
    ),
    "1 plan x 8 ranks x 100": (lambda: plan_batch(1), {}),
    "64 stages x 6,000": (pipeline, {}),
}
FULL = {"16,384 ranks x 864, each": (lambda: peers_workload(16384), {"unfold": True})}
# Peers' CPU seconds and peak MB on the same workload, measured by the project on one thread
# (ASTRA-sim, congestion-unaware analytical backend); None: it died at a 12 GB limit.
PEERS: dict[str, tuple[float | None, float]] = {
    "64 ranks x 864, each": (0.78, 91),
    "1,024 ranks x 864, each": (64.2, 1330),
    "4,096 ranks x 36, each": (13.1, 960),
    "16,384 ranks x 36, each": (None, 12_000),
}
COLUMNS = (
    "case", "tasks", "cpu_s", "wall_s", "peak_mb", "iterations",
    "peer_cpu_s", "times_fewer_cpu_s", "peer_peak_mb", "times_less_memory",
)  # fmt: skip


def measure(case: str) -> dict[str, float]:
    """Fastest of some runs of one case in this process."""
    make, options = (CASES | FULL)[case]
    program = make()
    cpu, wall = [], []
    for _ in range(REPEATS):
        start, clock = time.process_time(), time.perf_counter()
        timeline = simulate(program, **options)
        cpu.append(time.process_time() - start)
        wall.append(time.perf_counter() - clock)
    return {
        "tasks": _num_tasks(program, timeline),
        "cpu_s": round(min(cpu), 4),
        "wall_s": round(min(wall), 4),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "iterations": int(timeline.num_iterations.max()),
    }


def _num_tasks(program: PricedProgram, timeline: Timeline) -> int:
    """Tasks evaluated in one iteration: ranks and scenarios count where they are simulated."""
    return sum(array.size for array in timeline.start_s)


def largest_difference(num_ranks: int) -> float:
    """Relative difference between folded and unfolded times of the peers' workload."""
    program = peers_workload(num_ranks)
    folded, unfolded = simulate(program), simulate(program, unfold=True)
    worst = abs(folded.iteration_s[0] - unfolded.iteration_s[0])
    for name in ("start_s", "end_s", "wait_s"):
        one, every = getattr(folded, name)[0], getattr(unfolded, name)[0]
        worst = max(worst, float(np.abs(every - one[:, :, None]).max()))
    return float(worst / folded.iteration_s[0])


def row(case: str) -> dict[str, object]:
    """One line of the table, from a fresh process."""
    command = [sys.executable, __file__, "--case", case]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    peer, memory = PEERS.get(case, (None, None))
    return {
        "case": case,
        **found,
        "peer_cpu_s": peer,
        "times_fewer_cpu_s": round(peer / found["cpu_s"], 1) if peer else None,
        "peer_peak_mb": memory,
        "times_less_memory": round(memory / found["peak_mb"], 1) if memory else None,
    }


def main() -> None:
    """Print and write the table, then compare folded with unfolded."""
    if "--case" in sys.argv:
        print(json.dumps(measure(sys.argv[-1])))
        return
    is_full = "--full" in sys.argv
    cases = [*CASES, *(FULL if is_full else {})]
    rows = [row(case) for case in cases]
    with (HERE / "results.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    for line in rows:
        print("  ".join(f"{name}={line[name]}" for name in COLUMNS if line[name] is not None))
    for num_ranks in (64, 1024, 16384) if is_full else (64, 1024):
        print(
            f"folded and unfolded differ by {largest_difference(num_ranks):.1e} ({num_ranks} ranks)"
        )


if __name__ == "__main__":
    main()
