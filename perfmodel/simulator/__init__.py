"""When each task runs: engine, timeline, critical path."""

from perfmodel.simulator.critical_path import CriticalPath, Segment, SegmentKind
from perfmodel.simulator.simulate import simulate
from perfmodel.simulator.timeline import Timeline

__all__ = ["CriticalPath", "Segment", "SegmentKind", "Timeline", "simulate"]
