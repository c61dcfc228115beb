"""How long a prediction takes: the command, a warm call, a thousand sharding plans at once.

Prints CPU seconds on one core beside the bar of each; writes results.csv.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import perfmodel as pm
from perfmodel.cost.parameters import ParameterSet
from perfmodel.cost.price import price
from perfmodel.plan.sharding import ShardingKind, ShardingPlan, TableSharding
from perfmodel.predict import default_models
from perfmodel.program.recommender import lower_recommender_plans
from perfmodel.simulator import simulate

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "datasets" / "examples"
REPEATS = 5
NUM_PLANS = 1000


def cpu_seconds(work: Callable[[], object]) -> float:
    """Least CPU time of a few calls."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def command_seconds(*arguments: str) -> float:
    """Least wall time of a whole `perfmodel` process."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "perfmodel", *arguments], check=True, stdout=subprocess.DEVNULL
        )
        times.append(time.perf_counter() - start)
    return min(times)


def random_plans(run: pm.Run, seed: int = 0) -> list[ShardingPlan]:
    """Whole tables on random ranks."""
    rng = np.random.default_rng(seed)
    tables = run.workload.model.tables
    ranks = run.cluster.num_gpus
    return [
        ShardingPlan(
            tables=tuple(
                TableSharding(
                    table=table.name,
                    kind=ShardingKind.TABLE_WISE,
                    ranks=(int(rng.integers(ranks)),),
                )
                for table in tables
            )
        )
        for _ in range(NUM_PLANS)
    ]


def rate_plans(run: pm.Run, plans: list[ShardingPlan]) -> np.ndarray:
    """Iteration time of every plan: lowered, priced and simulated in one pass."""
    program = lower_recommender_plans(run.workload, plans, run.plan, run.stack, run.cluster)
    priced = price(program, default_models(), run.cluster, run.stack, ParameterSet())
    return simulate(priced).iteration_s


def main() -> None:
    dlrm = pm.Run.load(EXAMPLES / "dlrm_8gpu.yaml")
    llama = pm.Run.load(EXAMPLES / "llama3_8b_fsdp.yaml")
    gpt = pm.Run.load(EXAMPLES / "gpt3_175b_1024gpu.yaml")
    plans = random_plans(dlrm)
    rows = [
        ("perfmodel --help, whole process", command_seconds("--help"), 0.3),
        ("DLRM on 8 GPUs, warm predict", cpu_seconds(lambda: pm.predict(dlrm)), 0.05),
        ("Llama-3 8B FSDP on 32 GPUs, warm predict", cpu_seconds(lambda: pm.predict(llama)), None),
        ("GPT-3 175B on 1,024 GPUs, warm predict", cpu_seconds(lambda: pm.predict(gpt)), 1.0),
        (
            f"{NUM_PLANS:,} plans of a DLRM on 8 GPUs in one call",
            cpu_seconds(lambda: rate_plans(dlrm, plans)),
            1.0,
        ),
    ]
    with (Path(__file__).parent / "results.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["case", "seconds", "bar_s", "share_of_bar"])
        for name, seconds, bar in rows:
            share = "" if bar is None else f"{seconds / bar:.2f}"
            writer.writerow([name, f"{seconds:.4f}", "" if bar is None else bar, share])
            print(f"{name:48s} {seconds * 1e3:8.1f} ms  {share and 'of the bar: ' + share}")


if __name__ == "__main__":
    main()
