"""Figures of a prediction that follow from its iteration time."""

from __future__ import annotations

from perfmodel.cost.kernels.constants import architecture_of
from perfmodel.cost.spread import SpreadFeatures
from perfmodel.errors import InputError
from perfmodel.plan.records import Recompute
from perfmodel.prediction import Throughput
from perfmodel.run import Run
from perfmodel.workload.flops import model_flops


def spread_features(run: Run) -> SpreadFeatures:
    """What decides how wide the interval of a run is."""
    return SpreadFeatures(
        family=run.workload.model.family,
        is_known_stack=run.stack.is_known,
        is_known_gpu=architecture_of(run.cluster.gpu)[1],
        num_gpus=run.cluster.num_gpus,
        num_nodes=run.cluster.num_nodes,
        num_assumptions=len(run.notes) + len(run.cluster.notes),
    )


def throughput(run: Run, seconds: float) -> Throughput:
    """Samples or tokens a second, in the unit of the workload."""
    unit = run.workload.throughput_unit
    amount = run.workload.global_batch
    if unit == "tokens/s":
        amount *= getattr(run.workload.model, "seq", 1)
    return Throughput(value=amount / seconds, unit=unit)


def utilisation(run: Run, seconds: float) -> tuple[float | None, float | None]:
    """MFU, and HFU with recomputed work; None where the GPU has no peak for the format."""
    try:
        peak = run.cluster.gpu.peak(run.workload.precision.compute)
    except InputError:
        return None, None
    work = model_flops(run.workload.model) * run.workload.global_batch
    mfu = work / (seconds * peak * run.cluster.num_gpus)
    again = 4 / 3 if run.plan.recompute is Recompute.FULL else 1.0
    return mfu, mfu * again
