"""How long kernels take: an analytic model, and models fitted on measured kernels."""

from perfmodel.cost.kernels.model import KernelModel

__all__ = ["KernelModel"]
