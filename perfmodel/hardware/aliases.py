"""Other people's spellings: devices, nodes, networks, number formats, collectives.

A name is looked up in the table of aliases first; a device that is not there is taken apart
(family, form factor, memory, power) and matched to the nearest known part, with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from perfmodel.errors import InputError, UnknownNameError
from perfmodel.hardware.catalogue import Catalogue, catalogue
from perfmodel.hardware.records import Dtype, Gpu
from perfmodel.units import GIB

_VENDOR_WORDS = re.compile(
    r"\b(nvidia|amd|intel|tesla|geforce|instinct|quadro|generation|corporation)\b"
)


def normalise(text: str) -> str:
    """Letters and digits of a spelling, lower case, without words that name a vendor or a brand.

    Examples
    --------
    >>> normalise("NVIDIA A100-SXM4-80GB") == normalise("a100_sxm4_80gb")
    True
    """
    words = re.sub(r"[-_./]", " ", text.lower())
    return re.sub(r"[^a-z0-9]", "", _VENDOR_WORDS.sub(" ", words))


def _spellings(table: Mapping[str, Iterable[str]], known: Iterable[str]) -> dict[str, str]:
    """Normalised spelling -> canonical name; canonical names spell themselves."""
    out = {normalise(name): name for name in known}
    for name, texts in table.items():
        for text in texts:
            out.setdefault(normalise(text), name)
    return out


@cache
def _table(section: str) -> dict[str, str]:
    """Spellings of one section of the shipped aliases."""
    table = catalogue().aliases[section]
    return _spellings(table, table)


@cache
def _open_gpus() -> dict[str, tuple[str, str]]:
    rows: list[Mapping[str, Any]] = catalogue().aliases["open_gpus"]
    return {normalise(t): (row["is"], row["assumed"]) for row in rows for t in row["says"]}


def resolve_gpu(text: str, known: Catalogue | None = None) -> tuple[Gpu, str | None]:
    """GPU behind any spelling.

    Parameters
    ----------
    text : str
        E.g. "NVIDIA H100 80GB HBM3", "A100-SXM", "H100-SXM-96GB-HBM2e-500W".
    known : Catalogue, optional
        Where to look; the shipped catalogue by default.

    Returns
    -------
    gpu : Gpu
        The part; where the spelling states a memory size that no part has, the nearest part with
        that memory.
    warning : str or None
        One sentence where something was assumed.

    Raises
    ------
    UnknownNameError
        If not even the family is known; the nearest names are offered.
    """
    known = known or catalogue()
    if not isinstance(text, str) or not text.strip():
        raise UnknownNameError("GPU", str(text), known.gpus)
    if text in known.gpus:
        return known.gpu(text), None
    key = normalise(text)
    own = {normalise(name): name for name in known.gpus}
    name = own.get(key) or _table("gpus").get(key)
    if name is not None:
        return known.gpu(name), None
    if key in _open_gpus():
        name, assumed = _open_gpus()[key]
        return known.gpu(name), f"GPU {text!r} read as {known.gpu(name).title}: {assumed}"
    return _nearest(text, known)


# A family is a letter-digit word of a product line. Behind it a form factor may be glued on
# ("H100SXM5"), or one letter of a variant ("V100S", "A100X"), which is then not the exact part.
_FAMILY = re.compile(
    r"\b(titan ?(?:xp|v|rtx)|gtx ?\d{3,4}(?: ?ti)?"
    r"|gb10|gb[23]00|gh200|a10g|[abhv][1-8]0{1,2}|p100|p4|t4|l40s|l[42]0?|h20"
    r"|mi ?\d{3}[axp]?|rtx ?(?:pro ?)?a?\d{4}(?: ?ti| ?super| ?ada)?|b[67]0)"
    r"(?:(?P<variant>[sx]\b)|(?=sxm|pcie|nvl|oam)|(?![a-z0-9]))"
)
_FORMS = (
    ("nvl", re.compile(r"\bnvl\b(?! ?\d)|\bnvl(?=$)")),
    ("pcie", re.compile(r"\bpci(?:e|\b)|\bpci ?express")),
    ("sxm", re.compile(r"\bsxm\d?\b|\bhgx\b|\bdgx\b|\boam\b|\bbaseboard\b")),
)
_MEMORY = re.compile(r"\b(\d{1,3}) ?g(?:i?b)?\b")
_POWER = re.compile(r"\b(\d{2,4}) ?w\b")

SAME_MEMORY = 0.08
"""Sizes within 8 % are one part: 141/144, 180/186 and 94/96 GB differ by how they are counted."""
SAME_POWER = 0.1
"""Power limits within 10 % are one part; beyond, clocks under load will differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parsed:
    family: str
    is_variant: bool
    form: str | None
    memory_gb: float | None
    power_w: float | None


def _parse(text: str) -> _Parsed | None:
    words = _VENDOR_WORDS.sub(" ", re.sub(r"[-_/(),]", " ", text.lower()))
    family = _FAMILY.search(words)
    if family is None:
        return None
    rest = words[: family.start()] + " " + words[family.end() :]
    memory, power = _MEMORY.search(rest), _POWER.search(rest)
    return _Parsed(
        family=family.group(1).replace(" ", ""),
        is_variant=family["variant"] is not None,
        form=next((form for form, pattern in _FORMS if pattern.search(rest)), None),
        memory_gb=float(memory.group(1)) if memory else None,
        power_w=float(power.group(1)) if power else None,
    )


def _family_of(name: str) -> str:
    """Family of a canonical id: its words up to the form factor or memory size."""
    words: list[str] = []
    for word in name.split("_"):
        if re.fullmatch(r"sxm\d?|pcie|nvl|server|\d{2,3}w?", word) and words:
            break
        words.append(word)
    return "".join(words)


def _form_of(name: str) -> str | None:
    return next((f for f in ("nvl", "pcie", "sxm") if re.search(rf"_{f}\d?(_|$)", name)), None)


def _nearest(text: str, known: Catalogue) -> tuple[Gpu, str | None]:
    parsed = _parse(text)
    candidates = [n for n in known.gpus if parsed and _family_of(n) == parsed.family]
    if parsed is None or not candidates:
        raise UnknownNameError("GPU", text, known.gpus)
    # Unstated form factor: the module (SXM) before the card; unstated memory: the largest.
    wanted_form = parsed.form or "sxm"

    def distance(name: str) -> tuple[bool, float]:
        size = known.gpu(name).memory_bytes / GIB
        gap = -size if parsed.memory_gb is None else abs(size - parsed.memory_gb)
        return _form_of(name) not in (wanted_form, None), gap

    gpu = known.gpu(min(candidates, key=distance))
    return _with_stated(gpu, parsed, text)


def _with_stated(gpu: Gpu, parsed: _Parsed, text: str) -> tuple[Gpu, str | None]:
    """Carry over a memory size that the part is not sold with; say what differs, if anything."""
    form = _form_of(gpu.name)
    is_plain = form in (parsed.form, None) and parsed.memory_gb and not parsed.is_variant
    remarks = [f"GPU {text!r} is not in the catalogue: read as {gpu.title}"]
    size = gpu.memory_bytes / GIB
    if parsed.memory_gb and abs(parsed.memory_gb / size - 1) > SAME_MEMORY:
        gpu = replace(gpu, memory_bytes=parsed.memory_gb * GIB)
        remarks.append(f"with {parsed.memory_gb:g} GB of memory instead of {size:.0f}")
    if parsed.power_w and abs(parsed.power_w / gpu.power_w - 1) > SAME_POWER:
        remarks.append(f"{parsed.power_w:g} W stated, the catalogue's part draws {gpu.power_w:g} W")
        gpu = replace(gpu, power_w=parsed.power_w)
    is_exact = bool(is_plain) and len(remarks) == 1
    return gpu, None if is_exact else ", ".join(remarks)


def resolve_node_name(text: str, known: Catalogue | None = None) -> str:
    """Canonical name of a node spelling ("DGX A100", "p4d.24xlarge"). Raises UnknownNameError."""
    known = known or catalogue()
    return _named(text, "nodes", "node", known.nodes)


def resolve_network_name(text: str, known: Catalogue | None = None) -> str:
    """Canonical name of a network spelling ("NDR", "EFA"). Raises UnknownNameError."""
    known = known or catalogue()
    return "none" if text == "none" else _named(text, "networks", "network", known.networks)


def _named(text: str, section: str, kind: str, known: Mapping[str, Any]) -> str:
    if text in known:
        return text
    key = normalise(text)
    name = {normalise(n): n for n in known}.get(key) or _table(section).get(key)
    if name is None:
        raise UnknownNameError(kind, text, known)
    return name


# Formats as words inside a longer description, narrowest first.
_DTYPE_WORDS: tuple[tuple[Dtype, re.Pattern[str]], ...] = (
    (Dtype.NVFP4, re.compile(r"nvfp4|mxfp4|fp4|float4|e2m1")),
    (Dtype.MXFP8, re.compile(r"mxfp8|mx ?fp8")),
    (Dtype.FP8, re.compile(r"(?<!mx)fp8|float8|e4m3|e5m2")),
    (Dtype.INT8, re.compile(r"\bu?int8")),
    (Dtype.TF32, re.compile(r"tf32|tensorfloat")),
    (Dtype.BF16, re.compile(r"bf16|bfloat")),
    (Dtype.FP16, re.compile(r"(?<!b)(?:fp16|f16|float16|half)")),
    (Dtype.FP32, re.compile(r"(?<!t)(?:fp32|f32|float32|single)")),
    (Dtype.FP64, re.compile(r"fp64|f64|float64|double")),
)
_SIXTEEN_BITS = (Dtype.FP16, Dtype.BF16)
_EIGHT_BITS = (Dtype.FP8, Dtype.MXFP8, Dtype.INT8)


def resolve_dtype(text: str) -> Dtype:
    """Format of the matrix products behind a precision as printed by runs and tables.

    Rules, in this order: a known alias ("float", "half", "amp"); else the formats named in the
    text. Of several, the matrix products run in the narrower one ("fp16/fp8 mixed": fp8; "bf16
    with fp32 master": bf16; "fp32 (tf32)": tf32), except that of an undecided "fp8/fp4" the wider
    and of "fp16/bf16" the first is taken: equal rates, and nothing claimed that was not stated.

    Raises
    ------
    InputError
        If no format is named; the message lists the canonical ones.

    Examples
    --------
    >>> str(resolve_dtype("fp16/bf16 mixed (not stated per table)"))
    'fp16'
    """
    lowered = str(text).lower()
    name = _table("dtypes").get(normalise(lowered))
    if name is not None:
        return Dtype(name)
    found = [(m.start(), d) for d, pattern in _DTYPE_WORDS if (m := pattern.search(lowered))]
    dtypes = [d for _, d in found]
    if not dtypes:
        if re.search(r"\bamp\b|mixed", lowered):
            return Dtype.FP16  # automatic mixed precision without a format is the older, fp16
        allowed = ", ".join(Dtype)
        raise InputError(f"precision {text!r} names no known format; use one of {allowed}")
    eight = [d for d in dtypes if d in _EIGHT_BITS]
    if Dtype.NVFP4 in dtypes and eight:
        return eight[0]
    if dtypes[0] in _SIXTEEN_BITS:
        return min((pos, d) for pos, d in found if d in _SIXTEEN_BITS)[1]
    return dtypes[0]


def dtype_note(text: str) -> str | None:
    """What `resolve_dtype` took for granted, or None where the spelling is plain."""
    dtype = resolve_dtype(text)
    if normalise(str(text)) in _table("dtypes"):
        return None
    others = [d for d, pattern in _DTYPE_WORDS if pattern.search(str(text).lower()) and d != dtype]
    if not others:
        return None
    return f"precision {text!r}: matrix products taken as {dtype}"


def resolve_collective(text: str) -> str:
    """Canonical name of a collective in PyTorch's spelling ("all_to_all" for "alltoall").

    The values of `perfmodel.program.work.CollectiveKind`, as strings. Prefixes of libraries
    ("c10d::", "nccl:") are ignored. Raises InputError.
    """
    key = normalise(re.sub(r"^(?:c10d::|nccl:|gloo:|record_param_comms:)", "", str(text).lower()))
    key = re.sub(r"^nccl", "", key)
    name = _table("collectives").get(key)
    if name is None:
        allowed = ", ".join(catalogue().aliases["collectives"])
        raise InputError(f"collective {text!r} is unknown; use one of {allowed}")
    return name
