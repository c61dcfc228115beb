"""`KernelModel`: prices device work in closed form, every kind but collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from perfmodel.cost.kernels import analytic
from perfmodel.cost.kernels import constants as c
from perfmodel.cost.kernels.columns import Column
from perfmodel.cost.protocol import Estimate
from perfmodel.hardware.records import Cluster, Gpu
from perfmodel.program.work import (
    Attention,
    Convolution,
    Copy,
    EmbeddingLookup,
    Gemm,
    GroupedGemm,
    Memory,
    OptimizerStep,
    Work,
)

# Kind of work -> its closed form and the name of its spread.
_FAMILIES: dict[type, tuple[Callable[[Any, Gpu], Column], str]] = {
    Gemm: (analytic.gemm_seconds, "gemm"),
    Attention: (analytic.attention_seconds, "attention"),
    Memory: (analytic.memory_seconds, "memory"),
    Convolution: (analytic.convolution_seconds, "convolution"),
    EmbeddingLookup: (analytic.embedding_seconds, "embedding"),
    GroupedGemm: (analytic.grouped_gemm_seconds, "experts"),
    OptimizerStep: (analytic.optimizer_seconds, "optimizer"),
    Copy: (analytic.copy_seconds, "copy"),
}


class KernelModel:
    """Analytic model of device work.

    Notes
    -----
    Valid for any GPU with a data sheet; architectures without constants of their own borrow those
    of the nearest one, with a warning and a wider spread. Source of the constants: `constants`.
    """

    def handles(self, work: Work) -> bool:
        """Whether this model prices `work`: all device work but collectives."""
        return type(work) in _FAMILIES

    def estimate(self, works: Sequence[Work], cluster: Cluster) -> Estimate:
        """Seconds of each work on the GPU of `cluster`.

        Raises
        ------
        InputError
            If the GPU can neither run nor emulate a dtype.
        """
        gpu = cluster.gpu
        architecture, is_own = c.architecture_of(gpu)
        groups: dict[type, list[int]] = {}
        for row, work in enumerate(works):
            groups.setdefault(type(work), []).append(row)
        parts: list[tuple[list[int], Column]] = []
        log_sigma = np.zeros(len(works))
        for kind, rows in groups.items():
            seconds, name = _FAMILIES[kind]
            parts.append((rows, seconds([works[r] for r in rows], gpu)))
            log_sigma[rows] = c.LOG_SIGMA[name]
        out = np.zeros((len(works), max((p.shape[1] for _, p in parts), default=1)))
        for rows, part in parts:
            out[rows] = part
        if is_own:
            return Estimate(seconds=out, log_sigma=log_sigma)
        log_sigma = np.hypot(log_sigma, c.UNKNOWN_ARCHITECTURE_LOG_SIGMA)
        warning = f"no kernel constants for {gpu.architecture}: those of {architecture} are used"
        return Estimate(seconds=out, log_sigma=log_sigma, warnings=(warning,))
