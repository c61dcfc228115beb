"""Measured collectives: readers of logs, the table, fitting and evaluation."""

from perfmodel.measure.collectives.evaluate import EvaluateResult, evaluate_collectives
from perfmodel.measure.collectives.fit import FitResult, fit_collectives
from perfmodel.measure.collectives.nccl_tests import import_nccl_tests
from perfmodel.measure.collectives.own import OwnLogs, own_curves, read_own_logs
from perfmodel.measure.collectives.param_comms import import_param_comms
from perfmodel.measure.collectives.plot import curve_table, plot_curves
from perfmodel.measure.collectives.table import ImportResult, Skip
from perfmodel.measure.collectives.topo import import_topo, read_topology
from perfmodel.measure.collectives.topo_node import node_from_topology

__all__ = [
    "EvaluateResult",
    "FitResult",
    "ImportResult",
    "OwnLogs",
    "Skip",
    "curve_table",
    "evaluate_collectives",
    "fit_collectives",
    "import_nccl_tests",
    "import_param_comms",
    "import_topo",
    "node_from_topology",
    "own_curves",
    "plot_curves",
    "read_own_logs",
    "read_topology",
]
