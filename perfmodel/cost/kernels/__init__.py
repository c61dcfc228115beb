"""How long kernels take: an analytic model, and models fitted on measured kernels."""

from typing import TYPE_CHECKING, Any

from perfmodel.cost.kernels.model import KernelModel

if TYPE_CHECKING:
    from perfmodel.cost.kernels.fitted import FittedKernelModel

__all__ = ["FittedKernelModel", "KernelModel"]


def __getattr__(name: str) -> Any:
    if name == "FittedKernelModel":  # the catalogue it needs is not loaded by an analytic price
        from perfmodel.cost.kernels.fitted import FittedKernelModel

        return FittedKernelModel
    raise AttributeError(name)
