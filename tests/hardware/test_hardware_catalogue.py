"""The shipped catalogue: complete, consistent with itself, and the same in YAML and JSON."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import perfmodel
from perfmodel.errors import InputError, UnknownNameError
from perfmodel.hardware import build
from perfmodel.hardware.catalogue import (
    catalogue,
    gpu,
    list_gpus,
    list_networks,
    list_nodes,
    network,
    node,
    sources_of,
)
from perfmodel.hardware.fields import SECTIONS, Section
from perfmodel.hardware.listing import catalogue_rows
from perfmodel.hardware.records import Dtype, FabricKind

# Figures the vendors print, typed in by hand: TFLOPS (or TOPS), GB/s, GiB the device reports.
DATA_SHEET = [
    ("p100_sxm2", Dtype.FP32, 10.6, 732, 16),
    ("v100_sxm2_16", Dtype.FP16, 125, 900, 16),
    ("t4", Dtype.FP16, 65, 320, 14.75),
    ("a100_sxm4_40", Dtype.BF16, 312, 1555, 40),
    ("a100_sxm4_80", Dtype.TF32, 156, 2039, 80),
    ("h100_sxm5_80", Dtype.BF16, 989.4, 3350, 80),
    ("h100_sxm5_80", Dtype.FP8, 1978.9, 3350, 80),
    ("h200_sxm", Dtype.BF16, 989.4, 4800, 141),
    ("b200_sxm", Dtype.FP8, 4500, 8000, 180),
    ("gb300", Dtype.NVFP4, 15000, 8000, 278),
    ("mi300x", Dtype.BF16, 1307.4, 5300, 192),
    ("mi355x", Dtype.FP8, 5033, 8000, 288),
]


def test_json_is_the_yaml_without_sources():
    expected = json.loads(build.render(build.build()))
    assert json.loads(build.JSON_FILE.read_text()) == expected, (
        "run python -m perfmodel.hardware.build"
    )


@pytest.mark.parametrize(("name", "dtype", "tera", "gb_s", "gib"), DATA_SHEET)
def test_headline_figures_are_those_of_the_data_sheet(name, dtype, tera, gb_s, gib):
    part = gpu(name)
    assert part.peak(dtype) == pytest.approx(tera * 1e12, rel=0.01)
    assert part.memory_bytes_per_s == pytest.approx(gb_s * 1e9, rel=0.01)
    assert part.memory_bytes / 2**30 == pytest.approx(gib, rel=0.02)


def test_every_name_makes_a_record():
    for name in list_gpus():
        part = gpu(name)
        assert part.num_sms > 0
        assert part.peak(Dtype.FP32) > 0
        assert part.memory_bytes_per_s > 1e10
    for name in list_nodes():
        box = node(name)
        assert box.num_gpus >= 1
        assert network(box.network).port_bytes_per_s > 0
        if box.fabric is not FabricKind.NONE:
            assert box.fabric_bytes_per_s > 0
    for name in list_networks():
        link = network(name)
        assert 0 < link.achieved_fraction <= 1
        assert link.latency_s < link.step_latency_s < 1e-3


def test_usual_nodes_hold_the_silicon_they_are_listed_for():
    for name, box in catalogue().usual_nodes.items():
        assert node(box).gpu.silicon_family == gpu(name).silicon_family


def _rated_clock_is_lower(name: str, key: str) -> bool:
    """Parts whose tensor peaks are rated below the boost clock, as their notes say."""
    return name.startswith(("h100", "h200", "h800", "gh200", "titan_v", "v100_sxm3")) and (
        "tensor" in key or key in ("tf32", "fp8", "int8")
    )


def test_peaks_are_sm_count_times_rate_times_clock():
    checked = 0
    for name, entry in build.read_yaml("gpus")["gpus"].items():
        rates = entry.get("flop_per_clock_per_sm", {}).get("values", {})
        plain = build.plain(entry)
        for key, per_clock in rates.items():
            peak = plain["peak_tflops_dense"].get(key)
            if peak is None or name == "h20":  # H20 is capped below what its SMs could issue
                continue
            derived = plain["sm_count"] * per_clock * plain["boost_clock_mhz"] * 1e6 / 1e12
            if _rated_clock_is_lower(name, key):
                assert 0.8 * derived < peak <= derived * 1.01, (name, key)
            else:
                assert peak == pytest.approx(derived, rel=0.06), (name, key)
            checked += 1
    assert checked > 200


def test_shipped_entries_have_only_known_fields_and_all_required_ones():
    def check(form, entry, path):
        for key in form.required:
            assert entry.get(key) is not None, f"{path} lacks {key}"
        for key, value in entry.items():
            if key in ("confidence", "silicon_siblings"):
                continue
            assert key in form.fields, f"{path}.{key}"
            field = form.fields[key]
            if isinstance(field, Section) and value is not None:
                check(field, value, f"{path}.{key}")

    for section, form in SECTIONS.items():
        for name, entry in getattr(catalogue(), section).items():
            check(form, entry, name)


def test_every_source_id_is_listed_and_every_value_has_a_known_confidence():
    def walk(value, table):
        if isinstance(value, dict):
            if "confidence" in value:
                assert value["confidence"] in build.CONFIDENCES
                assert value["sources"]
                assert set(value["sources"]) <= set(table)
                assert {d["source"] for d in value.get("disagree", ())} <= set(table)
            for inner in value.values():
                walk(inner, table)

    for section in build.SECTIONS:
        document = build.read_yaml(section)
        walk(document[section], document["sources"])


def test_values_called_verified_have_two_sources():
    for section in build.SECTIONS:
        for name, entry in build.read_yaml(section)[section].items():
            for key, value in entry.items():
                if isinstance(value, dict) and value.get("confidence") == "verified":
                    assert len(set(value["sources"])) >= 2, (name, key)


def test_meshes_are_symmetric_and_use_no_more_links_than_a_gpu_has():
    for name in list_nodes():
        box = node(name)
        if box.fabric is FabricKind.NVLINK_MESH:
            assert len(box.mesh_links) == box.num_gpus, name
            for i, row in enumerate(box.mesh_links):
                assert [r[i] for r in box.mesh_links] == list(row)
                assert row[i] == 0
                assert sum(row) <= 18


def test_mi250x_is_one_of_the_two_devices_software_sees():
    part = gpu("mi250x")
    assert part.num_sms == 110
    assert part.memory_bytes == 64 * 2**30


def test_rack_is_a_node_of_one_tray_in_a_domain_of_72():
    rack = node("gb200_nvl72")
    assert (rack.num_gpus, rack.nvlink_domain_gpus, rack.num_nics) == (4, 72, 4)


def test_gpu_without_fp8_says_what_it_has():
    with pytest.raises(InputError, match="no fp8 arithmetic; it has"):
        gpu("v100_sxm2_16").peak(Dtype.FP8)


def test_unknown_name_offers_near_ones():
    with pytest.raises(UnknownNameError, match="a100_sxm4_80"):
        gpu("a100_sxm_80")


def test_sources_of_a_value():
    fact = sources_of("h100_sxm5_80", "peak_tflops_dense.fp16_tensor")
    assert fact.value == 989.4
    assert fact.confidence == "verified"
    assert any("1979" in other for other in fact.disagree)
    assert all("http" in s or "README" in s for s in fact.sources)


@pytest.mark.parametrize(("name", "path"), [("h100_sxm5_80", "memory"), ("ib_hdr", "name")])
def test_sources_of_rejects_what_has_none(name, path):
    with pytest.raises(InputError, match=name):
        sources_of(name, path)


@pytest.mark.parametrize("section", ["gpus", "nodes", "networks"])
def test_listing_has_one_row_an_entry(section):
    rows = catalogue_rows(section)
    assert [row["name"] for row in rows] == list(getattr(catalogue(), section))
    assert all(row["confidence"] in build.CONFIDENCES for row in rows)


def test_listing_of_an_unknown_section_names_the_known_ones():
    with pytest.raises(InputError, match="gpus, nodes, networks"):
        catalogue_rows("models")


def test_first_load_needs_no_yaml_parser():
    code = (
        "import sys; from perfmodel.hardware.catalogue import node; node('dgx_a100_80'); "
        "print('yaml' in sys.modules, 'pandas' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]


def test_catalogue_points_at_no_machine_path():
    folder = Path(perfmodel.__file__).parent / "hardware" / "catalogue"
    for file in folder.iterdir():
        text = file.read_text(encoding="utf-8")
        assert "/work" not in text
        assert "/tmp" not in text
        assert "data/" not in text.replace("huggingface", "").replace("data/mi", "")


def test_silicon_families_list_the_gpus_that_name_them():
    document = build.read_yaml("gpus")
    for family, entry in document["silicon_families"].items():
        members = [n for n, e in document["gpus"].items() if e["silicon_family"] == family]
        assert sorted(entry["gpus"]) == sorted(members), family
