"""Makes `catalogue.json` from the YAML files beside it: `python -m perfmodel.hardware.build`.

The YAML is the truth; the JSON holds the same values without sources and loads in a millisecond,
so that a prediction does not wait for a YAML parser. A test checks that the two agree.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "catalogue"
JSON_FILE = FOLDER / "catalogue.json"
SECTIONS = ("gpus", "nodes", "networks")

CONFIDENCES = ("verified", "single", "derived", "unverified")
"""Best to worst; meanings in the catalogue's README."""

# What a reader of the listing relies on: the confidence shown there is the worst of these.
_HEADLINE: dict[str, tuple[tuple[str, ...], ...]] = {
    "gpus": (
        ("memory_gib",), ("memory_bandwidth_gb_s",), ("sm_count",), ("peak_tflops_dense", "fp32"),
        ("peak_tflops_dense", "fp16_tensor"), ("peak_tflops_dense", "bf16_tensor"),
    ),
    "nodes": (
        ("gpus", "count"), ("gpus", "gpu"), ("fabric", "type"),
        ("fabric", "per_gpu_gb_s_one_direction"), ("nics", "count"), ("nics", "count_per_tray"),
        ("nics", "gb_per_s_each_bits"),
    ),
    "networks": (("rate_gb_per_s_bits",), ("latency_us_one_way",), ("achieved_fraction",)),
}  # fmt: skip

# For people and for `sources_of`, not for records.
_LEFT_OUT = (
    "silicon_siblings",
    "techpowerup_page",
    "unsupported",
    "notes",
    "flop_per_clock_per_sm",
)


def read_yaml(name: str) -> Any:
    """Parse one of the catalogue's own YAML files (`gpus`, `nodes`, `networks`, `aliases`)."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with (FOLDER / f"{name}.yaml").open(encoding="utf-8") as file:
        return loader(file).get_single_data()


def plain(value: Any) -> Any:
    """Strip sources: `{value: V, confidence: …}` becomes V, at any depth."""
    if isinstance(value, dict):
        if "value" in value:
            return value["value"]
        return {k: plain(v) for k, v in value.items() if k not in _LEFT_OUT}
    return value


def confidence_of(entry: dict[str, Any], section: str) -> str:
    """Worst confidence among the headline fields of an entry."""
    worst = 0
    for path in _HEADLINE[section]:
        field: Any = entry
        for key in path:
            field = field.get(key) if isinstance(field, dict) else None
        if isinstance(field, dict) and "confidence" in field:
            worst = max(worst, CONFIDENCES.index(field["confidence"]))
    return CONFIDENCES[worst]


def build() -> dict[str, Any]:
    """Contents of `catalogue.json`."""
    out: dict[str, Any] = {"schema_version": 1}
    for section in SECTIONS:
        document = read_yaml(section)
        out[section] = {
            name: {**plain(entry), "confidence": confidence_of(entry, section)}
            for name, entry in document[section].items()
        }
        for extra in ("usual_nodes", "intra_node"):
            if extra in document:
                out[extra] = plain(document[extra])
    out["aliases"] = read_yaml("aliases")
    return out


def render(content: dict[str, Any]) -> str:
    """Text of the JSON file: one entry a line, so that changes read well in a diff."""
    lines = []
    for key, value in content.items():
        if key in SECTIONS:
            rows = ",\n".join(f" {json.dumps(k)}:{json.dumps(v)}" for k, v in value.items())
            lines.append(f"{json.dumps(key)}:{{\n{rows}\n}}")
        else:
            lines.append(f"{json.dumps(key)}:{json.dumps(value)}")
    return "{" + ",\n".join(lines) + "}\n"


def main() -> None:
    """Write `catalogue.json`."""
    JSON_FILE.write_text(render(build()), encoding="utf-8")


if __name__ == "__main__":
    main()
