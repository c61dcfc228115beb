"""The flow: workload x plan x stack x cluster -> Program -> priced -> Timeline -> Prediction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from perfmodel.cost.collectives import CollectiveModel
from perfmodel.cost.host import HostModel
from perfmodel.cost.kernels import KernelModel
from perfmodel.cost.parameters import ParameterSet
from perfmodel.cost.price import price
from perfmodel.cost.protocol import CostModel
from perfmodel.cost.spread import SpreadFeatures, SpreadTable, interval
from perfmodel.errors import InputError
from perfmodel.long_pipelines import extrapolated, shortened
from perfmodel.memory import estimate_memory
from perfmodel.plan.records import Recompute
from perfmodel.prediction import COMMUNICATION, Prediction, Throughput, bound_by
from perfmodel.program.lower import lower
from perfmodel.program.priced import PricedProgram
from perfmodel.run import Run
from perfmodel.simulator import simulate
from perfmodel.workload.flops import model_flops

_SHORTENED = (
    "a long pipeline: two shorter ones are simulated and the line through them is followed; the "
    "timeline and critical path show the longer of the two"
)
_UNSETTLED = "the iteration did not settle into a steady period: its time is that of the last one"


@cache
def default_models() -> tuple[CostModel, ...]:
    """Cost models in the order they are asked."""
    return (KernelModel(), CollectiveModel(), HostModel())


def price_run(
    run: Run, *, parameters: ParameterSet | None = None, models: Sequence[CostModel] | None = None
) -> PricedProgram:
    """Lower and price a run; `parameters` may hold arrays, one value a scenario."""
    program = lower(run.workload, run.plan, run.stack, run.cluster)
    return price(
        program, models or default_models(), run.cluster, run.stack, parameters or ParameterSet()
    )


def predict(
    run: Run,
    *,
    parameters: ParameterSet | None = None,
    spread: SpreadTable | None = None,
    models: Sequence[CostModel] | None = None,
) -> Prediction:
    """Iteration time, interval, memory and explanation of one run.

    Parameters
    ----------
    run : Run
        Workload, plan, stack, cluster.
    parameters : ParameterSet, optional
        Calibrated multipliers; without them every cause has its documented first value.
    spread : SpreadTable, optional
        Calibrated widths of the interval.
    models : sequence of CostModel, optional
        Asked in order instead of the default ones.

    Raises
    ------
    InputError, RefusedError
        If the run cannot be predicted; the message says what to change.
    """
    notes: tuple[str, ...] = ()
    short = shortened(run)
    if short is None:
        timeline = simulate(price_run(run, parameters=parameters, models=models))
        breakdown = timeline.critical_path().summary()
        seconds = float(timeline.iteration_s[0])
    else:
        few, timeline = (
            simulate(price_run(r, parameters=parameters, models=models)) for r in short
        )
        breakdown = extrapolated(
            run, few.critical_path().summary(), timeline.critical_path().summary()
        )
        seconds = sum(breakdown.values())
        notes = (_SHORTENED,)
    mfu, hfu = _utilisation(run, seconds)
    priced = timeline.priced
    program = priced.program
    return Prediction(
        iteration_time_s=seconds,
        interval_s=interval(seconds, spread_features(run), spread or SpreadTable()),
        throughput=_throughput(run, seconds),
        memory=estimate_memory(run.workload, run.plan, run.stack, run.cluster),
        breakdown_s=breakdown,
        critical_path=timeline.critical_path(),
        exposed_communication_s=sum(breakdown.get(c, 0.0) for c in COMMUNICATION),
        bound_by=bound_by(breakdown),
        mfu=mfu,
        hfu=hfu,
        assumptions=_unique(run.notes, run.cluster.notes, program.assumptions, notes),
        warnings=_unique(
            run.warnings,
            program.warnings,
            priced.warnings,
            () if timeline.is_settled[0] else (_UNSETTLED,),
        ),
        timeline=timeline,
    )


def spread_features(run: Run) -> SpreadFeatures:
    """What decides how wide the interval of a run is."""
    from perfmodel.cost.kernels.constants import architecture_of

    return SpreadFeatures(
        family=run.workload.model.family,
        is_known_stack=run.stack.is_known,
        is_known_gpu=architecture_of(run.cluster.gpu)[1],
        num_gpus=run.cluster.num_gpus,
        num_nodes=run.cluster.num_nodes,
        num_assumptions=len(run.notes) + len(run.cluster.notes),
    )


def _throughput(run: Run, seconds: float) -> Throughput:
    unit = run.workload.throughput_unit
    amount = run.workload.global_batch
    if unit == "tokens/s":
        amount *= getattr(run.workload.model, "seq", 1)
    return Throughput(value=amount / seconds, unit=unit)


def _utilisation(run: Run, seconds: float) -> tuple[float | None, float | None]:
    try:
        peak = run.cluster.gpu.peak(run.workload.precision.compute)
    except InputError:
        return None, None
    work = model_flops(run.workload.model) * run.workload.global_batch
    mfu = work / (seconds * peak * run.cluster.num_gpus)
    again = 4 / 3 if run.plan.recompute is Recompute.FULL else 1.0
    return mfu, mfu * again


def _unique(*groups: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sentence for group in groups for sentence in group))
