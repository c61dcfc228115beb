"""Quantities as people read them: durations, bytes, shares, tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfmodel.units import GIB, MIB

_BAR = 24  # characters of a full bar
_TINY = 0.005  # shares below half a percent are one line together


def duration(seconds: float) -> str:
    """Three significant digits with a fitting unit.

    Examples
    --------
    >>> duration(0.00123), duration(83.4), duration(0)
    ('1.23 ms', '83.4 s', '0 s')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{significant(seconds / scale)} {unit}"
    return "0 s" if seconds == 0 else f"{significant(seconds * 1e9)} ns"


def significant(value: float, digits: int = 3) -> str:
    """A number with `digits` significant digits, thousands separated, no exponent up to 1e15.

    Examples
    --------
    >>> significant(1234567.0), significant(0.98765)
    ('1,230,000', '0.988')
    """
    if value == 0 or not -1e15 < value < 1e15:
        return f"{value:.{digits}g}"
    rounded = float(f"{value:.{digits}g}")
    if abs(rounded) >= 10 ** (digits - 1):
        return f"{rounded:,.0f}"
    text = f"{rounded:.10f}".rstrip("0")
    return text.rstrip(".")


def gib(num_bytes: float) -> str:
    """Bytes in GiB, small amounts in MiB."""
    small = num_bytes < GIB / 10
    return f"{num_bytes / MIB:.0f} MiB" if small else f"{num_bytes / GIB:.1f} GiB"


def sureness(probability: float) -> str:
    """A probability as a percentage; never certain.

    Examples
    --------
    >>> sureness(0.9999), sureness(0.42), sureness(0.0)
    ('over 99 %', '42 %', 'under 1 %')
    """
    if probability > 0.99:
        return "over 99 %"
    return "under 1 %" if probability < 0.01 else f"{100 * probability:.0f} %"


def percent(share: float) -> str:
    """A share as a percentage without decimals, small ones with one.

    Examples
    --------
    >>> percent(0.5), percent(0.004)
    ('50 %', '0.4 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.0095 or share == 0 else f"{100 * share:.1f} %"


def shares(
    amounts: Mapping[str, float], show: Callable[[float], str], whole: float | None = None
) -> list[str]:
    """Lines of name, amount, share and bar, largest first; what is tiny is joined as "other"."""
    total = whole or sum(amounts.values()) or 1.0
    rows = sorted(((v, str(k).replace("_", " ")) for k, v in amounts.items()), reverse=True)
    shown = [(v, name) for v, name in rows if v >= _TINY * total]
    other = sum(v for v, _ in rows if v < _TINY * total)
    shown += [(other, "other")] if other > 0 else []
    width = max((len(name) for _, name in shown), default=0)
    return [
        f"  {name:{width}}  {show(v):>9}  {percent(v / total):>6}  "
        f"{'#' * round(_BAR * v / total)}".rstrip()
        for v, name in shown
    ]


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> list[str]:
    """Rows as aligned columns, numbers to the right, absent values as a dash."""
    if not rows:
        return ["(none)"]
    names = list(columns or rows[0])
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    widths = [max(len(name), *(len(r[i]) for r in cells)) for i, name in enumerate(names)]
    numeric = [all(_NUMBER.match(row[i]) for row in cells) for i in range(len(names))]

    def line(texts: Sequence[str]) -> str:
        parts = [
            t.rjust(w) if right else t.ljust(w)
            for t, w, right in zip(texts, widths, numeric, strict=True)
        ]
        return "  ".join(parts).rstrip()

    return [line(names), *(line(r) for r in cells)]


_NUMBER = re.compile(r"-?[\d.,]+(?: %)?$|-$")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return significant(value, 4)
    return str(value)


def bullets(title: str, sentences: Sequence[str]) -> list[str]:
    """A titled list; nothing where there are no sentences."""
    return ["", title, *(f"  - {s}" for s in sentences)] if sentences else []
