"""Measured tables: readers, fits, evaluation, validation against published runs."""
