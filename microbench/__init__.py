"""Benchmarks that run on real devices and write measurement tables; there are none yet."""
