"""A Run: what is trained, how it is spread, what executes it, on what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

from perfmodel.errors import InvalidPlanError

if TYPE_CHECKING:
    from perfmodel.hardware.records import Cluster
    from perfmodel.plan.records import Plan
    from perfmodel.plan.stack import Stack
    from perfmodel.workload.records import Workload


MAX_PASSES = 200_000
"""Micro-batches x stages x chunks that are simulated; the bundled runs need 16,384 at most."""
_SIMULATED_ROUNDS = 7  # as long_pipelines has it
"""Rounds of `pp` micro-batches beyond which a pipeline is extrapolated (long_pipelines)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything a prediction needs.

    `notes` are assumptions made while reading (a default that was taken, a name that was
    resolved); `warnings` are doubts about the input itself (an unknown key, a plan that does not
    divide its model).
    """

    workload: Workload
    plan: Plan
    stack: Stack
    cluster: Cluster
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.plan.num_gpus != self.cluster.num_gpus:
            plan = self.plan
            raise InvalidPlanError(
                f"dp {plan.dp} x tp {plan.tp} x pp {plan.pp} x cp {plan.cp} = {plan.num_gpus} is "
                f"not the {self.cluster.num_gpus} GPUs of the cluster; their product must be"
            )
        self._check_length()

    def _check_length(self) -> None:
        """Pipelines are simulated pass by pass: refuse what would take hours and gigabytes."""
        if self.plan.pp == 1:
            return
        count = self.plan.num_micro_batches(self.workload.global_batch)
        simulated = min(count, _SIMULATED_ROUNDS * self.plan.pp)
        passes = simulated * self.plan.pp * self.plan.vp
        if passes > MAX_PASSES:
            raise InvalidPlanError(
                f"pp {self.plan.pp} x vp {self.plan.vp} needs {passes} passes of {simulated} "
                f"micro-batches, at most {MAX_PASSES:,} are simulated; lower pp or vp"
            )

    @classmethod
    def load(cls, path: str | PathLike[str], row: str | None = None) -> Run:
        """Read a RUN file (YAML or JSON), or one row in the published-run schema.

        Parameters
        ----------
        path : path
            A RUN file, a JSON file with one published run, or JSON lines of them.
        row : str, optional
            `id` of the published run; needed where the file holds several.

        Raises
        ------
        InputError
            One sentence with file and line: what is wrong and what is allowed.
        """
        from perfmodel.load import load_run  # the readers need this record

        return load_run(path, row)


def plan_problems(workload: Workload, plan: Plan) -> Iterator[str]:
    """One sentence for each way in which a plan does not divide its model.

    Such a plan cannot be run by the usual frameworks; a RUN file with one is refused, a published
    run with one (somebody did run it) is predicted with a warning.
    """
    model = workload.model
    heads = getattr(model, "heads", None)
    if heads is not None and heads % plan.tp:
        yield f"tp {plan.tp} does not divide heads {heads}; use a divisor"
    layers = _num_layers(workload)
    if plan.pp * plan.vp > layers:
        yield f"pp {plan.pp} x vp {plan.vp} is more than the model's {layers} layers; lower one"
    elif plan.vp > 1 and layers % (plan.pp * plan.vp):
        yield f"vp {plan.vp} x pp {plan.pp} does not divide layers {layers}; use a divisor"
    experts = getattr(getattr(model, "mixture", None), "num_experts", 1)
    if experts % plan.ep:
        yield f"ep {plan.ep} does not divide num_experts {experts}; use a divisor"
    if (plan.dp * plan.cp * plan.tp) % plan.ep:
        yield f"ep {plan.ep} does not divide dp x cp x tp = {plan.dp * plan.cp * plan.tp}"
    if plan.shard_group is not None and plan.dp % plan.shard_group:
        yield f"shard_group {plan.shard_group} does not divide dp {plan.dp}; use a divisor"
    if plan.tp > 1 and model.family != "transformer":
        yield f"tp {plan.tp} is only known for transformers; use dp"


def _num_layers(workload: Workload) -> int:
    blocks = workload.model.blocks()
    layers = sum(b.repeat for b in blocks if b.is_layer)
    return layers or 1
