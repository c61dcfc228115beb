"""Unequal all_to_all on gloo: does the byte matrix put plans in the right order?

    python experiments/collective_accuracy/gloo_unequal.py [--megabytes 1] [--repeats 9]

Four processes on this machine exchange by `all_to_all_single` with the split sizes of several
matrices. The time of a plan is that of its slowest rank; the order of plans by time is compared
with the order by `equivalent_bytes`. Needs torch.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perfmodel.cost.collectives import comm_path
from perfmodel.cost.collectives.unequal import equivalent_bytes
from perfmodel.hardware.clusters import cluster_from_names
from perfmodel.hardware.records import GroupShape

RANKS = 4
HERE = Path(__file__).parent


def plans(unit: int) -> dict[str, NDArray[np.int64]]:
    """Byte matrices: `unit` bytes to every peer, then ever more through one rank or link."""
    even = np.full((RANKS, RANKS), unit)
    out = {"even": even}
    for factor in (2, 4, 8):
        sender, receiver = even.copy(), even.copy()
        sender[0] *= factor
        receiver[:, 0] *= factor
        out[f"one rank sends {factor}x"] = sender
        out[f"one rank receives {factor}x"] = receiver
    pair = even.copy()
    pair[0, 1] *= 16
    out["one pair 16x"] = pair
    out["half of even"] = even // 2
    return out


def worker(
    rank: int, port: int, matrices: list[NDArray[np.int64]], repeats: int, queue: Any
) -> None:
    """Time every plan `repeats` times, in turn, so that noise hits all alike."""
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    seconds = np.zeros((repeats + 1, len(matrices)))
    for repeat in range(repeats + 1):
        for index, matrix in enumerate(matrices):
            sent = torch.full((int(matrix[rank].sum()),), rank, dtype=torch.uint8)
            got = torch.empty(int(matrix[:, rank].sum()), dtype=torch.uint8)
            dist.barrier()
            start = time.perf_counter()
            dist.all_to_all_single(got, sent, matrix[:, rank].tolist(), matrix[rank].tolist())
            seconds[repeat, index] = time.perf_counter() - start
            counts = torch.bincount(got.to(torch.int64), minlength=RANKS)
            assert counts.tolist() == matrix[:, rank].tolist(), "bytes of a column did not arrive"
    queue.put((rank, seconds[1:]))  # the first round opens connections
    dist.destroy_process_group()


def measure(matrices: list[NDArray[np.int64]], repeats: int) -> NDArray[np.float64]:
    """Least over repeats of the slowest rank's time, one value a plan: noise only adds."""
    import torch.multiprocessing as mp

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = mp.get_context("spawn")
    queue = context.Queue()
    workers = [
        context.Process(target=worker, args=(rank, port, matrices, repeats, queue))
        for rank in range(RANKS)
    ]
    for process in workers:
        process.start()
    results = [queue.get(timeout=300)[1] for _ in workers]
    for process in workers:
        process.join()
    return np.min(np.max(results, axis=0), axis=0)


def compare(unit: int, repeats: int) -> pd.DataFrame:
    """Plans with measured seconds and equivalent bytes."""
    named = plans(unit)
    path = comm_path(
        cluster_from_names("dgx_a100_80"), GroupShape(ranks_per_node=RANKS, num_nodes=1)
    )
    return pd.DataFrame(
        {
            "plan": list(named),
            "equivalent_mb": [equivalent_bytes(m, path) / 1e6 for m in named.values()],
            "total_mb": [m.sum() / 1e6 for m in named.values()],
            "measured_ms": measure(list(named.values()), repeats) * 1e3,
        }
    ).sort_values("equivalent_mb", ignore_index=True)


def main() -> None:
    """Run as described at the top."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--megabytes", type=float, default=1.0, help="bytes to each peer, even plan"
    )
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    table = compare(int(options.megabytes * 1e6) // 8 * 8, options.repeats).round(3)
    ranks = table[["equivalent_mb", "measured_ms"]].rank()
    spearman = ranks["equivalent_mb"].corr(ranks["measured_ms"])
    table.to_csv(HERE / "gloo_unequal.csv", index=False)
    print(table.to_string(index=False))
    print(f"Spearman of measured time and equivalent bytes: {spearman:.2f}")


if __name__ == "__main__":
    main()
