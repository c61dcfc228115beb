"""A whole training run: how long, how many GPU-hours, what it costs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from perfmodel.errors import InputError
from perfmodel.run import Run

_DAY_S = 86_400.0
_HOUR_S = 3_600.0
_KILO = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What training on `samples` takes; every interval holds the truth with 80 % probability.

    The error of a predicted iteration is the same in every iteration, so intervals scale with
    their number. Energy is that of the GPUs at their board power: an upper bound. Checkpoints,
    evaluation and failures are not part of it.
    """

    samples: float
    iterations: float
    days: float
    days_interval: tuple[float, float]
    gpu_hours: float
    gpu_hours_interval: tuple[float, float]
    energy_kwh_at_board_power: float
    cost: float | None
    cost_interval: tuple[float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def samples_to_train(run: Run, samples: float | None, tokens: float | None) -> float | None:
    """Samples of a training run that is stated in samples or in tokens; None if it is not.

    Raises
    ------
    InputError
        If both are stated, one is not positive, or the model knows no tokens.
    """
    if samples is not None and tokens is not None:
        raise InputError("samples and tokens to train are both stated; give one of them")
    amount = samples if tokens is None else tokens
    if amount is None:
        return None
    if not 0 < amount < 1e18:
        raise InputError(f"{amount!r} is not an amount to train on; use a number above 0")
    if tokens is None:
        return amount
    seq = getattr(run.workload.model, "seq", None)
    if seq is None:
        family = run.workload.model.family
        raise InputError(f"tokens are for transformers, the workload is a {family}; use samples")
    return tokens / float(seq)


def whole_training(
    run: Run,
    iteration_s: float,
    interval_s: tuple[float, float],
    samples: float,
    price: float | None = None,
) -> Training:
    """Days, GPU-hours, energy and cost of training on `samples`.

    Parameters
    ----------
    run : Run
    iteration_s, interval_s : seconds of one iteration and its 80 % interval
    samples : float
    price : float, optional
        Of one GPU for an hour, in the user's currency.
    """
    iterations = samples / run.workload.global_batch
    gpus = run.cluster.num_gpus

    def hours(seconds: float) -> float:
        return iterations * seconds * gpus / _HOUR_S

    low, high = interval_s
    spent = hours(iteration_s)
    return Training(
        samples=samples,
        iterations=iterations,
        days=iterations * iteration_s / _DAY_S,
        days_interval=(iterations * low / _DAY_S, iterations * high / _DAY_S),
        gpu_hours=spent,
        gpu_hours_interval=(hours(low), hours(high)),
        energy_kwh_at_board_power=spent * run.cluster.gpu.power_w / _KILO,
        cost=None if price is None else price * spent,
        cost_interval=None if price is None else (price * hours(low), price * hours(high)),
    )
