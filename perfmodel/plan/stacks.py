"""Named execution profiles: read from `stacks/*.yaml`, chosen from what a run says of its software.

Selection is by rules anybody can read: each profile lists words its `software` text must hold
(`all`, `any`), must not hold (`none`) and the years it covers. The most specific rule wins: the
one with the most words matched, then the profile whose year is nearest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from typing import Any

import yaml

from perfmodel.errors import InputError, UnknownNameError
from perfmodel.hardware.records import Dtype
from perfmodel.plan.stack import Stack

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STACK_FIELDS = {f.name for f in fields(Stack)}
# A guess of the year where a run does not tell: the middle of the published runs.
_DEFAULT_YEAR = 2022
# Spread added for a stack nobody named, from left-out-source residuals of published runs.
_UNKNOWN_LOG_SIGMA = 0.18


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A stack, the families it serves, its selection rules and the source of every field."""

    stack: Stack
    families: tuple[str, ...]
    rules: tuple[Mapping[str, Any], ...]
    sources: Mapping[str, str]

    def match(self, software: str, year: int | None) -> int:
        """Words matched by the best rule, 0 if none applies."""
        return max((_matched(rule, software, year) for rule in self.rules), default=0)


def _matched(rule: Mapping[str, Any], software: str, year: int | None) -> int:
    low, high = rule.get("years", (0, 9999))
    if year is not None and not low <= year <= high:
        return 0
    every, some = rule.get("all", ()), rule.get("any", ())
    if any(word in software for word in rule.get("none", ())):
        return 0
    if any(word not in software for word in every):
        return 0
    found = [word for word in some if word in software]
    if some and not found:
        return 0
    return sum(len(word) for word in (*every, *found))


@cache
def list_stacks() -> tuple[Profile, ...]:
    """All profiles, generic ones last."""
    documents: dict[str, dict[str, Any]] = {}
    for path in sorted(resources.files("perfmodel.plan").joinpath("stacks").iterdir(), key=str):
        if path.name.endswith(".yaml"):
            document = _LOADER(path.read_text("utf-8")).get_single_data()
            documents[document["name"]] = document
    profiles = [_profile(name, documents) for name in documents]
    return tuple(sorted(profiles, key=lambda p: not p.stack.is_known))


def _profile(name: str, documents: Mapping[str, Mapping[str, Any]]) -> Profile:
    document = documents[name]
    values: dict[str, Any] = {}
    options: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for ancestor in _lineage(name, documents):
        for key, entry in (ancestor.get("fields") or {}).items():
            if key not in _STACK_FIELDS:
                raise InputError(f"stack profile {ancestor['name']}: unknown field {key!r}")
            values[key] = Dtype(entry["value"]) if key == "gradient_dtype" else entry["value"]
            sources[key] = entry["source"]
        for key, entry in (ancestor.get("options") or {}).items():
            options[key] = entry["value"]
            sources[key] = entry["source"]
    stack = Stack(
        name=name,
        title=document["title"],
        year=document["year"],
        is_known=not name.startswith("generic"),
        options=options,
        **values,
    )
    return Profile(
        stack=stack,
        families=tuple(document.get("families", ("transformer",))),
        rules=tuple(document.get("match") or ()),
        sources=sources,
    )


def _lineage(name: str, documents: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    chain: list[Mapping[str, Any]] = []
    current: str | None = name
    while current is not None:
        chain.append(documents[current])
        current = documents[current].get("extends")
    return chain[::-1]


def stack_by_name(name: str) -> Stack:
    """The profile called `name` (dashes and case ignored).

    Raises
    ------
    UnknownNameError
        If there is none; the nearest names are offered.
    """
    key = name.strip().lower().replace("-", "_")
    for profile in list_stacks():
        if profile.stack.name == key:
            return profile.stack
    raise UnknownNameError("stack", name, [p.stack.name for p in list_stacks()])


def year_of(software: str) -> int | None:
    """Year that lower-case text states: "2021", "arxiv:2311.05610", or a container tag "25.11"."""
    stated = re.search(r"(?<!\d)(20[12]\d)(?!\d)", software)
    if stated:
        return int(stated.group(1))
    paper = re.search(r"arxiv:([12]\d)(0[1-9]|1[0-2])\.", software)
    if paper:
        return 2000 + int(paper.group(1))
    tag = re.search(r"(?<![\d.])([12]\d)\.(0[1-9]|1[0-2])(?!\d)", software)
    return 2000 + int(tag.group(1)) if tag else None


def select_stack(
    software: str, family: str, *, year: int | None = None
) -> tuple[Stack, str | None]:
    """Profile for a free text such as "Megatron-LM 2021", and a warning if none is known.

    A stack nobody wrote down gets the generic profile of its year and a wider interval.
    """
    text = re.sub(r"kernel=\S+", "", software.lower())  # a setting, not the name of a stack
    year = year if year is not None else year_of(text)
    best: Profile | None = None
    best_key: tuple[int, int] = (0, 0)
    for profile in list_stacks():
        words = profile.match(text, year) if family in profile.families else 0
        key = (words, -abs(profile.stack.year - (year or _DEFAULT_YEAR)))
        if words and (best is None or key > best_key):
            best, best_key = profile, key
    if best is not None:
        return best.stack, None
    return generic_stack(family, year), (
        f"software {software!r} is not a known stack: the generic {family} profile of "
        f"{year or _DEFAULT_YEAR} stands in, with a wider interval"
    )


def generic_stack(family: str, year: int | None = None) -> Stack:
    """Class-level profile of a family: the generic one whose year is nearest from below."""
    generic = [p.stack for p in list_stacks() if not p.stack.is_known and family in p.families]
    if not generic:
        raise InputError(f"no execution profile for family {family!r}")
    wanted = year or _DEFAULT_YEAR
    older = [s for s in generic if s.year <= wanted] or generic
    chosen = min(older, key=lambda s: abs(s.year - wanted))
    return replace(chosen, log_sigma=max(chosen.log_sigma, _UNKNOWN_LOG_SIGMA))


_ATTENTION_WORDS = (  # what rows and users call kernels, most specific first
    ("flash_attention2", "flash2"),
    ("flash-attn 2", "flash2"),
    ("flash2", "flash2"),
    ("flash_attention3", "flash3"),
    ("flash3", "flash3"),
    ("flash_attention1", "flash1"),
    ("flash1", "flash1"),
    ("triton", "triton_flash"),
    ("cudnn", "cudnn"),
    ("sdpa", "flash2"),
    ("flash", "flash2"),
    ("megatron", "unfused"),
    ("fused", "unfused"),
    ("torch", "unfused"),
    ("eager", "unfused"),
)


def with_attention_kernel(stack: Stack, text: str) -> Stack:
    """`stack` with the attention kernel that a run states in its own words.

    A fused norm is often named beside it ("flash_attention2 + RMS kernel").
    """
    lowered = text.lower()
    if re.search(r"\brms", lowered):
        stack = replace(stack, has_fused_rms_norm=True)
    for word, kernel in _ATTENTION_WORDS:
        if word in lowered:
            return replace(stack, attention_kernel=kernel)
    note = f"attention kernel {text!r} is not known; {stack.attention_kernel} assumed"
    return replace(stack, assumptions=(*stack.assumptions, note))
