"""How long a training iteration takes on many GPUs, before anybody buys or books them.

    import perfmodel as pm
    prediction = pm.predict(pm.Run.load("run.yaml"))

Public names are loaded when first used: `import perfmodel` costs nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfmodel.errors import PerfmodelError as PerfmodelError
    from perfmodel.predict import predict as predict
    from perfmodel.prediction import Prediction as Prediction
    from perfmodel.run import Run as Run
    from perfmodel.search.rank import rank as rank
    from perfmodel.search.sweep import sweep as sweep

_HOMES = {
    "PerfmodelError": "perfmodel.errors",
    "Prediction": "perfmodel.prediction",
    "Run": "perfmodel.run",
    "predict": "perfmodel.predict",
    "rank": "perfmodel.search.rank",
    "sweep": "perfmodel.search.sweep",
}


def __getattr__(name: str) -> Any:
    if name == "plan":  # a package and a function
        return import_module("perfmodel.plan")
    if name not in _HOMES:
        raise AttributeError(f"module 'perfmodel' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "plan"})


class _PlanRoom(ModuleType):
    """The package `perfmodel.plan`, which is called to search a plan: `pm.plan(run)`."""

    def __call__(self, run: Run, **options: Any) -> Any:
        """Best plan of a run; see `perfmodel.search.plans.plan`."""
        return import_module("perfmodel.search.plans").plan(run, **options)


class _Package(ModuleType):
    """Keeps `perfmodel.predict` the function when its module of the same name is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "plan" and isinstance(value, ModuleType):
            value.__class__ = _PlanRoom
        is_home = isinstance(value, ModuleType) and _HOMES.get(name) == value.__name__
        super().__setattr__(name, getattr(value, name) if is_home else value)


sys.modules[__name__].__class__ = _Package
