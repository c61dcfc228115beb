"""Cases computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_programs import Timed, collective, device, host, priced, with_durations

from perfmodel.simulator import simulate


def _one_rank(tasks: list[Timed], **options):
    return priced([("rank", [0], tasks)], {"world": [[0]]}, **options)


def test_collective_starts_when_the_last_of_two_ranks_arrives():
    program = priced(
        [
            ("fast", [0], [device("work", 1.0), collective("reduce", 2.0, "world", waits=[0])]),
            ("slow", [1], [device("work", 3.0), collective("reduce", 2.0, "world", waits=[0])]),
        ],
        {"world": [[0, 1]]},
        barrier=True,
    )
    timeline = simulate(program)
    assert timeline.iteration_s[0] == 5.0
    assert timeline.start_s[0][:, 0].tolist() == [0.0, 1.0]
    assert timeline.end_s[0][:, 0].tolist() == [1.0, 5.0]
    assert timeline.straggler_wait_s(0)[0] == 2.0
    assert timeline.straggler_wait_s(1)[0] == 0.0
    assert timeline.exposed_communication_s(0)[0] == 2.0
    assert timeline.lane_busy_s(0)["comm"][0] == 2.0


def test_members_of_a_collective_end_together_after_the_longest_transfer():
    program = priced(
        [
            ("small", [0], [collective("exchange", 2.0, "world")]),
            ("large", [1], [collective("exchange", 3.0, "world")]),
        ],
        {"world": [[0, 1]]},
        barrier=True,
    )
    timeline = simulate(program)
    assert timeline.end_s[0][0, 0] == timeline.end_s[1][0, 0] == 3.0


def _ddp(bucket_s: float):
    tasks: list[Timed] = []
    for bucket in range(3):
        tasks.append(device(f"backward{bucket}", 2.0))
        tasks.append(collective(f"bucket{bucket}", bucket_s, "world", waits=[len(tasks) - 1]))
    tasks.append(device("optimizer", 1.0, waits=[5]))
    return priced([("replica", [0, 1], tasks)], {"world": [[0, 1]]}, barrier=True)


def test_ddp_buckets_overlap_backward():
    # Buckets run 2-5, 5-8, 8-11 beside backward, which ends at 6; the optimizer waits for 11.
    slow = simulate(_ddp(3.0))
    assert slow.iteration_s[0] == 12.0
    assert slow.exposed_communication_s(0)[0] == 5.0
    # Buckets run 2-3, 4-5, 6-7: only the last one shows.
    fast = simulate(_ddp(1.0))
    assert fast.iteration_s[0] == 8.0
    assert fast.exposed_communication_s(0)[0] == 1.0


def test_a_collective_does_not_delay_compute_that_no_event_ties_to_it():
    tasks = [device("a", 1.0), collective("x", 9.0, "world", waits=[0]), device("b", 5.0)]
    timeline = simulate(_one_rank(tasks, barrier=True))
    assert timeline.end_s[0][2, 0] == 6.0
    assert timeline.iteration_s[0] == 10.0


def _sends(stages: int, schedule, forward_s: float, backward_s: float, virtual: int):
    """Pipeline whose activations and gradients move in no time between virtual stages."""
    last = virtual - 1
    classes = []
    for rank in range(stages):
        tasks: list[Timed] = []
        for direction, chunk, micro in schedule(rank):
            stage = chunk * stages + rank
            step = 1 if direction == "f" else -1
            waits: list[int] = []
            if 0 <= stage - step <= last:
                kind = f"{direction}{stage}"
                tasks.append(collective(f"recv {kind}.{micro}", 0.0, kind, lane=f"recv {kind}"))
                waits = [len(tasks) - 1]
            seconds = forward_s if direction == "f" else backward_s
            tasks.append(device(f"{direction}{stage}.{micro}", seconds, waits=waits))
            if 0 <= stage + step <= last:
                kind = f"{direction}{stage + step}"
                done = len(tasks) - 1
                tasks.append(
                    collective(f"send {kind}.{micro}", 0.0, kind, lane=f"send {kind}", waits=[done])
                )
        classes.append((f"stage{rank}", [rank], tasks))
    groups = {}
    for stage in range(virtual):
        here = stage % stages
        groups[f"f{stage}"] = [[(here - 1) % stages, here]]
        groups[f"b{stage}"] = [[(here + 1) % stages, here]]
    return priced(classes, groups)


@pytest.mark.parametrize(("stages", "micros"), [(1, 3), (2, 4), (4, 4), (4, 9), (8, 16)])
def test_1f1b_bubble_is_stages_minus_one_micro_batches(stages: int, micros: int):
    def schedule(rank: int):
        warm = min(stages - rank - 1, micros)
        yield from (("f", 0, m) for m in range(warm))
        for m in range(micros - warm):
            yield ("f", 0, warm + m)
            yield ("b", 0, m)
        yield from (("b", 0, m) for m in range(micros - warm, micros))

    timeline = simulate(_sends(stages, schedule, 1.0, 2.0, stages))
    assert timeline.iteration_s[0] == pytest.approx((micros + stages - 1) * 3.0, rel=1e-12)


@pytest.mark.parametrize(
    ("stages", "chunks", "micros"), [(2, 2, 4), (4, 2, 8), (4, 3, 8), (4, 4, 16)]
)
def test_interleaved_1f1b_divides_the_bubble_by_the_number_of_chunks(
    stages: int, chunks: int, micros: int
):
    total = micros * chunks

    def forward(k: int):
        return (k % (stages * chunks)) // stages, k // (stages * chunks) * stages + k % stages

    def schedule(rank: int):
        warm = min(2 * (stages - rank - 1) + (chunks - 1) * stages, total)
        for k in range(total + warm):
            if k < total:
                yield ("f", *forward(k))
            if k >= warm:
                chunk, micro = forward(k - warm)
                yield ("b", chunks - 1 - chunk, micro)

    timeline = simulate(_sends(stages, schedule, 1.0, 2.0, stages * chunks))
    # One chunk takes 3 s, so a whole stage takes 3 s x chunks per micro-batch.
    work, bubble = micros * 3.0 * chunks, (stages - 1) * 3.0
    assert timeline.iteration_s[0] == pytest.approx(work + bubble, rel=1e-12)


def test_launch_bound_gpu_waits_for_the_host():
    tasks = [device(f"k{n}", 1.0, issue=3.0) for n in range(4)]
    assert simulate(_one_rank(tasks, latency=0.5)).iteration_s[0] == 12.0
    # The last launch ends at 12, its kernel starts 0.5 later and takes 1.
    assert simulate(_one_rank(tasks, latency=0.5, barrier=True)).iteration_s[0] == 13.5


def test_kernel_bound_gpu_hides_launches():
    tasks = [device(f"k{n}", 3.0, issue=1.0) for n in range(4)]
    assert simulate(_one_rank(tasks, latency=0.5)).iteration_s[0] == 12.0
    # Only the first launch and its latency show.
    assert simulate(_one_rank(tasks, latency=0.5, barrier=True)).iteration_s[0] == 13.5


@pytest.mark.parametrize(("kernel_s", "issue_s"), [(1.0, 3.0), (3.0, 1.0), (2.0, 2.0)])
def test_a_lumped_task_equals_its_kernels_one_by_one(kernel_s: float, issue_s: float):
    apart = [device(f"k{n}", kernel_s, issue=issue_s) for n in range(4)]
    lumped = [device("k", 4 * kernel_s, issue=4 * issue_s, launches=4.0)]
    for barrier in (False, True):
        expected = simulate(_one_rank(apart, latency=0.25, barrier=barrier))
        found = simulate(_one_rank(lumped, latency=0.25, barrier=barrier))
        assert found.iteration_s[0] == pytest.approx(expected.iteration_s[0], rel=1e-12)
        assert found.start_s[0][0, 0] == pytest.approx(expected.start_s[0][0, 0], rel=1e-12)


def test_host_synchronisation_serialises_host_and_device():
    tasks = [device("k", 5.0, issue=1.0), host("item()", 0.5, waits=[0])]
    assert simulate(_one_rank(tasks)).iteration_s[0] == 6.5
    # Without it the kernels of the next iteration are already there.
    assert simulate(_one_rank([tasks[0], host("log", 0.5)])).iteration_s[0] == 5.0


@pytest.mark.parametrize(("slots", "period"), [(1, 6.0), (2, 5.0), (1024, 5.0)])
def test_launch_queue_limits_how_far_the_host_runs_ahead(slots: int, period: float):
    timeline = simulate(_one_rank([device("k", 5.0, issue=1.0)], queue=slots))
    assert timeline.iteration_s[0] == period


def test_host_blocks_within_an_iteration_when_the_queue_is_full():
    tasks = [device(f"k{n}", 5.0, issue=1.0) for n in range(4)]
    timeline = simulate(_one_rank(tasks, queue=2, barrier=True))
    # Kernels end at 6, 11, 16, 21; the third launch waits for the first end, and so on.
    assert timeline.issue_end_s[0][:, 0].tolist() == [1.0, 2.0, 7.0, 12.0]
    assert timeline.iteration_s[0] == 21.0


def test_slow_input_pipeline_sets_the_pace():
    tasks = [host("load", 4.0, lane="loader"), device("train", 3.0, before=[0])]
    assert simulate(_one_rank(tasks)).iteration_s[0] == 4.0
    assert simulate(_one_rank([tasks[0], device("train", 5.0, before=[0])])).iteration_s[0] == 5.0
    # With a barrier the batch is there when the iteration starts.
    assert simulate(_one_rank(tasks, barrier=True)).iteration_s[0] == 4.0


def test_a_lane_that_lags_at_first_still_sets_the_pace_in_the_end():
    # The chain ends at 3.625 + 2.25 k, the copy at 2.375 k: it catches up after 29 iterations.
    tasks = [
        device("first", 1.875, lane="a"),
        device("second", 1.75, lane="b", waits=[0]),
        device("third", 2.25, lane="c", waits=[1]),
        device("copy", 2.375, lane="copy"),
    ]
    timeline = simulate(_one_rank(tasks))
    assert timeline.iteration_s[0] == pytest.approx(2.375, rel=1e-12)
    assert timeline.is_settled[0]


def test_a_chain_over_two_iterations_has_its_mean_period():
    # u, v, then w an iteration later, then u another one later: 7 s every two iterations. From
    # rest, iterations take 3 and 4 s in turns.
    tasks = [
        device("u", 3.0, lane="a", before=[2]),
        device("v", 3.0, lane="b", waits=[0]),
        device("w", 1.0, lane="c", before=[1]),
    ]
    timeline = simulate(_one_rank(tasks))
    assert timeline.iteration_s[0] == pytest.approx(3.5, rel=1e-12)
    assert timeline.is_settled[0]
    path = timeline.critical_path()
    assert path.num_iterations == 2
    assert sum(s.duration_s for s in path.segments) == pytest.approx(3.5, rel=1e-9)
    assert {s.name for s in path.segments} == {"u", "v", "w"}


def test_opposite_orders_on_different_streams_are_no_deadlock():
    first = [collective("x", 1.0, "one", lane="s1"), collective("y", 1.0, "two", lane="s2")]
    second = [collective("y", 1.0, "two", lane="s2"), collective("x", 1.0, "one", lane="s1")]
    program = priced(
        [("a", [0], first), ("b", [1], second)], {"one": [[0, 1]], "two": [[0, 1]]}, barrier=True
    )
    assert simulate(program).iteration_s[0] == 1.0


def test_a_straggler_is_given_by_durations_of_its_own():
    tasks = [device("work", 1.0), collective("reduce", 0.5, "pair", waits=[0])]
    program = priced([("rank", [0, 1, 2, 3], tasks)], {"pair": [[0, 1], [2, 3]]}, barrier=True)
    device_s = np.repeat(program.device_s[0][:, :, None], 4, axis=2)
    device_s[0, 0, 3] = 2.0
    timeline = simulate(with_durations(program, [device_s], program.dispatch_s))
    assert timeline.is_unfolded
    assert timeline.end_s[0][1, 0].tolist() == [1.5, 1.5, 2.5, 2.5]
    assert timeline.straggler_wait_s(0)[0].tolist() == [0.0, 0.0, 1.0, 0.0]
    assert timeline.iteration_s[0] == 2.5


def test_a_class_may_be_alone_in_the_communicators_of_a_kind():
    tasks = [[device("w", s), collective("tp", 1.0, "tp", waits=[0])] for s in (1.0, 4.0)]
    program = priced(
        [("a", [0, 1], tasks[0]), ("b", [2, 3], tasks[1])],
        {"tp": [[0, 1], [2, 3]]},
        barrier=True,
    )
    for unfold in (False, True):
        timeline = simulate(program, unfold=unfold)
        assert timeline.end_s[0].max() == 2.0
        assert timeline.end_s[1].max() == 5.0


def test_scenarios_share_one_pass():
    tasks = [device("a", 1.0), collective("x", 1.0, "world", waits=[0])]
    program = priced([("r", [0], tasks), ("s", [1], tasks)], {"world": [[0, 1]]}, barrier=True)
    first = np.array([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]])
    second = np.array([[2.0, 2.0, 2.0], [1.0, 1.0, 5.0]])
    timeline = simulate(with_durations(program, [first, second], program.dispatch_s))
    assert timeline.iteration_s.tolist() == [3.0, 3.0, 8.0]
