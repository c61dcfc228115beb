"""Readers of public kernel measurements in their sources' own formats: kernel tables come out.

A reader is lenient: a file, operator or format it does not know is counted in `skipped`, with the
reason; nothing is guessed.
"""

from perfmodel.measure.kernels.readers.aiconfigurator import read_aiconfigurator
from perfmodel.measure.kernels.readers.form import KernelTable
from perfmodel.measure.kernels.readers.neusight import read_neusight
from perfmodel.measure.kernels.readers.steps import read_steps
from perfmodel.measure.kernels.readers.vidur import read_vidur

__all__ = ["KernelTable", "read_aiconfigurator", "read_neusight", "read_steps", "read_vidur"]
