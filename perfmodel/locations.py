"""Where the data files lie: inside the installed package, or in the checkout."""

from __future__ import annotations

from pathlib import Path

from perfmodel.errors import MissingCapabilityError

_PACKAGE = Path(__file__).resolve().parent


def datasets_path(*parts: str) -> Path:
    """Path of a file or folder of `datasets/`.

    The wheel carries the folder as `perfmodel/_datasets`; a checkout (or an editable install) has
    it beside the package.

    Raises
    ------
    MissingCapabilityError
        If neither has it.
    """
    for root in (_PACKAGE / "_datasets", _PACKAGE.parent / "datasets"):
        path = root.joinpath(*parts)
        if path.exists():
            return path
    name = "/".join(parts)
    raise MissingCapabilityError(
        f"datasets/{name} is not part of this installation; install perfmodel's wheel or a checkout"
    )
