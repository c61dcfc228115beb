"""Reader of `nvidia-smi topo -m`: the links between GPUs and NICs of a node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.measure.collectives.nccl_rows import strip_prefix
from perfmodel.measure.collectives.table import ImportResult, Skip, read_text

if TYPE_CHECKING:
    import pandas as pd

TOPO_COLUMNS = ("source", "device_a", "device_b", "link", "nvlinks", "peer_access")
"""One row a pair of devices: link is NV, PIX, PXB, PHB, NODE or SYS."""

_DEVICE = re.compile(r"GPU\d+|NIC\d+|mlx\d+_\d+|hfi1_\d+|bnxt_re\d+|rocep\w+|ibp\w+|efa_\d+")
_LINK = re.compile(r"NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|X")
_LINKS_ONLY = re.compile(rf"(?:{_LINK.pattern})+$")
_PEER = ("OK", "NS", "CNS", "GNS", "TNS", "DR")
_AFFINITY = re.compile(r"^\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*$")
_NIC_LEGEND = re.compile(r"^(NIC\d+):\s*(\S+)\s*$")
_MAX_DEVICES = 256


@dataclass(slots=True)
class Topology:
    """Devices of a node and the link of each pair.

    `links[a, b]` with a before b in `devices`: "NV12", "PIX", … `peer_access[a, b]` is what the
    peer-to-peer matrix says, where one follows.
    """

    devices: list[str] = field(default_factory=list)
    links: dict[tuple[str, str], str] = field(default_factory=dict)
    peer_access: dict[tuple[str, str], bool] = field(default_factory=dict)
    cpu_affinity: dict[str, str] = field(default_factory=dict)
    numa: dict[str, int] = field(default_factory=dict)
    nic_names: dict[str, str] = field(default_factory=dict)

    @property
    def gpus(self) -> list[str]:
        """GPU names in the order of their index."""
        return sorted((d for d in self.devices if d.startswith("GPU")), key=lambda d: int(d[3:]))

    @property
    def nics(self) -> list[str]:
        """NIC names in the order of the matrix."""
        return [d for d in self.devices if not d.startswith("GPU")]

    def link(self, a: str, b: str) -> str | None:
        """Link between two devices, in either order; None where the matrix does not say."""
        return self.links.get((a, b)) or self.links.get((b, a))

    def nvlinks(self, a: str, b: str) -> int:
        """NVLinks between two devices."""
        link = self.link(a, b)
        return int(link[2:]) if link and link.startswith("NV") else 0


def import_topo(paths: Sequence[str | PathLike[str]], *, source: str | None = None) -> ImportResult:
    """Pairs of devices of topology matrices.

    Returns
    -------
    ImportResult
        Columns of `TOPO_COLUMNS`.

    Raises
    ------
    InputError
        If a file cannot be read.
    """
    rows: list[dict[str, Any]] = []
    skipped: list[Skip] = []
    for path in map(Path, paths):
        topology, left_out = read_topology(read_text(path), path.name)
        rows += [{"source": source or path.stem, **row} for row in _rows(topology)]
        skipped += left_out
    return ImportResult(table=_table(rows), skipped=skipped)


def _table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows, columns=list(TOPO_COLUMNS))


def _rows(topology: Topology) -> Iterator[dict[str, Any]]:
    pairs = dict.fromkeys([*topology.links, *topology.peer_access])
    for a, b in pairs:
        link = topology.link(a, b)
        yield {
            "device_a": a, "device_b": b,
            "link": "NV" if link and link.startswith("NV") else link,
            "nvlinks": topology.nvlinks(a, b),
            "peer_access": topology.peer_access.get((a, b)),
        }  # fmt: skip


def read_topology(text: str, file_name: str) -> tuple[Topology, list[Skip]]:
    """Topology of a text, and what in it could not be read surely."""
    reader = _Reader(file_name)
    lines = text.split("\n")
    for number, raw in enumerate(lines, start=1):
        legend = _NIC_LEGEND.match(raw.strip("#> \t\r"))
        if legend:
            reader.name_nic(legend[1], legend[2])
            continue
        reader.read(strip_prefix(raw.rstrip("\r")), number, is_whole=number < len(lines))
    return reader.finish()


@dataclass(slots=True)
class _Row:
    number: int
    device: str
    cells: list[str]


class _Reader:
    """Collects header, rows and legend; decides pairs at the end, when all columns are known."""

    def __init__(self, file_name: str) -> None:
        self._file = file_name
        self._columns: list[str] = []
        self._rows: list[_Row] = []
        self._skipped: list[Skip] = []
        self._topology = Topology()

    def name_nic(self, nic: str, name: str) -> None:
        """Take over a line of the NIC legend."""
        self._topology.nic_names[nic] = name

    def read(self, line: str, number: int, *, is_whole: bool) -> None:
        """Take over a header or a row; other lines are passed by."""
        words = line.split()
        if not words:
            return
        devices = _DEVICE.findall(words[0]) if _DEVICE.match(words[0]) else []
        if not devices:
            return
        if len(devices) > 1 or (len(words) > 1 and _is_header(words)):
            self._columns = self._columns or _header(words)
            return
        self._row(devices[0], words, number, is_cut=not is_whole and not line.endswith((" ", "\t")))

    def _row(self, device: str, words: list[str], number: int, *, is_cut: bool) -> None:
        cells: list[str] = []
        rest = list(words[1:])
        while rest and (_LINKS_ONLY.match(rest[0]) or rest[0] in _PEER):
            word = rest.pop(0)
            if is_cut and not rest:
                self._skip(number, f"last cell of {device} is cut")
                break
            cells += [word] if word in _PEER else _LINK.findall(word)
        if not cells:
            self._skip(number, f"row of {device} holds no links")
            return
        self._rows.append(_Row(number, device, cells))
        if (
            cells[0] not in _PEER
            and rest
            and _AFFINITY.match(rest[0])
            and not (is_cut and len(rest) == 1)
        ):
            self._topology.cpu_affinity.setdefault(device, rest[0])
            if len(rest) > 1 and rest[1].isdigit() and not (is_cut and len(rest) == 2):
                self._topology.numa.setdefault(device, int(rest[1]))

    def _skip(self, number: int, reason: str) -> None:
        self._skipped.append(Skip(self._file, number, reason))

    def finish(self) -> tuple[Topology, list[Skip]]:
        """Match cells with columns."""
        links = [r for r in self._rows if "X" in r.cells and not set(r.cells) & set(_PEER)]
        peers = [r for r in self._rows if set(r.cells) & set(_PEER)]
        cut = [r for r in self._rows if r not in links and r not in peers]
        columns = self._columns or [row.device for row in links or peers]
        self._topology.devices = columns[:_MAX_DEVICES]
        seen: dict[tuple[str, str], set[str]] = {}
        for row in [*links, *cut]:
            self._pairs(row, columns, seen)
        self._decide(seen)
        gpus = [name for name in columns if name.startswith("GPU")]
        for row in peers:
            for name, cell in zip(gpus, row.cells, strict=False):
                if cell in _PEER and row.device in gpus:
                    self._topology.peer_access[_ordered(gpus, row.device, name)] = cell == "OK"
        if not self._rows:
            self._skip(0, "no topology matrix")
        return self._topology, self._skipped

    def _pairs(self, row: _Row, columns: list[str], seen: dict[tuple[str, str], set[str]]) -> None:
        """Cells of a row, if its own column holds the X (or lies beyond a cut)."""
        if row.device not in columns:
            self._skip(row.number, f"{row.device} is not a column of the matrix")
            return
        own = columns.index(row.device)
        if len(row.cells) > len(columns):
            self._skip(row.number, f"row of {row.device} has more cells than the matrix columns")
            return
        if (own < len(row.cells) and row.cells[own] != "X") or row.cells.count("X") > 1:
            self._skip(row.number, f"row of {row.device} is shifted against its columns")
            return
        if len(row.cells) < len(columns):
            missing = len(columns) - len(row.cells)
            self._skip(row.number, f"row of {row.device} lacks {missing} cells")
        for name, cell in zip(columns, row.cells, strict=False):
            if name != row.device and cell != "X":
                seen.setdefault(_ordered(columns, row.device, name), set()).add(cell)

    def _decide(self, seen: dict[tuple[str, str], set[str]]) -> None:
        for pair, found in seen.items():
            if len(found) == 1:
                self._topology.links[pair] = "SYS" if found == {"SOC"} else found.pop()
            else:
                both = " and ".join(sorted(found))
                self._skip(0, f"{pair[0]} and {pair[1]} are joined by {both}: not taken over")


def _is_header(words: list[str]) -> bool:
    """A header goes on with another device or a column title, a row with a link."""
    second = words[1]
    return bool(_DEVICE.match(second)) or second in ("CPU", "NUMA", "GPU")


def _header(words: list[str]) -> list[str]:
    columns: list[str] = []
    for word in words:
        names = _DEVICE.findall(word)
        if not names:
            break
        columns += [name for name in names if name not in columns]
    return columns


def _ordered(columns: list[str], a: str, b: str) -> tuple[str, str]:
    return (a, b) if columns.index(a) < columns.index(b) else (b, a)
