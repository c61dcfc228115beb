"""The byte matrix means what torch.distributed does: rows are sent, columns arrive (gloo)."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import numpy as np
import pytest

from perfmodel.cost.collectives import comm_path
from perfmodel.cost.collectives.unequal import equivalent_bytes
from perfmodel.hardware.clusters import cluster_from_names
from perfmodel.hardware.records import GroupShape

RANKS = 4
MATRIX = np.array([[1, 2, 3, 4], [10, 20, 30, 40], [5, 5, 5, 5], [0, 7, 0, 70]], dtype=np.int64)


def exchange(rank: int, port: int, queue: Any) -> None:
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    sent = torch.full((int(MATRIX[rank].sum()),), rank, dtype=torch.uint8)
    got = torch.empty(int(MATRIX[:, rank].sum()), dtype=torch.uint8)
    dist.all_to_all_single(got, sent, MATRIX[:, rank].tolist(), MATRIX[rank].tolist())
    queue.put((rank, torch.bincount(got.to(torch.int64), minlength=RANKS).tolist()))
    dist.destroy_process_group()


@pytest.mark.torch
def test_rows_are_sent_and_columns_received():
    pytest.importorskip("torch", reason="torch is not installed")
    import torch.multiprocessing as mp

    if sys.platform == "win32":
        pytest.skip("gloo over loopback is not set up on Windows")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = mp.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=exchange, args=(r, port, queue)) for r in range(RANKS)]
    for worker in workers:
        worker.start()
    received = dict(queue.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join()
    assert [received[r] for r in range(RANKS)] == MATRIX.T.tolist()


def test_busiest_rank_of_that_matrix_by_hand():
    path = comm_path(
        cluster_from_names("dgx_a100_80"), GroupShape(ranks_per_node=RANKS, num_nodes=1)
    )
    # Rank 1 sends 10 + 30 + 40 = 80 to others; no other rank sends or receives more.
    assert equivalent_bytes(MATRIX, path) == pytest.approx(80 * 4 / 3)
