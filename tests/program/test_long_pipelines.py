"""Long pipelines follow the line through two short ones."""

from dataclasses import replace

import pytest

from perfmodel.cost.execution import ExecutionBundle
from perfmodel.hardware.clusters import cluster_from_names
from perfmodel.hardware.records import Dtype
from perfmodel.long_pipelines import shortened
from perfmodel.plan.records import Plan, Schedule
from perfmodel.plan.stacks import stack_by_name
from perfmodel.predict import predict, price_run
from perfmodel.run import Run
from perfmodel.simulator import simulate
from perfmodel.workload.records import Precision, Workload
from perfmodel.workload.transformer import TransformerModel

MODEL = TransformerModel(layers=16, hidden=1024, heads=16, ffn=4096, vocab=32000, seq=1024)


def run_of(plan: Plan, batch: float) -> Run:
    workload = Workload(
        name="test", model=MODEL, global_batch=batch, precision=Precision.of(Dtype.BF16)
    )
    return Run(
        workload=workload,
        plan=plan,
        stack=stack_by_name("megatron_2021"),
        cluster=cluster_from_names("dgx_a100_80", 1),
    )


@pytest.mark.parametrize(
    "plan",
    [Plan(pp=8), Plan(pp=8, vp=2, schedule=Schedule.INTERLEAVED), Plan(dp=2, pp=4)],
    ids=["1f1b", "interleaved", "dp"],
)
def test_extrapolated_iteration_equals_the_simulated_one(plan):
    run = run_of(plan, 2400.0 * plan.dp * plan.dp)
    assert shortened(run) is not None
    whole = float(simulate(price_run(run)).iteration_s[0])
    prediction = predict(run, bundle=ExecutionBundle())
    assert prediction.iteration_time_s == pytest.approx(whole, rel=1e-6)
    assert sum(prediction.breakdown_s.values()) == pytest.approx(prediction.iteration_time_s)
    assert any("long pipeline" in note for note in prediction.assumptions)


def test_short_pipelines_are_simulated_whole():
    assert shortened(run_of(Plan(pp=8), 64.0)) is None
    assert shortened(replace(run_of(Plan(dp=8), 64000.0))) is None
