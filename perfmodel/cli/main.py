"""Entry of the console script: dispatch, and one sentence in place of every traceback.

Exit codes: 0 done, 1 findings or out of memory, 2 bad usage or bad input, 3 a missing capability.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from perfmodel.cli.parser import build_parser
from perfmodel.errors import MissingCapabilityError, PerfmodelError

DEBUG_VARIABLE = "PERFMODEL_DEBUG"
BAD_INPUT = 2
MISSING_CAPABILITY = 3
_INTERRUPTED = 130  # 128 + SIGINT, what shells expect of an interrupted command

# Import names of core dependencies and what installs them.
_DISTRIBUTIONS = {
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
    "pyarrow": "pyarrow",
    "xgboost": "xgboost-cpu (or xgboost, 470 MB larger)",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; `sys.argv[1:]` by default.
    """
    _replace_unprintable()
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our answer (`| head`) has seen enough
        _silence_stdout()
        return 0
    except KeyboardInterrupt:
        _say("interrupted")
        return _INTERRUPTED
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        return _explain(error)
    return code


def _dispatch(arguments: Sequence[str] | None) -> int:
    options = build_parser().parse_args(arguments)
    command = importlib.import_module(f"perfmodel.cli.commands.{options.command}")
    code: int = command.run(options)
    return code


def _explain(error: Exception) -> int:
    """One sentence for what went wrong, and the exit code that belongs to it."""
    if isinstance(error, PerfmodelError):
        _say(str(error))
        return error.exit_code
    if isinstance(error, ModuleNotFoundError):
        missing = (error.name or "a module").split(".")[0]
        if missing != "perfmodel":
            name = _DISTRIBUTIONS.get(missing, missing)
            _say(f"{missing} is not installed; pip install {name}")
            return MissingCapabilityError.exit_code
    if isinstance(error, OSError):
        _silence_stdout()
        where = f"{error.filename}: " if error.filename else ""
        _say(f"{where}{error.strerror or error}")
        return BAD_INPUT
    _say(
        f"internal error ({type(error).__name__}: {_first_line(error)}); "
        f"set {DEBUG_VARIABLE}=1 for the traceback and please report it"
    )
    return BAD_INPUT


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["no message"])[0]


def _say(sentence: str) -> None:
    print(f"perfmodel: {sentence}", file=sys.stderr)


def _silence_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter's exit does not complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _replace_unprintable() -> None:
    """Print a question mark where a terminal cannot show a character."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
