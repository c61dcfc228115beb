"""Reads what published runs say about their links, by rules on words and numbers.

Intra-node text ("NVLink3/NVSwitch 600 GB/s", "PCIe 4.0, no P2P", "NVLink3 (4 links between
GPUs)") and inter-node text ("8x200 Gbps HDR IB per node", "400 Gbps per GPU", "EFA"). Nothing is
guessed here: what the text does not say stays None. Rules, each on words that anybody may write:

1. Rates: a number and a unit; `b` is bits, `B` bytes, `GbE` gigabit Ethernet. "eff." or "measured"
   after a rate means it is not the signalled one: it is skipped.
2. Counts: "8x", "8 x", "4 NICs", "dual-rail".
3. Scope: a rate "per GPU" is that; one larger than any port is the node's; one behind a count is a
   port's ("4x100 Gbps per node"); one "per node" (server, total) without a count before it is the
   node's ("800 Gbps per node (4x HDR)"); any other is a port's.
4. Technology words; an InfiniBand generation (FDR … XDR) implies its port rate.
5. Labelled clauses ("Storage: …, Compute: …"): only the compute clause counts where there is one.
6. "N/A", "none", "not stated", "unknown", "-" and nothing at all: unstated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from perfmodel.hardware.records import NetworkKind
from perfmodel.units import GB, GIGABIT_BYTES

_UNSTATED = re.compile(
    r"^\W*(?:n/?a|none|null|nan|not (?:stated|given|known)|unknown|unstated)?\W*$"
)

_RATE = re.compile(
    r"(?P<value>\d+(?:\.\d+)?)\s*(?P<prefix>[GTgt])"
    r"(?:(?P<byte>B|byte)|(?P<bit>[Bb](?:it|E)?|[Ee]))?(?P<suffix>ps|/s(?:ec)?|/Sec)?\b"
)
_PORT_MAX_GBIT = 800
"""Largest port sold (XDR, 800 GbE): a larger rate belongs to several ports."""

_COUNT = re.compile(
    r"(?<![\d.])(\d{1,2})\s*[x\u00d7*]\s*(?=[a-z\d])"
    r"|(?<![\d.])(\d{1,2})[- ](?:nics?|rails?|hcas?|ports?|adapters?)\b"
)
_WORD_COUNTS = {"single": 1, "dual": 2, "quad": 4}
_WORD_COUNT = re.compile(r"\b(single|dual|quad)[- ](?:rail|port|nic)")

# Gb/s of a 4x port; InfiniBand Trade Association roadmap, as in networks.yaml.
IB_PORT_GBIT = {
    "fdr": 56.0, "edr": 100.0, "hdr100": 100.0, "hdr200": 200.0, "hdr": 200.0, "ndr200": 200.0,
    "ndr400": 400.0, "ndr": 400.0, "xdr": 800.0,
}  # fmt: skip
_IB_GENERATION = re.compile(r"\b(fdr|edr|hdr(?:100|200)?|ndr(?:200|400)?|xdr)\b")

_KINDS: tuple[tuple[NetworkKind, re.Pattern[str]], ...] = (
    (NetworkKind.ROCE, re.compile(r"\broce|rdma over converged|spectrum-?x")),
    (NetworkKind.EFA, re.compile(r"\befa|elastic fabric|\bsrd\b")),
    (NetworkKind.OMNI_PATH, re.compile(r"omni-?\s?path|\bopa\b")),
    (NetworkKind.SLINGSHOT, re.compile(r"slingshot|\bcxi\b|aries")),
    (NetworkKind.TCPX, re.compile(r"tcpxo?\b|tcpx")),
    (NetworkKind.INFINIBAND, re.compile(r"infini-?band|\bib\b|quantum-?2|\b[fehnx]dr")),
    (NetworkKind.TCP, re.compile(r"ethernet|\btcp\b|\d\s*gbe\b|sockets?\b|\beth\b")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InterNodeText:
    """What a text says about the links between nodes; None where it says nothing.

    Rates in bytes/s, one direction. Of `node`, `per_gpu` and `port` at most one is a number read
    from the text; `port` may also follow from an InfiniBand generation.
    """

    kind: NetworkKind | None = None
    count: int | None = None
    port_bytes_per_s: float | None = None
    node_bytes_per_s: float | None = None
    per_gpu_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntraNodeText:
    """What a text says about the links inside a node."""

    has_nvlink: bool = False
    has_nvswitch: bool = False
    has_pcie: bool = False
    has_infinity_fabric: bool = False
    is_cube_mesh: bool = False
    is_pairwise: bool = False  # bridges between two cards
    blocks_peer_access: bool = False
    states_peer_access: bool = False
    domain_gpus: int | None = None  # "NVL72"
    links_per_pair: int | None = None
    rate_bytes_per_s: float | None = None
    rate_is_one_direction: bool = False


def is_unstated(text: object) -> bool:
    """Whether a field says nothing ("N/A", "not stated", None, "-")."""
    return not isinstance(text, str) or _UNSTATED.match(text.strip().lower()) is not None


@dataclass(frozen=True, slots=True)
class _Rate:
    bytes_per_s: float
    start: int
    after: str  # the words behind it


def _rates(text: str, *, bare: bool = False) -> list[_Rate]:
    """Signalled rates in `text`; `bare` takes "100G" for gigabits as network people write it."""
    out = []
    for match in _RATE.finditer(text):
        after = text[match.end() : match.end() + 24].lower()
        if not (bare or match["byte"] or match["bit"] or match["suffix"]):
            continue  # "80G" of memory
        if re.match(r"\W*(?:eff|measured|achieved|busbw|algbw|memory|hbm)", after):
            continue
        scale = 1000.0 if match["prefix"] in "Tt" else 1.0
        unit = GB if match["byte"] else GIGABIT_BYTES
        out.append(_Rate(float(match["value"]) * scale * unit, match.start(), after))
    return out


def _compute_clause(text: str) -> str:
    """The clause labelled as compute fabric where clauses are labelled, else the whole text."""
    labels = list(re.finditer(r"(?:^|[,;])\s*([A-Za-z][A-Za-z /-]{2,20}):\s", text))
    for i, label in enumerate(labels):
        if re.search(r"comput|fabric|gpu|train|east", label.group(1).lower()):
            end = labels[i + 1].start() if i + 1 < len(labels) else len(text)
            return text[label.end() : end]
    return text


def read_inter_node(text: str | None) -> InterNodeText:
    """Apply the rules of this module to a text about links between nodes. Never fails."""
    if text is None or is_unstated(text):
        return InterNodeText()
    clause = _compute_clause(text)
    low = clause.lower()
    generation = _IB_GENERATION.search(low)
    implied = IB_PORT_GBIT[generation.group(1)] * GIGABIT_BYTES if generation else None
    count, count_at = _count(low)
    rates = _rates(clause, bare=True)
    port, node, per_gpu = _scoped(rates[0], count_at) if rates else (None, None, None)
    return InterNodeText(
        kind=next((k for k, pattern in _KINDS if pattern.search(low)), None),
        count=count,
        port_bytes_per_s=port or (None if per_gpu else implied),
        node_bytes_per_s=node,
        per_gpu_bytes_per_s=per_gpu,
    )


def _count(low: str) -> tuple[int | None, int | None]:
    """How many ports, and where that is said."""
    if found := _COUNT.search(low):
        return int(found.group(1) or found.group(2)) or None, found.start()
    if word := _WORD_COUNT.search(low):
        return _WORD_COUNTS[word.group(1)], word.start()
    return None, None


def _scoped(rate: _Rate, count_at: int | None) -> tuple[float | None, float | None, float | None]:
    """Whose rate it is: (port, node, per GPU). Rule 3 of this module."""
    value = rate.bytes_per_s
    if re.match(r"\W*(?:per |/\s*)(?:gpu|accelerator|rank|device)", rate.after):
        return None, None, value
    if value > _PORT_MAX_GBIT * GIGABIT_BYTES:
        return None, value, None
    if count_at is not None and count_at < rate.start:
        return value, None, None
    if re.match(r"\W*(?:total|aggregate|(?:per |/\s*)(?:node|server|host|machine))", rate.after):
        return None, value, None
    return value, None, None


_PER_DIRECTION = re.compile(r"per dir|one[- ]way|uni-?di|each (?:way|direction)|/dir")
_LINKS = re.compile(
    r"(\d{1,2})\s*(?:nv)?links? (?:between|per (?:pair|peer)|to (?:each|every))|\bnv(\d{1,2})\b"
)
_BLOCKED = re.compile(
    r"(?:no|without|w/o|disabled|blocked)\s*(?:gpu )?(?:p2p|peer)"
    r"|(?:p2p|peer\S*(?: access)?)\W*(?:is )?(?:disabled|blocked|off|unavailable|not)"
    r"|via host|through host|host[- ]staged|\bshm\b"
)


def read_intra_node(text: str | None) -> IntraNodeText:
    """Apply the rules of this module to a text about links inside a node. Never fails."""
    if text is None or is_unstated(text):
        return IntraNodeText()
    low = text.lower()
    domain = re.search(r"\bnvl\s?(\d{1,3})\b", low)
    links = _LINKS.search(low)
    rates = _rates(text)
    first = rates[0] if rates else None
    blocks = _BLOCKED.search(low) is not None
    return IntraNodeText(
        has_nvlink=re.search(r"nv-?link|nvl\s?\d|\bnv\d|cube mesh", low) is not None,
        has_nvswitch=re.search(r"nv-?switch", low) is not None,
        has_pcie=re.search(r"pci", low) is not None,
        has_infinity_fabric=re.search(r"infinity|xgmi", low) is not None,
        is_cube_mesh=re.search(r"cube[- ]?mesh|hybrid mesh", low) is not None,
        is_pairwise=re.search(r"pair(?:wise|s\b)|bridge", low) is not None,
        blocks_peer_access=blocks,
        states_peer_access=not blocks and re.search(r"p2p|peer", low) is not None,
        domain_gpus=int(domain.group(1)) if domain else None,
        links_per_pair=int(links.group(1) or links.group(2)) if links else None,
        rate_bytes_per_s=first.bytes_per_s if first else None,
        rate_is_one_direction=first is not None and bool(_PER_DIRECTION.search(first.after)),
    )
