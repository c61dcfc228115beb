"""The trace that Perfetto opens."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from perfmodel.program.priced import PricedProgram
from perfmodel.program.records import Program, RankClass, Task, TaskKind
from perfmodel.program.work import Cause
from perfmodel.simulator import simulate
from perfmodel.trace import write_perfetto


def _program() -> PricedProgram:
    """Two classes: each launches a kernel, reduces with the others, and updates."""
    tasks = (
        Task(name="backward", kind=TaskKind.DEVICE, lane="compute"),
        Task(name="reduce", kind=TaskKind.COLLECTIVE, lane="comm", group="dp", waits=(0,)),
        Task(name="update", kind=TaskKind.DEVICE, lane="compute", waits=(1,), issued_by=None),
        Task(name="log", kind=TaskKind.HOST, lane="forward", issued_by=None, waits=(2,)),
    )
    program = Program(
        classes=(
            RankClass(name="fast", ranks=np.array([0, 1, 2]), tasks=tasks),
            RankClass(name="slow", ranks=np.array([3]), tasks=tasks),
        ),
        groups={"dp": np.array([[0, 1, 2, 3]])},
        barrier=True,
    )
    causes = tuple({c: 1.0} for c in (Cause.GEMM, Cause.DP_COMM, Cause.OPTIMIZER, Cause.HOST_STEP))
    return PricedProgram(
        program=program,
        device_s=(
            np.array([[1e-3], [2e-3], [1e-4], [5e-5]]),
            np.array([[3e-3], [2e-3], [1e-4], [5e-5]]),
        ),
        dispatch_s=tuple(np.array([[1e-5], [1e-5], [0.0], [0.0]]) for _ in range(2)),
        causes=(causes, causes),
    )


@pytest.fixture
def document(tmp_path: Path):
    path = tmp_path / "trace.json"
    write_perfetto(simulate(_program()), path)
    return json.loads(path.read_text(encoding="utf-8"))


def _events(document, phase: str):
    return [e for e in document["traceEvents"] if e["ph"] == phase]


def test_one_process_a_class_and_one_thread_a_lane(document):
    names = {(e["pid"], e["tid"], e["name"]): e["args"].get("name") for e in _events(document, "M")}
    assert names[0, 0, "process_name"] == "fast (3 ranks, e.g. 0)"
    assert names[1, 0, "process_name"] == "slow (rank 3)"
    threads = [v for (pid, _, what), v in names.items() if what == "thread_name" and pid == 0]
    assert threads == ["host forward", "stream compute", "stream comm"]


def test_complete_events_carry_times_in_microseconds(document):
    slices = {(e["pid"], e["name"]): e for e in _events(document, "X")}
    assert len(slices) == 12  # four tasks and two launches of each class
    backward = slices[1, "backward"]
    assert backward["ts"] == pytest.approx(10.0)
    assert backward["dur"] == pytest.approx(3000.0)
    assert backward["cat"] == "gemm"
    assert backward["args"]["phase"] == "fwd"
    assert slices[0, "reduce"]["args"]["wait_us"] == pytest.approx(2000.0)
    assert slices[1, "reduce"]["args"]["wait_us"] == 0.0
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in slices.values())
    assert document["displayTimeUnit"] == "ns"
    assert document["otherData"]["iteration_ms"] == pytest.approx(5.16)


def test_slices_of_one_thread_do_not_overlap(document):
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in _events(document, "X"):
        span = (event["ts"], event["ts"] + event["dur"])
        lanes.setdefault((event["pid"], event["tid"]), []).append(span)
    for spans in lanes.values():
        spans.sort()
        for (_, end), (start, _) in itertools.pairwise(spans):
            assert start >= end - 1e-3


def test_every_arrow_has_two_ends_on_slices_and_goes_forward(document):
    starts = {e["id"]: e for e in _events(document, "s")}
    ends = {e["id"]: e for e in _events(document, "f")}
    assert starts.keys() == ends.keys()
    slices = _events(document, "X")
    for number, start in starts.items():
        end = ends[number]
        assert start["ts"] <= end["ts"] + 1e-3
        for point in (start, end):
            assert any(
                s["pid"] == point["pid"]
                and s["tid"] == point["tid"]
                and s["ts"] - 1e-3 <= point["ts"] <= s["ts"] + s["dur"] + 1e-3
                for s in slices
            )


def test_arrows_show_launches_waits_and_the_last_arriver(document):
    kinds = [e["name"] for e in _events(document, "s")]
    assert kinds.count("launch") == 4
    assert kinds.count("wait") == 6
    rendezvous = [e for e in _events(document, "s") if e["name"] == "rendezvous"]
    assert [e["pid"] for e in rendezvous] == [1]
    end = next(e for e in _events(document, "f") if e["name"] == "rendezvous")
    assert end["pid"] == 0
    assert end["ts"] == pytest.approx(3010.0)


def test_times_never_are_negative_where_hosts_run_ahead(tmp_path: Path):
    program = _program()
    free = PricedProgram(
        program=Program(
            classes=tuple(
                RankClass(name=c.name, ranks=c.ranks, tasks=c.tasks[:2])
                for c in program.program.classes
            ),
            groups=program.program.groups,
        ),
        device_s=tuple(a[:2] for a in program.device_s),
        dispatch_s=tuple(a[:2] for a in program.dispatch_s),
        causes=tuple(c[:2] for c in program.causes),
    )
    timeline = simulate(free)
    assert min(float(np.nanmin(a)) for a in timeline.issue_start_s) < 0
    write_perfetto(timeline, tmp_path / "trace.json")
    document = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    assert min(e["ts"] for e in document["traceEvents"] if "ts" in e) == 0.0
    assert (tmp_path / "trace.json").stat().st_size < 6000


def test_ranks_simulated_one_by_one_show_the_first_of_each_class(tmp_path: Path):
    write_perfetto(simulate(_program(), unfold=True), tmp_path / "unfolded.json")
    write_perfetto(simulate(_program()), tmp_path / "folded.json")
    assert (tmp_path / "unfolded.json").read_text() == (tmp_path / "folded.json").read_text()
