"""Arguments of all commands. Imports nothing heavy: `--help` answers at once."""

from __future__ import annotations

import argparse
import difflib
import re
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

_DESCRIPTION = (
    "How long a training iteration takes on many GPUs, what it needs and what binds it, "
    "before anybody owns them."
)
_EPILOG = (
    "exit codes: 0 done, 1 findings or out of memory, 2 bad usage or input, 3 a missing capability"
)
_RUN_HELP = "RUN file (YAML or JSON; `perfmodel init` writes one), or a published run as JSON"


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence and offers the nearest command."""

    def error(self, message: str) -> NoReturn:
        wrong = re.match(r"argument \S+: invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if wrong:
            choices = re.findall(r"'([^']+)'", wrong.group(2)) or wrong.group(2).split(", ")
            near = difflib.get_close_matches(wrong.group(1), choices, n=1)
            hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(choices)}"
            message = f"{wrong.group(1)!r} is not known; {hint}"
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; `command` of its result names a module to run."""
    parser = _Parser(prog="perfmodel", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"perfmodel {_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    _add_predict(commands)
    _add_sweep(commands)
    _add_rank(commands)
    _add_plan(commands)
    _add_validate(commands)
    _add_calibrate(commands)
    _add_catalogue(commands)
    _add_init(commands)
    _add_fit(commands)
    _add_evaluate(commands)
    _add_import(commands)
    return parser


def _version() -> str:
    try:
        return version("perfmodel")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"


def _command(commands: Any, name: str, about: str, module: str | None = None) -> Any:
    parser = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
    parser.set_defaults(command=module or name)
    return parser


def _add_json(parser: Any) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def add_run(parser: Any) -> None:
    """What names a run: a RUN file, or the configuration files of other tools."""
    parser.add_argument("file", metavar="RUN", nargs="?", help=_RUN_HELP)
    parser.add_argument("--row", metavar="ID", help="which published run of a JSON-lines file")
    group = parser.add_argument_group("instead of RUN: the files of other tools")
    group.add_argument("--hf", metavar="config.json", help="Hugging Face configuration of a model")
    group.add_argument("--megatron", metavar="ARGS.sh", help="Megatron-LM arguments or script")
    group.add_argument("--deepspeed", metavar="DS.json", help="DeepSpeed configuration")
    group.add_argument("--torchtitan", metavar="RUN.toml", help="torchtitan configuration")
    group.add_argument("--nemo", metavar="RUN.yaml", help="NeMo or Megatron-Bridge recipe")
    group.add_argument("--node", metavar="NODE", help="node or GPU of the catalogue")
    group.add_argument("--nodes", metavar="N", type=int, help="number of nodes")
    group.add_argument("--gpus-per-node", metavar="N", type=int, help="GPUs of each node in use")
    group.add_argument("--global-batch", metavar="SAMPLES", type=float, help="samples per step")
    group.add_argument("--micro-batch", metavar="SAMPLES", type=float, help="samples per pass")
    group.add_argument("--seq-length", metavar="TOKENS", type=int, help="tokens per sample")
    group.add_argument("--stack", metavar="NAME", help="stack of the catalogue")
    group.add_argument(
        "--set", metavar="FIELD=VALUE", action="append", default=[],
        help="change a field of the run, e.g. --set plan.tp=4",
    )  # fmt: skip


def _add_short_names(parser: Any) -> None:
    """Short names of what shapes a run, where they do not name the axes of a sweep."""
    parser.add_argument("--cluster", dest="node", metavar="NODE", help="the same as --node")
    parser.add_argument(
        "--batch", dest="global_batch", metavar="SAMPLES", type=float,
        help="the same as --global-batch",
    )  # fmt: skip
    parser.add_argument(
        "--seq", dest="seq_length", metavar="TOKENS", type=int, help="the same as --seq-length"
    )


def _add_predict(commands: Any) -> None:
    parser = _command(commands, "predict", "predict one training run")
    add_run(parser)
    parser.add_argument("--explain", action="store_true", help="print the critical path too")
    parser.add_argument("--perfetto", metavar="OUT.json", help="write the timeline for Perfetto")
    parser.add_argument("--bundle", metavar="FILE", help="calibration written by `calibrate`")
    parser.add_argument(
        "--comm", metavar="LOG", nargs="+", default=[],
        help="your own nccl-tests or PARAM logs: collectives follow them",
    )  # fmt: skip
    parser.add_argument(
        "--plot", metavar="OUT.svg", help="draw the timings of --comm and the model"
    )
    _add_whole_run(parser)
    _add_short_names(parser)
    _add_json(parser)


def _add_whole_run(parser: Any) -> None:
    """How much is trained, and what a GPU-hour costs."""
    parser.add_argument("--samples", type=float, metavar="N", help="samples to train on")
    parser.add_argument("--tokens", type=float, metavar="N", help="tokens to train on")
    parser.add_argument(
        "--price", metavar="PRICE", nargs="+", default=[],
        help="of a GPU for an hour; or NODE=PRICE for each kind of hardware",
    )  # fmt: skip


def _add_sweep(commands: Any) -> None:
    parser = _command(commands, "sweep", "batch sizes, GPU counts, kinds of hardware")
    add_run(parser)
    for name, about in (
        ("batch", "global batches, samples per step"),
        ("micro", "micro-batches, samples per GPU and pass"),
        ("seq", "sequence lengths, tokens"),
        ("gpus", "numbers of GPUs"),
        ("cluster", "nodes of the catalogue"),
    ):
        parser.add_argument(f"--{name}", metavar="VALUE", nargs="+", default=[], help=about)
    _add_whole_run(parser)
    parser.add_argument("--bundle", metavar="FILE", help="calibration written by `calibrate`")
    _add_json(parser)


def _add_plan(commands: Any) -> None:
    parser = _command(commands, "plan", "search the fastest plan that fits in memory")
    add_run(parser)
    parser.add_argument(
        "--fix", metavar="AXIS=VALUES", action="append", default=[],
        help="allow only these values of tp, pp, cp, ep, vp, micro_batch, recompute, shard",
    )  # fmt: skip
    parser.add_argument(
        "--memory-share", metavar="SHARE", type=float, default=1.0,
        help="share of a GPU's memory that may be used (default 1)",
    )  # fmt: skip
    parser.add_argument(
        "--gpus", metavar="N", nargs="+", default=[], help="search on each of these numbers of GPUs"
    )
    parser.add_argument(
        "--objective", choices=("time", "cost", "throughput-per-gpu"), default="time",
        help="what a number of GPUs is chosen for (default time)",
    )  # fmt: skip
    _add_whole_run(parser)
    parser.add_argument(
        "--seconds", metavar="S", type=float, help="time limit of the search (recommenders)"
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, default=0, help="of the search (recommenders)"
    )
    parser.add_argument(
        "--out", metavar="FILE",
        help="write the plan, a section of a RUN file; of a recommender TorchRec's JSON, or "
        "placements if FILE ends in .yaml",
    )  # fmt: skip
    _add_short_names(parser)
    parser.add_argument("--bundle", metavar="FILE", help="calibration written by `calibrate`")
    _add_json(parser)


def _add_rank(commands: Any) -> None:
    parser = _command(commands, "rank", "sharding plans of a recommender: fastest, and why")
    add_run(parser)
    parser.add_argument(
        "--plans", metavar="PLAN", nargs="+", required=True,
        help="plan files (TorchRec JSON or print, our placements) or rules such as table_wise",
    )  # fmt: skip
    parser.add_argument("--bundle", metavar="FILE", help="calibration written by `calibrate`")
    _add_json(parser)


def _add_validate(commands: Any) -> None:
    parser = _command(commands, "validate", "predict published runs and compare with measurements")
    parser.add_argument(
        "file", metavar="RUNS.jsonl", nargs="?", help="published runs; the bundled ones by default"
    )
    parser.add_argument(
        "--where", metavar="KEY=VALUE", action="append", default=[],
        help="only rows whose field (family, gpu, source, id …) contains the value",
    )  # fmt: skip
    parser.add_argument("--by", metavar="KEY", help="also print errors by this field")
    parser.add_argument(
        "--min-confidence", choices=("high", "medium", "low"), default="medium",
        help="least confidence of a row (default medium)",
    )  # fmt: skip
    parser.add_argument(
        "--leave-out", choices=("group", "source"),
        help="refit every fitted parameter without the row's own group or source",
    )  # fmt: skip
    parser.add_argument("--bundle", metavar="FILE", help="calibration written by `calibrate`")
    _add_json(parser)


def _add_calibrate(commands: Any) -> None:
    parser = _command(commands, "calibrate", "fit stack and cluster parameters to measured runs")
    parser.add_argument("files", metavar="RUNS", nargs="+", help="measured runs, JSON lines")
    parser.add_argument("--out", metavar="BUNDLE", required=True, help="file to write")
    parser.add_argument("--bundle", metavar="FILE", help="where to start from")
    _add_json(parser)


def _add_catalogue(commands: Any) -> None:
    parser = _command(commands, "catalogue", "list what is known")
    parser.add_argument(
        "section", nargs="?", choices=("gpus", "nodes", "networks", "models", "stacks"),
        help="what to list; all sections in short without it",
    )  # fmt: skip
    _add_json(parser)


def _add_init(commands: Any) -> None:
    parser = _command(commands, "init", "write a commented RUN file to start from")
    parser.add_argument(
        "name", metavar="NAME", nargs="?",
        help="a model of the catalogue (default llama3_8b) or an example such as dlrm_8gpu",
    )  # fmt: skip
    parser.add_argument("--out", metavar="FILE", help="file to write; NAME.yaml by default")
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    _add_json(parser)


def _add_fit(commands: Any) -> None:
    parser = _command(commands, "fit", "train cost models on kernel or collective tables")
    parser.add_argument("files", metavar="TABLE", nargs="+", help="parquet or CSV")
    parser.add_argument("--out", metavar="BUNDLE", required=True, help="folder or file to write")
    _add_json(parser)


def _add_evaluate(commands: Any) -> None:
    parser = _command(commands, "evaluate", "test cost models on kernel or collective tables")
    parser.add_argument("files", metavar="TABLE", nargs="+", help="parquet or CSV")
    parser.add_argument("--bundle", metavar="B", help="fitted models; the shipped ones by default")
    parser.add_argument(
        "--leave-out", choices=("shape", "group", "gpu", "source"),
        help="refit without the rows that are tested",
    )  # fmt: skip
    parser.add_argument(
        "--protocol", choices=("sizes", "larger", "ranks", "three-points"),
        help="collectives: every second size, sizes over max/8, unseen ranks, three own points",
    )  # fmt: skip
    parser.add_argument("--out", metavar="ROWS", help="write every row with its prediction")
    _add_json(parser)


def _add_import(commands: Any) -> None:
    parser = _command(commands, "import", "read tool outputs into a measurement table", "importing")
    parser.add_argument("format", metavar="FORMAT", help="nccl-tests, param-comms, topo")
    parser.add_argument("files", metavar="FILE", nargs="+", help="what the tool printed")
    parser.add_argument("--out", metavar="TABLE", help="CSV or parquet file to write")
    _add_json(parser)
