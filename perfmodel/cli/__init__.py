"""The command line: arguments and exit codes; each command is a few lines into the API."""

from perfmodel.cli.main import main

__all__ = ["main"]
