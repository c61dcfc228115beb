"""Deadlocks name ranks and operators; unusable input is one sentence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulator_programs import collective, device, priced, with_durations

from perfmodel.errors import DeadlockError, InputError
from perfmodel.hardware.records import GroupShape
from perfmodel.program.records import Task, TaskKind, WorkItem
from perfmodel.program.work import Collective, CollectiveKind
from perfmodel.simulator import simulate


def test_collectives_in_opposite_order_on_one_stream_are_a_deadlock():
    first = [collective("reduce grads", 1.0, "dp"), collective("gather params", 1.0, "tp")]
    program = priced(
        [("stage0", [0, 1], first), ("stage1", [2, 3], first[::-1])],
        {"dp": [[0, 2], [1, 3]], "tp": [[0, 1, 2, 3]]},
    )
    for unfold in (False, True):
        with pytest.raises(DeadlockError) as caught:
            simulate(program, unfold=unfold)
        message = str(caught.value)
        for word in ("rank 0", "rank 2", "stage0", "stage1", "reduce grads", "gather params"):
            assert word in message


def test_a_deadlock_through_events_is_found():
    first = [
        collective("x", 1.0, "one", lane="s1"),
        collective("y", 1.0, "two", lane="s2", waits=[0]),
    ]
    second = [
        collective("y", 1.0, "two", lane="s2"),
        collective("x", 1.0, "one", lane="s1", waits=[0]),
    ]
    program = priced([("a", [0], first), ("b", [1], second)], {"one": [[0, 1]], "two": [[0, 1]]})
    with pytest.raises(DeadlockError, match=r"rank 0 .a. waits in 'x'"):
        simulate(program)


def test_a_missing_collective_is_a_deadlock_that_names_it():
    program = priced(
        [
            ("a", [0], [collective("x", 1.0, "dp"), collective("y", 1.0, "dp")]),
            ("b", [1], [collective("x", 1.0, "dp")]),
        ],
        {"dp": [[0, 1]]},
    )
    with pytest.raises(DeadlockError, match=r"rank 0 .a. issues 2 .* rank 1 .b. issues 1: 'y'"):
        simulate(program)


def test_different_kinds_that_meet_are_named():
    def task(name: str, kind: CollectiveKind) -> Task:
        shape = GroupShape(ranks_per_node=2, num_nodes=1)
        work = Collective(kind=kind, num_bytes=8.0, group=shape)
        return Task(
            name=name, kind=TaskKind.COLLECTIVE, lane="comm", group="dp", work=(WorkItem(work),)
        )

    program = priced(
        [
            ("a", [0], [collective("x", 1.0, "dp")]),
            ("b", [1], [collective("x", 1.0, "dp")]),
        ],
        {"dp": [[0, 1]]},
    )
    kinds = (("grads", CollectiveKind.ALL_REDUCE), ("params", CollectiveKind.ALL_GATHER))
    classes = tuple(
        replace(cls, tasks=(task(*kind),))
        for cls, kind in zip(program.program.classes, kinds, strict=True)
    )
    program = replace(program, program=replace(program.program, classes=classes))
    with pytest.raises(DeadlockError, match=r"all_reduce 'grads' .* all_gather 'params'"):
        simulate(program)


def _pair(groups: dict[str, list[list[int]]]):
    tasks = [collective("x", 1.0, "dp")]
    return priced([("a", [0, 1], tasks), ("b", [2, 3], tasks)], groups)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({}, "'dp' is not among the groups"),
        ({"dp": [[0, 1, 2, 4]]}, "belongs to no rank class"),
        ({"dp": [[0, 1, 2, 99]]}, "belongs to no rank class"),
        ({"dp": [[0, 2], [0, 3]]}, "more than one communicator"),
        ({"dp": [[0, 2]]}, "rank 1 of class 'a' is in no communicator"),
        ({"dp": [[0, 1]]}, "of which it is no member"),
    ],
)
def test_communicators_must_fit_the_ranks(groups, message: str):
    with pytest.raises(InputError, match=message):
        simulate(_pair(groups))


def test_ranks_of_a_class_in_unlike_communicators_need_unfolding():
    program = _pair({"dp": [[0, 1], [2, 3]]})
    assert simulate(program).iteration_s[0] == 1.0
    three = priced(
        [(n, r, [collective("x", 1.0, "dp")]) for n, r in (("a", [0, 1]), ("b", [2]), ("c", [3]))],
        {"dp": [[0, 2], [1, 3]]},
    )
    with pytest.raises(InputError, match="different make-up"):
        simulate(three)
    assert simulate(three, unfold=True).iteration_s[0] == 1.0


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_durations_must_be_numbers_not_below_zero(bad: float):
    program = priced([("a", [0], [device("fine", 1.0), device("broken", 1.0)])])
    device_s = np.array([[1.0], [bad]])
    with pytest.raises(InputError, match="'broken' of class 'a'"):
        simulate(with_durations(program, [device_s], program.dispatch_s))


@pytest.mark.parametrize("shape", [(3, 1), (2, 1, 5), (2,)])
def test_durations_must_fit_the_tasks(shape: tuple[int, ...]):
    program = priced([("a", [0, 1], [device("x", 1.0), device("y", 1.0)])])
    with pytest.raises(InputError, match="shape"):
        simulate(with_durations(program, [np.ones(shape)], program.dispatch_s))


def test_waits_must_point_to_earlier_tasks():
    for options in ({"waits": [1]}, {"waits": [-1]}, {"before": [7]}):
        program = priced([("a", [0], [device("x", 1.0), device("y", 1.0, **options)])])
        with pytest.raises(InputError, match="'y'"):
            simulate(program)


def test_other_bad_input_is_refused():
    with pytest.raises(InputError, match="no tasks"):
        simulate(priced([("idle", [0], [])]))
    tasks = [device("x", 1.0)]
    with pytest.raises(InputError, match="one rank class each"):
        simulate(priced([("a", [0], tasks), ("b", [0], tasks)]))
    with pytest.raises(InputError, match="has no ranks"):
        simulate(priced([("a", [], tasks)]))
    with pytest.raises(InputError, match="launch_queue"):
        simulate(priced([("a", [0], tasks)], queue=0))
    with pytest.raises(InputError, match="max_iterations"):
        simulate(priced([("a", [0], tasks)]), max_iterations=0)
