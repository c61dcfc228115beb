"""How far a calibration parameter may plausibly be from 1: standard deviations of its logarithm.

Each figure is the spread of that quantity between independent measurements or first-guess values,
before any run is seen; the reasons stand beside them. Narrow priors keep a source that happens to
be alone with a parameter from explaining its errors through it.
"""

from __future__ import annotations

_BY_CAUSE = {
    # Ceilings of dense products over kernel tables: 0.70-0.80 of peak on one GPU and dtype.
    "gemm": 0.10,
    # cuDNN picks among algorithms and layouts.
    "convolution": 0.15,
    # Kernel generations are named apart; within one, versions differ by 20-40 %.
    "attention": 0.20,
    # Passes per layer are counted from the operator list; fusion is known to about 20 %.
    "elementwise": 0.15,
    "logits": 0.20,
    # Grouped products reach 0.3-0.5 of a dense one, by balance and kernel.
    "experts": 0.30,
    "optimizer": 0.20,  # traffic is known, launches and clipping less
    # Row gathers reach 0.5-0.7 of bandwidth; duplicates among indices depend on the data.
    "embedding": 0.20,
    "interaction": 0.30,  # unfused implementations differ by 2x
    "fabric": 0.15,  # nccl-tests on one kind of node agree within 10-20 %
    "network": 0.25,  # achieved share of the port rate: 0.5-0.9
    # What is hidden behind compute differs by stack more than the rate does.
    "tp_comm": 0.20,
    "cp_comm": 0.25,
    "ep_comm": 0.30,
    "pp_comm": 0.25,
    "dp_comm": 0.30,
    "shard_comm": 0.30,
    "embedding_comm": 0.25,
    "copy": 0.20,
    # Host costs follow the CPU and the framework version: 5-15 us per operator.
    "host": 0.40,
    "host_step": 0.50,  # 5-80 ms per iteration, by stack
    "input": 0.40,
}
_OTHER = 0.25
# A stack's own share on top of the class-level value of its cause: what one profile differs from
# the next, where its passes and policies are already counted.
_STACK_SHARE = 0.6


def prior_log_sigma(name: str) -> float:
    """Prior standard deviation of ln(value) of parameter `name`, e.g. "gemm.ampere.bf16".

    Names are those of `perfmodel.cost.parameters.parameter_names`: a cause or link, then what it
    is of. A stack's name after a cause makes the narrower prior of a deviation from the class.
    """
    cause, _, of = name.partition(".")
    sigma = _BY_CAUSE.get(cause, _OTHER)
    is_class_level = of == "all" or "." in of or cause in ("network", "fabric")
    return sigma if is_class_level else sigma * _STACK_SHARE
