"""When each task runs: engine, timeline, critical path."""

from perfmodel.simulator.simulate import simulate
from perfmodel.simulator.timeline import Timeline

__all__ = ["Timeline", "simulate"]
