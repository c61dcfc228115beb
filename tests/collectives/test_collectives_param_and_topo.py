"""PARAM comms rows and topology matrices."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import InputError
from perfmodel.hardware.catalogue import gpu
from perfmodel.hardware.records import FabricKind
from perfmodel.measure.collectives import import_param_comms, import_topo
from perfmodel.measure.collectives.topo import read_topology
from perfmodel.measure.collectives.topo_node import node_from_topology

SIZE = 1 << 20


def param_row(name: str, ranks: int, per_rank: int, factor: float, p50: float = 80.0) -> str:
    algbw = SIZE / p50 / 1e3
    return (
        f"\tCOMMS-RES-{name}-float32{SIZE:>18}{per_rank:>18}{p50:>18.1f}{p50 + 1:>12.1f}"
        f"{p50 + 5:>12.1f}{p50 - 2:>12.1f}{p50 + 9:>12.1f}{algbw:>15.3f}{algbw * factor:>12.3f}\n"
    )


def param(tmp_path: Path, text: str):
    path = tmp_path / "param.log"
    path.write_text(text)
    return import_param_comms([path])


@pytest.mark.parametrize(
    ("name", "canonical", "factor", "per_rank"),
    [
        ("all_reduce", "all_reduce", 1.75, SIZE // 4),
        ("all_to_all", "alltoall", 0.875, SIZE // 32),
        ("all_gather_base", "all_gather", 0.875, SIZE // 32),
    ],
)
def test_param_rows(tmp_path, name, canonical, factor, per_rank):
    text = "0: MPI environment: {'world_size': 8}\n0: " + param_row(name, 8, per_rank, factor)
    table = param(tmp_path, text).table
    assert len(table) == 1
    first = table.iloc[0]
    assert (first.collective, first.n_ranks, first.bytes, first.time_us) == (canonical, 8, SIZE, 80)


def test_param_rank_count_from_elements_per_rank(tmp_path):
    assert param(tmp_path, param_row("all_to_all", 8, SIZE // 32, 0.875)).table.n_ranks[0] == 8


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (param_row("all_reduce", 8, SIZE // 4, 1.75), "how many ranks"),
        ("world_size: 8\n" + param_row("all_reduce", 8, SIZE // 4, 1.5), "BusBW is not"),
        ("world_size: 8\n" + param_row("incast", 8, SIZE // 4, 1.0), "not a collective"),
        ("world_size: 8\n" + param_row("all_reduce", 8, SIZE // 4, 1.75)[:-2], "cut"),
        ("nothing here\n", "no row"),
    ],
)
def test_param_rows_that_are_not_sure_are_skipped(tmp_path, text, words):
    result = param(tmp_path, text)
    assert len(result.table) == 0
    assert any(words in skip.reason for skip in result.skipped)


MATRIX = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV12\tNV12\tNV12\tPXB\t0-31,64-95\t0\t\tN/A
GPU1\tNV12\t X \tNV12\tNV12\tPXB\t0-31,64-95\t0\t\tN/A
GPU2\tNV12\tNV12\t X \tNV12\tSYS\t32-63\t1\t\tN/A
GPU3\tNV12\tNV12\tNV12\t X \tSYS\t32-63\t1\t\tN/A
NIC0\tPXB\tPXB\tSYS\tSYS\t X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect

NIC Legend:

  NIC0: mlx5_0
"""


def pcie(link: str, count: int = 4) -> str:
    names = [f"GPU{i}" for i in range(count)]
    rows = [
        f"{a}  " + "  ".join("X" if a == b else link for b in names) + "  0-15  0" for a in names
    ]
    return "   " + "  ".join(names) + "  CPU Affinity  NUMA Affinity\n" + "\n".join(rows) + "\n"


@pytest.mark.parametrize(
    "damage",
    [
        lambda t: t,
        lambda t: t.replace("\t", "    "),
        lambda t: "".join(f"# {line}\n" for line in t.splitlines()),
        lambda t: t.replace("GPU0\tGPU1", "\x1b[4mGPU0\tGPU1", 1).replace("ID\n", "ID\x1b[0m\n", 1),
        lambda t: t.replace("GPU3\tNIC0", "GPU3NIC0", 1).replace("NV12\tPXB", "NV12PXB"),
        lambda t: t.split("\n", 1)[1],
    ],
)
def test_matrix_in_all_spellings(damage):
    topology, skipped = read_topology(damage(MATRIX), "topo.txt")
    assert topology.gpus == ["GPU0", "GPU1", "GPU2", "GPU3"]
    assert topology.nics == ["NIC0"]
    assert topology.nvlinks("GPU0", "GPU3") == 12
    assert topology.link("NIC0", "GPU2") == "SYS"
    assert topology.link("GPU1", "NIC0") == "PXB"
    assert topology.numa == {"GPU0": 0, "GPU1": 0, "GPU2": 1, "GPU3": 1}
    assert topology.cpu_affinity["GPU0"] == "0-31,64-95"
    assert skipped == []


def test_nic_legend_and_peer_matrix():
    text = MATRIX + "\n \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tNS\tX\t\n"
    topology, _ = read_topology(text, "topo.txt")
    assert topology.nic_names == {"NIC0": "mlx5_0"}
    assert topology.peer_access == {("GPU0", "GPU1"): False}


def test_matrix_cut_at_every_byte_holds_no_false_link():
    whole, _ = read_topology(MATRIX, "topo.txt")
    for end in range(len(MATRIX)):
        part, _ = read_topology(MATRIX[:end], "topo.txt")
        assert part.links.items() <= whole.links.items(), MATRIX[:end][-40:]
        assert part.numa.items() <= whole.numa.items()


@given(st.text(max_size=300))
@settings(max_examples=150, deadline=None)
def test_random_text_is_no_matrix(text):
    read_topology(text, "topo.txt")


def test_contradicting_cells_are_left_out():
    topology, skipped = read_topology(MATRIX.replace("GPU1\tNV12", "GPU1\tNV6", 1), "topo.txt")
    assert topology.link("GPU0", "GPU1") is None
    assert any("NV12 and NV6" in skip.reason for skip in skipped)


def test_nodes_from_matrices():
    switched, _ = read_topology(MATRIX, "a")
    node = node_from_topology(switched, gpu("a100_sxm4_80"))
    assert node.fabric is FabricKind.NVSWITCH
    assert (node.num_gpus, node.num_nics, node.gpus_per_socket) == (4, 1, 2)
    cards, _ = read_topology(pcie("PIX"), "b")
    node = node_from_topology(cards, gpu("l40s"))
    assert node.fabric is FabricKind.PCIE
    assert node.gpus_per_pcie_switch == 4
    meshed, _ = read_topology(pcie("NV4"), "c")
    node = node_from_topology(meshed, gpu("a100_sxm4_40"))
    assert node.fabric is FabricKind.NVLINK_MESH
    assert node.mesh_links[0] == (0, 4, 4, 4)
    blocked, _ = read_topology(pcie("PHB", 2) + "\n GPU0 GPU1\n GPU0 X CNS\n GPU1 CNS X\n", "d")
    assert node_from_topology(blocked, gpu("l40s")).fabric is FabricKind.PCIE_HOST
    with pytest.raises(InputError, match="no GPU"):
        node_from_topology(read_topology("", "e")[0], gpu("l40s"))


def test_import_topo_lists_pairs(tmp_path):
    path = tmp_path / "topo.txt"
    path.write_text(MATRIX)
    table = import_topo([path]).table
    assert len(table) == 10  # 5 devices
    assert set(table.link) == {"NV", "PXB", "SYS"}


CORPUS = os.environ.get("PERFMODEL_CORPUS")


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS, reason="PERFMODEL_CORPUS is not set")
def test_corpus_matrices_agree_with_their_manifest():
    folder = Path(CORPUS or "") / "collectives"
    for entry in pd.read_csv(folder / "topo" / "manifest.csv").itertuples():
        text = (folder / str(entry.file)).read_text()
        topology, _ = read_topology(text, str(entry.file))
        assert len(topology.gpus) == entry.gpus, entry.file
        links = str(entry.links).split() if pd.notna(entry.links) else []
        assert sorted(set(topology.links.values())) == sorted(links), entry.file
