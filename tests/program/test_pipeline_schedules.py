"""Orders of pipeline schedules: complete, causal, within their memory bound."""

from hypothesis import given
from hypothesis import strategies as st

from perfmodel.plan.records import Schedule
from perfmodel.program.schedules import Slot, stage_order
from perfmodel.program.work import Pass


@given(stages=st.integers(2, 9), rounds=st.integers(1, 5), chunks=st.integers(1, 4))
def test_every_micro_batch_runs_once_each_way_and_forward_first(stages, rounds, chunks):
    for schedule in Schedule:
        for stage in range(stages):
            order = stage_order(schedule, stage, stages, rounds * stages, chunks)
            seen = set()
            for slot in order:
                assert slot not in seen
                seen.add(slot)
                if slot.direction is Pass.BACKWARD:
                    assert Slot(Pass.FORWARD, slot.micro_batch, slot.chunk) in seen
            used = chunks if schedule is not Schedule.ONE_F_ONE_B or chunks > 1 else 1
            assert len(order) == 2 * rounds * stages * used


@given(stages=st.integers(2, 9), count=st.integers(1, 40))
def test_1f1b_keeps_no_more_micro_batches_in_flight_than_stages_that_follow(stages, count):
    for stage in range(stages):
        alive = peak = 0
        for slot in stage_order(Schedule.ONE_F_ONE_B, stage, stages, count):
            alive += 1 if slot.direction is Pass.FORWARD else -1
            peak = max(peak, alive)
        assert peak == min(stages - stage, count)


def test_last_stage_of_1f1b_alternates():
    order = stage_order(Schedule.ONE_F_ONE_B, 3, 4, 3)
    assert [s.direction for s in order] == [Pass.FORWARD, Pass.BACKWARD] * 3
