"""Measured collectives: readers of logs, the table, fitting and evaluation."""

from perfmodel.measure.collectives.evaluate import EvaluateResult, evaluate_collectives
from perfmodel.measure.collectives.fit import FitResult, fit_collectives
from perfmodel.measure.collectives.nccl_tests import import_nccl_tests
from perfmodel.measure.collectives.own import own_curves
from perfmodel.measure.collectives.table import ImportResult, Skip

__all__ = [
    "EvaluateResult",
    "FitResult",
    "ImportResult",
    "Skip",
    "evaluate_collectives",
    "fit_collectives",
    "import_nccl_tests",
    "own_curves",
]
