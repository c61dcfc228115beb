"""Properties that hold for every valid program (contention switched off)."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulator_programs import Timed, collective, device, priced, programs, with_durations
from simulator_reference import Reference

from perfmodel.program.priced import PricedProgram
from perfmodel.program.records import RankClass, TaskKind
from perfmodel.simulator import Timeline, simulate

quick = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _close(a, b) -> bool:
    return np.allclose(a, b, rtol=1e-9, atol=1e-9, equal_nan=True)


def _same(a: Timeline, b: Timeline) -> bool:
    names = ("start_s", "end_s", "wait_s", "issue_start_s", "issue_end_s")
    pairs = [zip(getattr(a, n), getattr(b, n), strict=True) for n in names]
    return _close(a.iteration_s, b.iteration_s) and all(
        _close(x, y) for column in pairs for x, y in column
    )


@quick
@given(programs())
def test_period_equals_that_of_a_plain_simulation_of_every_rank(program: PricedProgram):
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        found = float(simulate(program).iteration_s[0])
        means = []
        # Few iterations nearly always suffice; lanes that catch up slowly need more.
        for iterations in (40, 400):
            ends = Reference(program, iterations).finishes()
            means.append((ends[-1] - ends[-13]) / 12)
            if _close(means[-1], found):
                return
        pytest.fail(f"period {found}, plain simulation {means}")
    finally:
        sys.setrecursionlimit(limit)


@quick
@given(programs(barrier=True))
def test_all_times_equal_those_of_a_plain_simulation(program: PricedProgram):
    timeline = simulate(program)
    plain = Reference(program, 1)
    for c, cls in enumerate(program.program.classes):
        rank = int(cls.ranks[0])
        for t, task in enumerate(cls.tasks):
            assert _close(timeline.end_s[c][t, 0], plain.end(0, rank, t))
            if task.kind is not TaskKind.HOST:
                assert _close(timeline.start_s[c][t, 0], plain.start(0, rank, t))
                if task.issued_by is not None:
                    assert _close(timeline.issue_end_s[c][t, 0], plain.issued(0, rank, t))


@quick
@given(programs())
def test_iteration_is_no_shorter_than_the_busiest_lane_or_thread(program: PricedProgram):
    timeline = simulate(program)
    for c in range(len(program.program.classes)):
        for busy in timeline.lane_busy_s(c).values():
            assert busy[0] <= timeline.iteration_s[0] + 1e-9


@quick
@given(programs(), st.data())
def test_iteration_grows_with_every_duration(program: PricedProgram, data: st.DataObject):
    device_s = [a.copy() for a in program.device_s]
    dispatch_s = [a.copy() for a in program.dispatch_s]
    arrays = data.draw(st.sampled_from([device_s, dispatch_s]))
    c = data.draw(st.integers(0, len(arrays) - 1))
    t = data.draw(st.integers(0, len(arrays[c]) - 1))
    arrays[c][t] += data.draw(st.integers(1, 16)) / 8
    longer = simulate(with_durations(program, device_s, dispatch_s))
    assert longer.iteration_s[0] >= simulate(program).iteration_s[0] - 1e-9


@quick
@given(programs(), st.data())
def test_a_dependency_more_never_shortens(program: PricedProgram, data: st.DataObject):
    classes = list(program.program.classes)
    c = data.draw(st.integers(0, len(classes) - 1))
    tasks = list(classes[c].tasks)
    t = data.draw(st.integers(0, len(tasks) - 1))
    field = data.draw(st.sampled_from(["waits", "waits_previous"]))
    last = t - 1 if field == "waits" else len(tasks) - 1
    if last < 0:
        return
    awaited = data.draw(st.integers(0, last))
    if field == "waits" and any(task.group for task in tasks):
        # A wait between collectives of different streams may turn into a deadlock.
        awaited = next((w for w in range(awaited, -1, -1) if not tasks[w].group), None)
        if awaited is None:
            return
    tasks[t] = replace(tasks[t], **{field: (*getattr(tasks[t], field), awaited)})
    classes[c] = replace(classes[c], tasks=tuple(tasks))
    more = replace(program, program=replace(program.program, classes=tuple(classes)))
    assert simulate(more).iteration_s[0] >= simulate(program).iteration_s[0] - 1e-9


@quick
@given(programs())
def test_critical_path_sums_to_the_iteration(program: PricedProgram):
    for unfold in (False, True):
        timeline = simulate(program, unfold=unfold)
        path = timeline.critical_path()
        assert _close(sum(s.duration_s for s in path.segments), timeline.iteration_s[0])
        assert _close(sum(path.summary().values()), timeline.iteration_s[0])
        assert _close(sum(path.by_class().values()), timeline.iteration_s[0])
        assert "idle" not in path.by_kind()
        for before, after in zip(path.segments[:-1], path.segments[1:], strict=True):
            assert _close(before.end_s, after.start_s)


@quick
@given(programs())
def test_folded_equals_unfolded(program: PricedProgram):
    folded, unfolded = simulate(program), simulate(program, unfold=True)
    assert _close(folded.iteration_s, unfolded.iteration_s)
    for name in ("start_s", "end_s", "wait_s", "issue_end_s"):
        for a, b in zip(getattr(folded, name), getattr(unfolded, name), strict=True):
            assert _close(np.broadcast_to(a[:, :, None], b.shape), b)


@quick
@given(programs(), st.randoms(use_true_random=False))
def test_renaming_ranks_changes_nothing(program: PricedProgram, random):
    old = np.concatenate([cls.ranks for cls in program.program.classes])
    new = list(range(3, 3 + len(old)))
    random.shuffle(new)
    name = np.zeros(old.max() + 1, dtype=np.int64)
    name[old] = new
    classes = tuple(
        RankClass(name=cls.name, ranks=name[cls.ranks][::-1].copy(), tasks=cls.tasks)
        for cls in program.program.classes
    )
    groups = {k: name[v][::-1, ::-1].copy() for k, v in program.program.groups.items()}
    renamed = replace(program, program=replace(program.program, classes=classes, groups=groups))
    for unfold in (False, True):
        assert _same(simulate(program, unfold=unfold), simulate(renamed, unfold=unfold))


@quick
@given(programs(max_classes=1))
def test_equal_ranks_do_not_wait_for_each_other(program: PricedProgram):
    cls = program.program.classes[0]
    copies = 3
    classes = tuple(
        RankClass(name=f"copy{i}", ranks=np.array([i]), tasks=cls.tasks) for i in range(copies)
    )
    groups = {kind: np.arange(copies)[None] for kind in program.program.groups}
    apart = PricedProgram(
        program=replace(program.program, classes=classes, groups=groups),
        device_s=program.device_s * copies,
        dispatch_s=program.dispatch_s * copies,
        causes=program.causes * copies,
    )
    timeline = simulate(apart)
    for c in range(copies):
        assert _close(timeline.straggler_wait_s(c), 0.0)


@quick
@given(programs(), st.integers(0, 2**32 - 1), st.booleans())
def test_scenarios_together_equal_scenarios_one_by_one(
    program: PricedProgram, seed: int, unfold: bool
):
    generator = np.random.default_rng(seed)
    device_s = [np.round(a * generator.uniform(0, 2, (1, 4)), 3) for a in program.device_s]
    dispatch_s = [np.round(a * generator.uniform(0, 2, (1, 4)), 3) for a in program.dispatch_s]
    together = simulate(with_durations(program, device_s, dispatch_s), unfold=unfold)
    for s in range(4):
        one = with_durations(
            program, [a[:, s : s + 1] for a in device_s], [a[:, s : s + 1] for a in dispatch_s]
        )
        alone = simulate(one, unfold=unfold)
        assert _close(alone.iteration_s[0], together.iteration_s[s])
        for a, b in zip(alone.end_s, together.end_s, strict=True):
            assert _close(a[:, 0], b[:, s])
        path = together.critical_path(scenario=s)
        assert _close(sum(p.duration_s for p in path.segments), together.iteration_s[s])


@quick
@given(programs(max_classes=2), st.integers(0, 2**32 - 1))
def test_ranks_of_one_class_with_own_durations_equal_classes_of_one_rank(
    program: PricedProgram, seed: int
):
    generator = np.random.default_rng(seed)
    device_s = [
        np.round(a[:, :, None] * generator.uniform(0, 2, (1, 1, cls.multiplicity)), 3)
        for a, cls in zip(program.device_s, program.program.classes, strict=True)
    ]
    unfolded = simulate(with_durations(program, device_s, program.dispatch_s))
    classes, apart_device, apart_dispatch, causes = [], [], [], []
    for c, cls in enumerate(program.program.classes):
        for i, rank in enumerate(cls.ranks):
            classes.append(RankClass(name=f"r{rank}", ranks=np.array([rank]), tasks=cls.tasks))
            apart_device.append(device_s[c][:, :, i])
            apart_dispatch.append(program.dispatch_s[c])
            causes.append(program.causes[c])
    apart = PricedProgram(
        program=replace(program.program, classes=tuple(classes)),
        device_s=tuple(apart_device),
        dispatch_s=tuple(apart_dispatch),
        causes=tuple(causes),
    )
    assert _close(simulate(apart).iteration_s, unfolded.iteration_s)
    path = unfolded.critical_path()
    assert _close(sum(s.duration_s for s in path.segments), unfolded.iteration_s[0])


def test_a_wait_that_the_lane_order_implies_changes_nothing():
    def tasks(waits: list[int]) -> list[Timed]:
        return [
            device("a", 1.0),
            device("b", 1.0, waits=waits),
            collective("c", 1.0, "world", waits=[1, *waits]),
        ]

    plain, more = (
        simulate(priced([("r", [0, 1], tasks(w))], {"world": [[0, 1]]})) for w in ([], [0])
    )
    assert _same(plain, more)
