"""Slowdown of overlapping work and sharing of links."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulator_fluid import Fluid
from simulator_programs import collective, device, priced, with_durations

from perfmodel.errors import InputError
from perfmodel.program.priced import PricedProgram
from perfmodel.program.records import Overlap
from perfmodel.simulator import simulate


def test_kernels_and_collectives_slow_each_other_while_both_run():
    tasks = [
        device("a", 2.0),
        collective("reduce", 4.0, "world", waits=[0]),
        device("b", 10.0),
    ]
    overlap = Overlap(compute_slowdown=0.5, comm_slowdown=1.0)
    program = priced([("r", [0, 1], tasks)], {"world": [[0, 1]]}, barrier=True, overlap=overlap)
    for unfold in (False, True):
        timeline = simulate(program, unfold=unfold)
        # At half rate the collective runs 2-10. Until then b has done 8 / 1.5 of its 10 seconds.
        assert timeline.end_s[0][1].ravel()[0] == pytest.approx(10.0, rel=1e-5)
        assert timeline.iteration_s[0] == pytest.approx(10 + (10 - 8 / 1.5), rel=1e-5)
        assert timeline.is_settled[0]


def test_collectives_on_one_link_share_it():
    tasks = [collective("x", 4.0, "world"), collective("y", 6.0, "world", lane="second")]
    shared = Overlap(shared_links={"comm": "nic", "second": "nic"})
    apart = Overlap(shared_links={"comm": "nic", "second": "nvlink"})
    found = [
        simulate(priced([("r", [0], tasks)], {"world": [[0]]}, barrier=True, overlap=o))
        for o in (shared, apart)
    ]
    # x ends at 8; y has done 4 of 6 by then.
    assert found[0].end_s[0][:, 0] == pytest.approx([8.0, 10.0], rel=1e-5)
    assert found[1].end_s[0][:, 0].tolist() == [4.0, 6.0]


def test_a_collective_that_waits_for_another_rank_disturbs_nobody():
    fast = [collective("reduce", 1.0, "world"), device("work", 5.0)]
    slow = [device("late", 6.0, lane="copy"), collective("reduce", 1.0, "world", waits=[0])]
    program = priced(
        [("fast", [0], fast), ("slow", [1], slow)],
        {"world": [[0, 1]]},
        barrier=True,
        overlap=Overlap(compute_slowdown=1.0),
    )
    assert simulate(program).end_s[0][1, 0] == 5.0


def test_overlap_across_the_iteration_boundary_counts():
    # The collective of one iteration runs beside the kernel of the next: always both.
    tasks = [device("k", 3.0), collective("x", 3.0, "world", waits=[0])]
    overlap = Overlap(compute_slowdown=0.5, comm_slowdown=0.5)
    program = priced([("r", [0], tasks)], {"world": [[0]]}, overlap=overlap)
    timeline = simulate(program)
    assert timeline.iteration_s[0] == pytest.approx(4.5, rel=1e-5)
    path = timeline.critical_path()
    assert sum(s.duration_s for s in path.segments) == pytest.approx(timeline.iteration_s[0])


def test_negative_slowdowns_are_refused():
    program = priced([("r", [0], [device("a", 1.0)])], overlap=Overlap(comm_slowdown=-0.1))
    with pytest.raises(InputError, match="slowdowns"):
        simulate(program)


@st.composite
def contended(draw: st.DrawFn) -> PricedProgram:
    num = draw(st.integers(1, 2))
    lanes = draw(
        st.lists(
            st.sampled_from(["compute", "compute", "comm", "nic", "copy"]), min_size=1, max_size=6
        )
    )
    seconds = st.integers(0, 24).map(lambda n: n / 8)
    classes = []
    for c in range(num):
        tasks = []
        for i, lane in enumerate(lanes):
            waits = draw(st.lists(st.integers(0, i - 1), max_size=1)) if i else []
            if lane in ("comm", "nic"):
                tasks.append(collective(f"{i}", draw(seconds), "world", lane=lane, waits=waits))
            else:
                tasks.append(device(f"{i}", draw(seconds), lane=lane, waits=waits))
        classes.append((f"c{c}", [c], tasks))
    overlap = Overlap(
        compute_slowdown=draw(st.sampled_from([0, 0.25, 1.0])),
        comm_slowdown=draw(st.sampled_from([0, 0.5, 2.0])),
        shared_links=draw(st.sampled_from([{}, {"comm": "link", "nic": "link"}])),
    )
    return priced(classes, {"world": [list(range(num))]}, barrier=True, overlap=overlap)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(contended())
def test_fixed_point_is_the_exact_fluid_solution(program: PricedProgram):
    timeline = simulate(program)
    assert timeline.is_settled[0]
    assert timeline.iteration_s[0] == pytest.approx(Fluid(program).finish(), rel=1e-4, abs=1e-6)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(contended(), st.integers(0, 2**32 - 1))
def test_scenarios_together_equal_one_by_one(program: PricedProgram, seed: int):
    factors = np.random.default_rng(seed).uniform(0.5, 2, (1, 3))
    device_s = [a * factors for a in program.device_s]
    together = simulate(
        with_durations(program, device_s, [a * np.ones((1, 3)) for a in program.dispatch_s])
    )
    for s in range(3):
        alone = with_durations(program, [a[:, s : s + 1] for a in device_s], program.dispatch_s)
        assert simulate(alone).iteration_s[0] == pytest.approx(together.iteration_s[s], rel=1e-5)
