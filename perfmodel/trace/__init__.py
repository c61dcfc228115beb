"""Profiler traces in and out."""

from perfmodel.trace.perfetto import perfetto_document, write_perfetto

__all__ = ["perfetto_document", "write_perfetto"]
