"""Measured collectives: readers of logs, the table, fitting and evaluation."""

from perfmodel.measure.collectives.nccl_tests import import_nccl_tests
from perfmodel.measure.collectives.table import ImportResult, Skip

__all__ = ["ImportResult", "Skip", "import_nccl_tests"]
