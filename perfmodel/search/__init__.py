"""Ranks plans, searches plans, sweeps batches, GPU counts and kinds of hardware."""
