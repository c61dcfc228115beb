"""What stands around the rows of a run: ranks, hosts, GPU, commands, collective names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_COLLECTIVES = (
    "all_reduce|all_gather|reduce_scatter|alltoallv|alltoall|broadcast|reduce|sendrecv"
    "|gather|scatter|hypercube"
)
_PERF = re.compile(rf"(?<![a-z_])({_COLLECTIVES})_perf(?![a-z])")
_STARTING = re.compile(rf"Collective test starting:\s*({_COLLECTIVES})_perf")
_CONCLUDED = re.compile(rf"Collective test concluded:\s*({_COLLECTIVES})_perf")
_FILE_NAME = re.compile(
    r"(?<![a-z])(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|reduce|sendrecv)"
    r"(?![a-z])"
)
_FILE_SHAPE = re.compile(r"(?<![a-z0-9])(\d+)n(?:odes?)?[_-]?(\d+)(?:r|ranks?|g|gpus?)(?![a-z0-9])")
_RANK = re.compile(
    r"Rank\s+(?P<rank>\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(?P<host>\S+)\s+device\s+"
    r"(?P<device>\d+)\s+\[(?P<bus>[^\]]*)\](?P<gpu>.*)"
)
_VERSION_TEXT = re.compile(r"NCCL version\s+(\d+\.\d+(?:\.\d+)?)")
_VERSION_CODE = re.compile(r"nccl-library=(\d{4,6})\b")
_GPUS_FLAG = re.compile(r"\s(?:-g|--ngpus)[ =]+(\d+)")
_THREADS_FLAG = re.compile(r"\s(?:-t|--nthreads)[ =]+(\d+)")
_PROCESSES = re.compile(r"\s(?:-np|-n|--ntasks|--np)[ =]*(\d+)")
_NODES = re.compile(r"\s(?:-N|--nodes)[ =]*(\d+)")
_TASKS_PER_NODE = re.compile(r"\s(?:--ntasks-per-node|--npernode|-npernode|-ppn)[ =]*(\d+)")
_LAUNCHER = re.compile(r"(?<![\w/.-])(?:\S*/)?(mpirun|mpiexec|srun|orterun|prun)\b")
_NETWORKS = (  # what NCCL says it uses between nodes, and how the table calls it
    (re.compile(r"NET/(?:FasTrak|FASTRAK)|GPUDirectTCPX_v\d|NET/GPUDirectTCPX"), "TCPX(O)"),
    (re.compile(r"Using network (?:AWS )?Libfabric|NET/OFI .*provider is efa", re.I), "EFA"),
    (re.compile(r"NET/OFI.*\bcxi\b", re.I), "Slingshot11"),
    (re.compile(r"NET/IB.*/RoCE"), "RoCE"),
    (re.compile(r"NET/IB.*/IB\b"), "IB"),
    (re.compile(r"Using network Socket"), "TCP"),
)  # fmt: skip


@dataclass(slots=True)
class RankLine:
    """One line of the list of devices."""

    rank: int
    host: str
    device: int
    bus: str
    gpu: str


@dataclass(slots=True)
class Context:
    """Facts collected while reading down a log; a new run starts from a copy."""

    named: str | None = None  # last `X_perf` in a command
    starting: str | None = None  # newest header names it for certain
    ranks: list[RankLine] = field(default_factory=list)
    version: str | None = None
    gpus_per_process: int | None = None
    processes: int | None = None
    nodes_flag: int | None = None
    tasks_per_node: int | None = None
    has_launcher: bool = False
    network: str | None = None
    is_closed: bool = False  # rows were read: the next list of devices starts a new run

    def opens_run(self, line: str) -> bool:
        """Whether `line` begins a new run."""
        if _STARTING.search(line) or line.startswith("nThread "):
            return True
        if self.is_closed and (_PERF.search(line) and not _CONCLUDED.search(line)):
            return True
        rank = _RANK.search(line)
        return self.is_closed and rank is not None

    def renewed(self) -> Context:
        """Context of the next run: what belongs to the whole file stays."""
        fresh = Context(
            named=self.named, version=self.version, network=self.network,
            gpus_per_process=self.gpus_per_process, processes=self.processes,
            nodes_flag=self.nodes_flag, tasks_per_node=self.tasks_per_node,
            has_launcher=self.has_launcher,
        )  # fmt: skip
        if not self.is_closed:  # several header lines of one run
            fresh.starting, fresh.ranks = self.starting, self.ranks
        return fresh

    def read(self, line: str) -> None:
        """Take over what a line that is not a row says."""
        starting = _STARTING.search(line)
        if starting:
            self.starting = starting[1]
        named = _PERF.search(line)
        if named and not starting and not _CONCLUDED.search(line):
            self._read_command(line, named[1])
        rank = _RANK.search(line)
        if rank:
            self.ranks.append(
                RankLine(int(rank["rank"]), rank["host"], int(rank["device"]), rank["bus"],
                         rank["gpu"].strip())
            )  # fmt: skip
        self._read_versions(line)

    def _read_command(self, line: str, name: str) -> None:
        self.named = name
        for attribute, pattern in (
            ("processes", _PROCESSES),
            ("nodes_flag", _NODES),
            ("tasks_per_node", _TASKS_PER_NODE),
        ):
            match = pattern.search(line)
            setattr(self, attribute, int(match[1]) if match else None)
        gpus, threads = _GPUS_FLAG.search(line), _THREADS_FLAG.search(line)
        self.gpus_per_process = (int(gpus[1]) if gpus else 1) * (int(threads[1]) if threads else 1)
        self.has_launcher = _LAUNCHER.search(line) is not None

    def _read_versions(self, line: str) -> None:
        text = _VERSION_TEXT.search(line)
        if text:
            self.version = text[1]
        code = _VERSION_CODE.search(line)
        if code:
            self.version = version_of(int(code[1]))
        for pattern, name in _NETWORKS:
            if self.network is None and pattern.search(line):
                self.network = name


def version_of(code: int) -> str:
    """NCCL's version from its integer: 22807 is 2.28.7; below 2.9 it was 2804 for 2.8.4.

    Examples
    --------
    >>> version_of(22807), version_of(2804)
    ('2.28.7', '2.8.4')
    """
    if code < 10000:
        return f"{code // 1000}.{code // 100 % 10}.{code % 100}"
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def concluded_name(line: str) -> str | None:
    """Collective of a "Collective test concluded" line."""
    match = _CONCLUDED.search(line)
    return match[1] if match else None


def file_name_hint(name: str) -> str | None:
    """Collective that a file name mentions, if exactly one.

    Examples
    --------
    >>> file_name_hint("allreduce_2n16r.log"), file_name_hint("bcast.txt")
    ('all_reduce', None)
    """
    plain = {"allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "alltoall",
             "reducescatter": "reduce_scatter"}  # fmt: skip
    found = {plain.get(m.replace("_", ""), m) for m in _FILE_NAME.findall(name.lower())}
    return found.pop() if len(found) == 1 else None


def file_ranks_hint(name: str) -> int | None:
    """Ranks in a file name such as `run_2n16r.txt` (2 nodes, 16 ranks)."""
    match = _FILE_SHAPE.search(name.lower())
    return int(match[2]) if match else None


@dataclass(frozen=True, slots=True)
class Shape:
    """Ranks, nodes and GPU as the list of devices and the command state them."""

    listed_ranks: int | None
    is_list_whole: bool
    hosts: int | None
    devices_per_host: int | None
    command_ranks: int | None
    command_nodes: int | None
    gpu: str | None
    is_single_rank: bool  # "Rank 0" several times: a build without MPI


def shape_of(context: Context) -> Shape:
    """Summarise ranks and command of a run."""
    ranks = context.ranks
    numbers = [r.rank for r in ranks]
    zeros = numbers.count(0)
    names = {r.gpu for r in ranks if r.gpu}
    listed = max(numbers) + 1 if numbers else None
    whole = listed is not None and sorted(numbers) == list(range(listed))
    return Shape(
        listed_ranks=listed,
        is_list_whole=whole,
        hosts=len({r.host for r in ranks}) if ranks else None,
        devices_per_host=max(r.device for r in ranks) + 1 if ranks else None,
        command_ranks=_command_ranks(context),
        command_nodes=context.nodes_flag,
        gpu=names.pop() if len(names) == 1 else None,
        is_single_rank=zeros > 1 and listed == 1,
    )


def _command_ranks(context: Context) -> int | None:
    per_process = context.gpus_per_process
    if per_process is None:
        return None
    if context.processes is not None:
        return context.processes * per_process
    if context.nodes_flag is not None and context.tasks_per_node is not None:
        return context.nodes_flag * context.tasks_per_node * per_process
    if not context.has_launcher and per_process > 1:
        return per_process
    return None
