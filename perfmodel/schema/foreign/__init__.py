"""Readers of the configuration files people have: each fills the sections of a RUN file.

Lenient where a RUN file is strict: what a file states and the model does not know is named in a
warning; what a file leaves open is filled by rules that are named as assumptions.
"""
