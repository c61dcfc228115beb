"""Readers: every layout, every kind of damage, and never a false row."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest
from collective_logs import (
    HEADER,
    OLD_HEADER,
    log,
    old_row,
    rank_list,
    row,
    times_of,
    truth,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import InputError
from perfmodel.measure.collectives import import_nccl_tests
from perfmodel.measure.collectives.nccl_tests import read_nccl_tests
from perfmodel.measure.collectives.table import COLUMNS

SIZES = (1024, 65536, 1 << 20, 1 << 24, 1 << 28)
NAMES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "alltoall",
    "broadcast",
    "reduce",
    "sendrecv",
)


def read(text: str, name: str = "run.txt"):
    return read_nccl_tests(text, name, "test")


def found(rows) -> set[tuple[int, int, float]]:
    return {(r["bytes"], r["in_place"], r["time_us"]) for r in rows}


@pytest.mark.parametrize("name", NAMES)
def test_newest_layout_is_read_whole(name):
    rows, skipped = read(log(name, ranks=16, per_node=8))
    assert found(rows) == truth(SIZES)
    assert skipped == []
    first = rows[0]
    assert (first["collective"], first["n_ranks"], first["nodes"]) == (name, 16, 2)
    assert (first["gpus_per_node"], first["nccl_version"]) == (8, "2.28.7")
    assert first["gpu"] == "NVIDIA A100-SXM4-80GB"


def test_table_has_the_documented_columns(tmp_path):
    path = tmp_path / "a.log"
    path.write_text(log())
    result = import_nccl_tests([path])
    assert tuple(result.table.columns) == COLUMNS
    assert len(result.table) == 10
    assert set(result.table["source"]) == {"a"}


@pytest.mark.parametrize("name", ["all_reduce", "reduce", "alltoall"])
def test_old_layout_without_root(name):
    ranks = 12
    sizes = tuple(s * 3 for s in SIZES)
    text = "\n".join(
        [f"./build/{name}_perf -b 8 -e 1G -f 2 -g 12", *rank_list(ranks, ranks), OLD_HEADER,
         *(old_row(name, s, times_of(s), ranks).replace("0e+00", "N/A" if name == "alltoall" else
                                                        "0e+00") for s in sizes), ""]
    )  # fmt: skip
    rows, _ = read(text)
    assert found(rows) == truth(sizes)
    assert {r["collective"] for r in rows} == {name}


def test_old_convention_without_the_own_part():
    # algbw = busbw = (n-1)/n x size / time: 4194288 B in 133.7 us on 12 ranks print 28.76.
    lines = ["# Running all_gather_perf", *rank_list(12, 12), OLD_HEADER]
    lines.append(
        "     4194288         87381   float           133.7   28.76   28.76  0e+00"
        "    149.7   25.68   25.68  0e+00"
    )
    rows, skipped = read("\n".join([*lines, ""]))
    assert found(rows) == {(4194288, 0, 133.7), (4194288, 1, 149.7)}
    assert skipped == []


@pytest.mark.parametrize(
    "prefix",
    ["[1,0]<stdout>:", "   [1,0]<stdout>:", "0: ", " 0:", "    ", "> ", "\x1b[32m", "| ",
     "2024-05-01T10:00:00.123Z ", "worker-0: "],
)  # fmt: skip
def test_launcher_prefixes_are_stripped(prefix):
    text = "".join(f"{prefix}{line}\n" for line in log().splitlines())
    assert found(read(text)[0]) == truth(SIZES)


def test_info_lines_between_rows_and_glued_numbers_of_ranks():
    lines = log().splitlines()
    noise = (
        "worker0:101:202 [0] NCCL INFO Channel 00/0 : 1[21000] -> 0[1000] via P2P/direct pointer"
    )
    text = "\n".join(piece for line in lines for piece in (line, noise)) + "\n"
    assert found(read(text)[0]) == truth(SIZES)
    damaged = text.replace("float", "[0] float")
    assert found(read(damaged)[0]) == truth(SIZES)


def test_several_runs_in_one_file_keep_apart():
    rows, _ = read(log("all_reduce") + log("all_gather", ranks=4, per_node=4))
    by_run = {(r["run"], r["collective"], r["n_ranks"]) for r in rows}
    assert by_run == {("run#1", "all_reduce", 8), ("run#2", "all_gather", 4)}


def test_elided_list_of_ranks_is_completed_from_bandwidths():
    lines = [line for line in log(ranks=16, per_node=8).splitlines() if "Rank  3" not in line]
    rows, _ = read("\n".join(lines) + "\n")
    assert {(r["n_ranks"], r["nodes"]) for r in rows} == {(16, 2)}


def test_ranks_from_bandwidths_and_name_from_the_file():
    text = "\n".join([HEADER, *(row("all_reduce", s, times_of(s), 24) for s in SIZES), ""])
    rows, _ = read(text, "allreduce_a.txt")
    assert {(r["collective"], r["n_ranks"]) for r in rows} == {("all_reduce", 24)}


def test_collective_that_the_log_does_not_name_is_inferred_only_if_one_fits():
    one = "\n".join([HEADER, *(row("all_reduce", s, times_of(s), 8) for s in SIZES), ""])
    assert {r["collective"] for r in read(one)[0]} == {"all_reduce"}
    unchecked = one.replace("sum", "none").replace("      0 ", "    N/A ")
    rows, skipped = read(unchecked)
    assert rows == []
    assert skipped


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["#  Rank  0 Pid 1 on a device  0 [0x00] V100",
          "#  Rank  0 Pid 2 on b device  0 [0x00] V100", HEADER,
          row("all_reduce", 1 << 20, (10.0, 10.0), 2)], "without MPI"),
        (["# all_reduce_perf", "#  Rank  0 Group 0 Pid 1 on a device  0 [0x00] V100", HEADER,
          "     1048576        262144     float     sum      -1     2.50  419.43    0.00      0"
          "     0.10 10485.76    0.00      0"], "one rank"),
        (["# gather_perf -g 8", HEADER, row("all_gather", 1 << 20, (30.0, 30.0), 8)],
         "not a collective"),
        (["# broadcast_perf", *rank_list(8, 8), HEADER,
          *(row("all_reduce", s, times_of(s), 8) for s in SIZES)], "do not fit"),
    ],
)  # fmt: skip
def test_runs_that_cannot_be_placed_are_skipped_with_a_reason(lines, words):
    rows, skipped = read("\n".join(lines) + "\n")
    assert rows == []
    assert any(words in skip.reason for skip in skipped)


def test_size_zero_rows_are_skipped():
    text = log().replace(
        HEADER + "\n",
        HEADER
        + "\n           0             0     float     sum      -1     0.19    0.00    0.00      0"
        "     0.17    0.00    0.00      0\n",
    )
    rows, skipped = read(text)
    assert found(rows) == truth(SIZES)
    assert [s.reason for s in skipped] == ["size 0: nothing was sent"]


@pytest.mark.parametrize("name", ["all_reduce", "alltoall"])
def test_log_cut_at_every_byte_never_yields_a_false_row(name):
    text = log(name)
    whole = truth(SIZES)
    for end in range(len(text)):
        rows, _ = read(text[:end])
        assert found(rows) <= whole, text[:end][-60:]
        assert {r["collective"] for r in rows} <= {name}
        assert {r["n_ranks"] for r in rows} <= {8}


TEXT = log()


@given(st.binary(max_size=400))
@settings(max_examples=150, deadline=None)
def test_random_bytes_yield_nothing(blob):
    rows, _ = read(blob.decode("utf-8", errors="replace"))
    assert rows == []


@given(st.integers(0, len(TEXT) - 1), st.binary(min_size=1, max_size=4), st.booleans())
@settings(max_examples=300, deadline=None)
def test_damage_in_one_place_costs_rows_but_adds_no_false_bandwidth(position, blob, replaced):
    raw = TEXT.encode()
    tail = raw[position + len(blob) :] if replaced else raw[position:]
    rows, _ = read((raw[:position] + blob + tail).decode("utf-8", errors="replace"))
    assert len(rows) <= 10
    for size, in_place, micros in found(rows):
        # Where bandwidths are printed to three digits, a damaged time or size cannot agree.
        if size >= 1 << 20:
            expected = times_of(size)[in_place] if size in SIZES else None
            assert expected is not None
            assert micros == pytest.approx(expected, rel=0.01)


@given(st.permutations(range(13)), st.sampled_from(NAMES))
@settings(max_examples=300, deadline=None)
def test_swapped_columns_are_not_believed(order, name):
    lines = []
    for line in log(name).splitlines():
        cells = line.split()
        if cells and cells[0].isdigit():
            line = "  ".join(cells[i] for i in order)
        lines.append(line)
    rows, _ = read("\n".join(lines) + "\n")
    halves = {(size, micros) for size, _, micros in truth(SIZES)}
    large = {(size, micros) for size, _, micros in found(rows) if size >= 1 << 20}
    assert large <= halves
    assert {r["n_ranks"] for r in rows} <= {8}


def test_unreadable_or_huge_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        import_nccl_tests([tmp_path / "missing.txt"])
    with pytest.raises(InputError, match="cannot be read"):
        import_nccl_tests([tmp_path])
    big = tmp_path / "big.log"
    with big.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(InputError, match="more than"):
        import_nccl_tests([big])
    empty = tmp_path / "empty.log"
    empty.write_bytes(b"")
    result = import_nccl_tests([empty])
    assert len(result.table) == 0
    assert result.skipped[0].reason == "no row of an nccl-tests table"


CORPUS = os.environ.get("PERFMODEL_CORPUS")


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS, reason="PERFMODEL_CORPUS is not set")
def test_corpus_logs_agree_with_their_manifest():
    folder = Path(CORPUS or "") / "collectives"
    manifest = pd.read_csv(folder / "nccl_tests" / "manifest.csv")
    wrong, unread = [], []
    for entry in manifest.itertuples():
        table = import_nccl_tests([folder / str(entry.file)]).table
        if len(table) == 0:
            unread.append(entry.file)
            continue
        names, ranks = set(table["collective"]), set(table["n_ranks"])
        stated = pd.notna(entry.collective) and pd.notna(entry.n_ranks)
        if stated and (names != {entry.collective} or ranks != {int(entry.n_ranks)}):
            wrong.append(entry.file)
    assert wrong == []
    # Four logs do not say how many ranks took part, or contradict themselves.
    assert len(unread) <= 4
