"""One data row of nccl-tests: grammar and arithmetic checks.

Layouts by age: `size count type [redop] [root]`, then twice `time algbw busbw wrong`. A number is
believed only if something follows it (a cut row never yields a cut number) and if the printed
bandwidths agree with it to the last printed digit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DTYPE_BYTES = {
    "int8": 1, "uint8": 1, "char": 1, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1,
    "half": 2, "float16": 2, "bfloat16": 2, "bf16": 2,
    "int32": 4, "uint32": 4, "int": 4, "float": 4, "float32": 4,
    "int64": 8, "uint64": 8, "double": 8, "float64": 8,
}  # fmt: skip
PRINT_GB_S = 0.0055
"""Bandwidths are printed with two decimals: half a digit, and some for rounding twice."""
_REDOPS = "sum|prod|max|min|avg|mulsum|none|all"

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# What launchers and Markdown put before a row: "[1,0]<stdout>:", "0: ", "> ", "| ", "[0] ".
_PREFIX = re.compile(
    r"^(?:\s*(?:\[\d+,\d+\]<std(?:out|err)>:|\[[^\]\s]*\](?=\s)|[\w.-]{1,64}:(?=\s)|[>`#*\\\\]"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*(?=\s)|//))*\s*"
)
_GLUED = re.compile(r"(?<=\s)\[\d+\](?=\s)|\|")
_HEAD = re.compile(
    r"(?P<size>\d+)\s+(?P<count>\d+)\s+(?P<dtype>" + "|".join(sorted(DTYPE_BYTES)) + r")"
    rf"(?:\s+(?P<redop>{_REDOPS}))?(?:\s+(?P<root>-?\d+)(?=\s+\d+(?:\.\d+)?\s+\d+\.\d\d\s+\d+\.\d\d\s))?"
    r"(?=\s)"
)
_HALF = re.compile(
    r"\s+(?P<time>\d+(?:\.\d{1,2})?)\s+(?P<algbw>\d+\.\d\d)\s+(?P<busbw>\d+\.\d\d)"
    r"\s+(?P<wrong>N/A|\d+(?:e[+-]\d+)?)(?P<end>\s|$)"
)
_HALF_ABSENT = re.compile(r"\s+N/A\s+N/A\s+N/A\s+N/A(?=\s|$)")
_LOOKS_LIKE_ROW = re.compile(r"^\d+\s+\d+\s+[a-z]\w*\s")


@dataclass(frozen=True, slots=True)
class Half:
    """Out-of-place or in-place half of a row, as printed."""

    time_us: float
    time_ulp: float  # half a unit of the last printed digit
    algbw: float
    busbw: float
    checked: bool  # whether the test validated results (N/A otherwise)

    def is_consistent(self, size: int, ranks_by_count: float) -> bool:
        """Whether size / time reproduces algbw to the last printed digit.

        Until 2.0 all_gather and reduce_scatter left a rank's own part out: (n-1)/n of it.
        """
        shares = (1.0,) if ranks_by_count <= 1 else (1.0, 1 - 1 / ranks_by_count)
        return any(self.shows(self.algbw, share * size) for share in shares)

    def shows(self, bandwidth: float, wire_bytes: float) -> bool:
        """Whether `wire_bytes` in the printed time give the printed `bandwidth` (GB/s)."""
        if self.time_us <= 0:
            return False
        low = wire_bytes / (self.time_us + self.time_ulp) / 1e3
        high = wire_bytes / max(self.time_us - self.time_ulp, 1e-9) / 1e3
        return low - PRINT_GB_S <= bandwidth <= high + PRINT_GB_S


@dataclass(frozen=True, slots=True)
class Row:
    """A readable row; halves that are absent, cut or inconsistent are None."""

    line: int
    size: int
    dtype: str
    redop: str | None
    root: int | None
    ranks_by_count: float  # size / (count x element size): n where the count is per rank, else 1
    out_of_place: Half | None
    in_place: Half | None
    is_damaged: bool  # a half was printed but could not be believed

    @property
    def halves(self) -> list[Half]:
        """The halves that exist."""
        return [half for half in (self.out_of_place, self.in_place) if half is not None]


def strip_prefix(line: str) -> str:
    """Line without colours, launcher prefixes, quoting and comment marks."""
    plain = _GLUED.sub(" ", _ANSI.sub("", line))
    prefix = _PREFIX.match(plain)
    return plain[prefix.end() :] if prefix else plain


def parse_row(line: str, number: int) -> Row | str | None:
    """Read one line.

    Parameters
    ----------
    line : str
        After `strip_prefix`.
    number : int
        Line number, kept for reports.

    Returns
    -------
    Row, a reason why a line that looks like a row was left out, or None for any other line.
    """
    head = _HEAD.match(line)
    if head is None:
        return "not a complete row" if _LOOKS_LIKE_ROW.match(line) else None
    size, count = int(head["size"]), int(head["count"])
    if size == 0 or count == 0:
        return "size 0: nothing was sent"
    element = DTYPE_BYTES[head["dtype"]]
    ratio = size / (count * element)
    first, rest = _half(line, head.end(), size, ratio)
    if first is None and rest == head.end():
        return "row is cut or damaged before its first result"
    second, _ = _half(line, rest, size, ratio)
    if first is None and second is None:
        return "bandwidth does not follow from size and time"
    lost = (
        first is None and not _is_absent(line, head.end()),
        second is None and line[rest:].strip() != "" and not _is_absent(line, rest),
    )
    return Row(
        line=number,
        size=size,
        dtype=head["dtype"],
        redop=head["redop"],
        root=None if head["root"] is None else int(head["root"]),
        ranks_by_count=ratio,
        out_of_place=first,
        in_place=second,
        is_damaged=any(lost),
    )


def _is_absent(line: str, start: int) -> bool:
    return _HALF_ABSENT.match(line, start) is not None


def _half(line: str, start: int, size: int, ratio: float) -> tuple[Half | None, int]:
    """The half that begins at `start`, and where it ends; None if absent or inconsistent."""
    absent = _HALF_ABSENT.match(line, start)
    if absent is not None:
        return None, absent.end()
    match = _HALF.match(line, start)
    if match is None:
        return None, start
    half = Half(
        time_us=float(match["time"]),
        time_ulp=_half_unit(match["time"]),
        algbw=float(match["algbw"]),
        busbw=float(match["busbw"]),
        checked=match["wrong"] != "N/A",
    )
    return (half if half.is_consistent(size, ratio) else None), match.end("wrong")


def _half_unit(text: str) -> float:
    """Half a unit of the last digit that carries information: printed, at most five."""
    decimals = len(text.partition(".")[2])
    digits = len(text.partition(".")[0])
    return 0.5 * 10.0 ** max(-decimals, digits - 5)
