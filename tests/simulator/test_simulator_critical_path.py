"""The critical path names what sets the pace, and nothing else."""

from __future__ import annotations

import pytest
from simulator_programs import collective, device, host, priced

from perfmodel.program.work import Cause
from perfmodel.simulator import simulate


def _path(tasks, **options):
    return simulate(priced([("rank", [0], tasks)], {"world": [[0]]}, **options)).critical_path()


def test_path_follows_the_last_arriver_across_ranks():
    program = priced(
        [
            ("fast", [4], [device("work", 1.0), collective("reduce", 2.0, "world", waits=[0])]),
            ("slow", [7], [device("work", 3.0), collective("reduce", 2.0, "world", waits=[0])]),
        ],
        {"world": [[4, 7]]},
        barrier=True,
    )
    path = simulate(program).critical_path()
    first, second = path.segments
    assert (first.class_name, first.rank, first.name, first.start_s, first.end_s) == (
        "slow", 7, "work", 0.0, 3.0,
    )  # fmt: skip
    assert (second.name, second.start_s, second.end_s) == ("reduce", 3.0, 5.0)
    assert path.summary() == pytest.approx(
        {Cause.GEMM: 2.25, Cause.DP_COMM: 2.0, Cause.ELEMENTWISE: 0.75}
    )


def test_path_of_a_straggler_simulated_rank_by_rank_names_its_number():
    tasks = [device("work", 1.0), collective("reduce", 1.0, "world", waits=[0])]
    program = priced([("rank", [2, 3], tasks)], {"world": [[2, 3]]}, barrier=True)
    device_s = program.device_s[0][:, :, None].repeat(2, axis=2)
    device_s[0, 0, 1] = 4.0
    slow = type(program)(
        program=program.program,
        device_s=(device_s,),
        dispatch_s=program.dispatch_s,
        causes=program.causes,
    )
    path = simulate(slow).critical_path()
    assert [(s.name, s.rank) for s in path.segments[:1]] == [("work", 3)]
    assert path.iteration_s == 5.0


def test_launch_bound_path_is_host_time_only():
    path = _path([device(f"k{n}", 1.0, issue=3.0) for n in range(4)], latency=0.5)
    assert path.summary() == {Cause.HOST: 12.0}
    assert path.by_kind() == {"host": 12.0}


def test_kernel_bound_path_is_kernel_time_only():
    path = _path([device(f"k{n}", 3.0, issue=1.0) for n in range(4)], latency=0.5)
    assert path.by_kind() == {"work": 12.0}


def test_path_with_a_barrier_shows_the_first_launch_and_its_latency():
    tasks = [device("k", 12.0, issue=4.0, launches=4.0)]
    path = _path(tasks, latency=0.5, barrier=True)
    assert [(s.kind, s.duration_s) for s in path.segments] == [
        ("host", 1.0), ("launch", 0.5), ("work", 12.0),
    ]  # fmt: skip
    assert path.summary()[Cause.IDLE] == 0.5


def test_path_of_a_lumped_launch_bound_task_ends_with_its_last_kernel():
    tasks = [device("k", 4.0, issue=12.0, launches=4.0)]
    path = _path(tasks, latency=0.5, barrier=True)
    assert [(s.kind, s.duration_s) for s in path.segments] == [
        ("host", 12.0), ("launch", 0.5), ("work", 1.0),
    ]  # fmt: skip


def test_path_of_a_slow_loader_is_the_loader_alone():
    tasks = [host("load", 4.0, lane="loader"), device("train", 3.0, before=[0])]
    path = _path(tasks)
    assert path.by_kind() == {"host": 4.0}
    assert {s.name for s in path.segments} == {"load"}


def test_path_through_a_host_synchronisation_has_host_launch_and_kernel():
    tasks = [device("k", 5.0, issue=1.0), host("item()", 0.5, waits=[0])]
    path = _path(tasks, latency=0.25)
    assert path.by_kind() == {"work": 5.0, "host": 1.5, "launch": 0.25}
    assert path.iteration_s == 6.75


def test_path_through_a_full_launch_queue_goes_from_kernel_to_launch():
    path = _path([device("k", 5.0, issue=1.0)], queue=1)
    assert path.by_kind() == {"work": 5.0, "host": 1.0}
