"""`perfmodel init [NAME]`: a commented RUN file to start from."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from perfmodel.cli.output import print_json
from perfmodel.errors import InputError
from perfmodel.locations import datasets_path
from perfmodel.schema.models import list_models, named_model
from perfmodel.schema.place import nearest

_DEFAULT = "llama3_8b"

_TEMPLATE = """\
# RUN file of perfmodel: one training run to predict.
#   perfmodel predict {file}
# Every section may also be a path to a file with its fields.
schema_version: 1

workload:
  name: {name}            # {title}; `perfmodel catalogue models` lists others
  # or spell it out: builder: transformer | dlrm | cnn, and the dimensions of the model
  global_batch: {batch}       # samples per optimiser step
  precision: {precision}         # bf16, fp16, fp16-amp, tf32, fp32, fp8, mxfp8, nvfp4
  optimizer: {optimizer}

plan:                     # how it is spread; dp is what tp, pp and cp leave of the GPUs
{plan}
stack: {stack}    # what executes it; `perfmodel catalogue stacks`

cluster:
  node: dgx_h100          # `perfmodel catalogue nodes`; or gpu, num_gpus and the links in words
  num_nodes: 1
"""

_PLANS = {
    "transformer": """\
  fsdp: true              # or zero_stage: 0 to 3
  tp: 1                   # tensor parallel; divides the heads
  pp: 1                   # pipeline stages; vp > 1 interleaves
  cp: 1                   # context parallel
  micro_batch: 1          # samples per GPU and forward pass
  recompute: full         # none, selective, full
""",
    "dlrm": """\
  embedding_sharding: table_wise  # row_wise, column_wise, hybrid …, or a placement for each table
""",
    "cnn": """\
  zero_stage: 0           # plain data parallel
""",
}
_STACKS = {"transformer": "pytorch_fsdp", "dlrm": "torchrec", "cnn": "pytorch_convnets"}


def run(options: Namespace) -> int:
    """Write the file; refuses to overwrite one without --force."""
    name = options.name or _DEFAULT
    out = Path(options.out or f"{name}.yaml")
    if out.exists() and not options.force:
        raise InputError(f"{out}: exists already; choose --out FILE or --force")
    out.write_text(run_text(name, str(out)), "utf-8")
    if options.json:
        print_json({"file": str(out)})
    else:
        print(f"{out} written; perfmodel predict {out}")
    return 0


def examples() -> dict[str, Path]:
    """Ready RUN files by name."""
    return {path.stem: path for path in sorted(datasets_path("examples").glob("*.yaml"))}


def run_text(name: str, file: str) -> str:
    """Text of a commented RUN file for a model of the catalogue or an example.

    Raises
    ------
    InputError
        If there is neither; the nearest names are offered.
    """
    if name in examples():
        return examples()[name].read_text("utf-8")
    if name not in list_models():
        known = [*list_models(), *examples()]
        raise InputError(f"no model or example is called {name!r}{nearest(name, known)}")
    model = named_model(name)
    return _TEMPLATE.format(
        file=file,
        name=name,
        title=model.title,
        batch=model.training["global_batch"],
        precision=model.training["precision"],
        optimizer=model.training["optimizer"],
        plan=_PLANS[model.builder],
        stack=_STACKS[model.builder],
    )
