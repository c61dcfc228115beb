"""Measured kernels: tables, readers of public sources, fit, evaluation, transfer."""
