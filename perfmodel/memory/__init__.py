"""How much device memory a rank needs: state, activations, buffers, tables, framework; verdict."""

from perfmodel.memory.estimate import estimate_memory
from perfmodel.memory.records import MemoryEstimate, Part

__all__ = ["MemoryEstimate", "Part", "estimate_memory"]
