"""Plans found under TorchRec's rating and under ours, each rated both ways.

The three planning problems need PERFMODEL_CORPUS; random problems of 20 to 120 tables are made from
seeds. `results.csv` holds one line a problem.
"""

from __future__ import annotations

import csv
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import perfmodel as pm
from perfmodel.run import Run
from perfmodel.search.embedding_plans import plan_embeddings
from perfmodel.search.rank import rank_plans
from perfmodel.search.torchrec_rating import TorchRecRating, plan_for_torchrec
from perfmodel.units import MS
from perfmodel.workload.recommender import EmbeddingTable

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "datasets" / "examples" / "dlrm_8gpu.yaml"
GPUS_PER_NODE = 8
# TorchRec 1.8's planner on the three problems, ms; 800x64 is what it had after 303 s.
PLANNER_MS = {"26x8": 3.218, "200x16": 12.025, "800x64": 129.7}
NUM_RANDOM = 8


@dataclass(frozen=True, slots=True)
class Problem:
    """Tables, GPUs in nodes of 8, and samples of a GPU."""

    name: str
    tables: tuple[EmbeddingTable, ...]
    ranks: int
    batch: float


def problems() -> Iterator[Problem]:
    """The three of the corpus, where it is, and random ones."""
    corpus = os.environ.get("PERFMODEL_CORPUS")
    for name in PLANNER_MS if corpus else ():
        spec = json.loads((Path(corpus or "") / f"dlrm/planner_problems/{name}.json").read_text())
        tables = tuple(
            EmbeddingTable(name=t["name"], rows=t["rows"], dim=t["dim"], pooling=(t["pooling"],))
            for t in spec["tables"]
        )
        yield Problem(name, tables, spec["world_size"], spec["batch"])
    for seed in range(NUM_RANDOM):
        rng = np.random.default_rng(seed)
        tables = tuple(
            EmbeddingTable(
                name=f"t{i}",
                rows=int(10 ** rng.uniform(3, 7.3)),
                dim=int(rng.choice([64, 128, 256])),
                pooling=(round(float(rng.lognormal(1.5, 1.0)), 1),),
            )
            for i in range(int(rng.integers(20, 120)))
        )
        yield Problem(f"random {seed}", tables, int(rng.choice([8, 16, 32])), 1024)


def run_of(problem: Problem) -> Run:
    """The problem's tables inside the example DLRM, on A100 nodes."""
    base = pm.Run.load(EXAMPLE)
    model = replace(base.workload.model, tables=problem.tables)
    batch = problem.batch * problem.ranks
    return replace(
        base,
        workload=replace(base.workload, model=model, global_batch=batch),
        cluster=replace(base.cluster, num_nodes=problem.ranks // GPUS_PER_NODE),
        plan=replace(base.plan, dp=problem.ranks, micro_batch=problem.batch, embedding=None),
    )


def compare(problem: Problem) -> dict[str, Any]:
    """One line: both plans under both ratings."""
    rating = TorchRecRating(
        num_ranks=problem.ranks, ranks_per_node=GPUS_PER_NODE, batch=problem.batch,
        memory_gib=80, hbm_gib_per_s=1555, intra_gib_per_s=300, inter_gib_per_s=25,
    )  # fmt: skip
    began = time.process_time()
    theirs, found = plan_for_torchrec(rating, problem.tables, max_evaluations=60_000)
    between = time.process_time()
    run = run_of(problem)
    ours = plan_embeddings(run)
    ended = time.process_time()
    ranking = rank_plans(run, {"theirs": theirs, "ours": ours.plan})
    times = {p.name: p.iteration_s / MS for p in ranking.plans}
    return {
        "problem": problem.name,
        "tables": len(problem.tables),
        "ranks": problem.ranks,
        "planner_ms": PLANNER_MS.get(problem.name),
        "torchrec_rating_of_theirs_ms": found.best.rating,
        "torchrec_lower_bound_ms": found.lower_bound,
        "torchrec_rating_of_ours_ms": rating.rate(ours.plan, problem.tables),
        "iteration_of_theirs_ms": times["theirs"],
        "iteration_of_ours_ms": times["ours"],
        "best_rule_ms": (ours.best_rule_s or 0.0) / MS,
        "cpu_s_theirs": between - began,
        "cpu_s_ours": ended - between,
    }


def main() -> None:
    """Compare all problems and write results.csv."""
    rows = [compare(p) for p in problems()]
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            shown = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()}
            writer.writerow(shown)
            print(shown)


if __name__ == "__main__":
    main()
