"""The flow: workload x plan x stack x cluster -> Program -> priced -> Timeline -> Prediction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from perfmodel.cost.collectives import CollectiveModel
from perfmodel.cost.execution import ExecutionBundle, load_execution
from perfmodel.cost.host import HostModel
from perfmodel.cost.kernels import KernelModel
from perfmodel.cost.parameters import ParameterSet
from perfmodel.cost.price import price
from perfmodel.cost.protocol import CostModel
from perfmodel.cost.spread import interval
from perfmodel.figures import spread_features, throughput, utilisation
from perfmodel.long_pipelines import extrapolated, shortened
from perfmodel.memory import estimate_memory
from perfmodel.prediction import COMMUNICATION, Prediction, bound_by
from perfmodel.program.lower import lower
from perfmodel.program.priced import PricedProgram
from perfmodel.run import Run
from perfmodel.simulator import simulate

_SHORTENED = (
    "a long pipeline: two shorter ones are simulated and the line through them is followed; the "
    "timeline and critical path show the longer of the two"
)
_UNSETTLED = "the iteration did not settle into a steady period: its time is that of the last one"


@cache
def default_models() -> tuple[CostModel, ...]:
    """Cost models in the order they are asked."""
    return (KernelModel(), CollectiveModel(), HostModel())


@cache
def _shipped_bundle() -> ExecutionBundle:
    return load_execution()


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
    bundle: ExecutionBundle | None = None,
    models: Sequence[CostModel] | None = None,
) -> Prediction:
    """Iteration time, interval, memory and explanation of one run.

    Parameters
    ----------
    run : Run
        Workload, plan, stack, cluster.
    bundle : ExecutionBundle, optional
        Calibrated multipliers and widths of the interval; the shipped ones if None. With
        `ExecutionBundle()` every cause has its documented first value.
    models : sequence of CostModel, optional
        Asked in order instead of the default ones.

    Raises
    ------
    InputError, RefusedError
        If the run cannot be predicted; the message says what to change.
    """
    calibrated = bundle if bundle is not None else _shipped_bundle()
    parameters = calibrated.parameters
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
    mfu, hfu = utilisation(run, seconds)
    priced = timeline.priced
    program = priced.program
    return Prediction(
        iteration_time_s=seconds,
        interval_s=interval(seconds, spread_features(run), calibrated.spread),
        throughput=throughput(run, seconds),
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


def _unique(*groups: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sentence for group in groups for sentence in group))
