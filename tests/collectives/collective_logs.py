"""Makes logs in the layouts of nccl-tests from known times, so that truth is known."""

from __future__ import annotations

from perfmodel.cost.collectives.busbw import busbw_factor
from perfmodel.measure.collectives.nccl_rows import DTYPE_BYTES
from perfmodel.measure.collectives.table import COLLECTIVE_NAMES

HEADER = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    "     time   algbw   busbw #wrong"
)
OLD_HEADER = (
    "#       size         count    type   redop     time   algbw   busbw  error"
    "     time   algbw   busbw  error"
)
PER_RANK = ("all_gather", "reduce_scatter", "alltoall")


def time_text(micros: float) -> str:
    """As nccl-tests prints: four to five digits."""
    if micros >= 10000:
        return f"{micros:.0f}"
    return f"{micros:.1f}" if micros >= 100 else f"{micros:.2f}"


def half(name: str, size: int, micros: float, ranks: int, wrong: str) -> str:
    algbw = size / micros / 1e3
    busbw = algbw * busbw_factor(COLLECTIVE_NAMES[name], ranks)
    return f"  {time_text(micros):>7}  {algbw:6.2f}  {busbw:6.2f}  {wrong:>5}"


def row(name: str, size: int, times: tuple[float, float], ranks: int, dtype: str = "float") -> str:
    count = size // DTYPE_BYTES[dtype] // (ranks if name in PER_RANK else 1)
    reducing = name in ("all_reduce", "reduce_scatter", "reduce", "sendrecv")
    root = 0 if name in ("broadcast", "reduce") else -1
    in_place = "N/A" if name in ("alltoall", "sendrecv") else "0"
    return (
        f"{size:12d}  {count:12d}  {dtype:>8}  {'sum' if reducing else 'none':>6}  {root:6d}"
        + half(name, size, times[0], ranks, "0")
        + half(name, size, times[1], ranks, in_place)
    )


def old_row(name: str, size: int, times: tuple[float, float], ranks: int) -> str:
    """Before roots were printed; only reductions name an operator."""
    count = size // 4 // (ranks if name in PER_RANK else 1)
    redop = "sum" if name in ("all_reduce", "reduce") else ""
    return (
        f"{size:12d}  {count:12d}  {'float':>6}  {redop:>6}"
        + half(name, size, times[0], ranks, "2e-07")
        + half(name, size, times[1], ranks, "0e+00")
    )


def rank_list(ranks: int, per_node: int, gpu: str = "NVIDIA A100-SXM4-80GB") -> list[str]:
    return [
        f"#  Rank {r:2d} Group  0 Pid {1000 + r:6d} on  worker{r // per_node} device"
        f" {r % per_node:2d} [0000:{7 + r % per_node:02x}:00] {gpu}"
        for r in range(ranks)
    ]


def times_of(size: int) -> tuple[float, float]:
    """Made-up but plausible times in microseconds, out of place and in place."""
    return 20 + size / 2e5, 19 + size / 2.1e5


def log(
    name: str = "all_reduce",
    ranks: int = 8,
    per_node: int = 8,
    sizes: tuple[int, ...] = (1024, 65536, 1 << 20, 1 << 24, 1 << 28),
) -> str:
    lines = [
        "# nccl-tests version 2.17.1 nccl-headers=22807 nccl-library=22807",
        f"# Collective test starting: {name}_perf",
        "# nThread 1 nGpus 1 minBytes 1024 maxBytes 268435456 step: 16(factor)",
        "#",
        "# Using devices",
        *rank_list(ranks, per_node),
        "#",
        HEADER,
        *(row(name, size, times_of(size), ranks) for size in sizes),
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 1.234",
        f"# Collective test concluded: {name}_perf",
    ]
    return "\n".join(lines) + "\n"


def truth(sizes: tuple[int, ...]) -> set[tuple[int, int, float]]:
    """(size, in_place, printed time) of every half."""
    return {
        (size, half_index, float(time_text(micros)))
        for size in sizes
        for half_index, micros in enumerate(times_of(size))
    }
