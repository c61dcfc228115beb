"""Units: SI seconds and bytes inside, conversion only at the border."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3
GB: Final = 1e9

US: Final = 1e-6
"""One microsecond in seconds."""
MS: Final = 1e-3
"""One millisecond in seconds."""

TERA: Final = 1e12
GIGABIT_BYTES: Final = 1e9 / 8
"""Bytes in 10^9 bits: network rates are sold in gigabits per second."""
