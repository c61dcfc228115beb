"""Spellings of devices, formats and collectives."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import InputError, UnknownNameError
from perfmodel.hardware.aliases import (
    dtype_note,
    normalise,
    resolve_collective,
    resolve_dtype,
    resolve_gpu,
    resolve_network_name,
    resolve_node_name,
)
from perfmodel.hardware.catalogue import catalogue, list_gpus
from perfmodel.program.work import CollectiveKind


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("H100-SXM-80GB", "h100_sxm5_80"),
        ("H100-SXM5-80GB", "h100_sxm5_80"),
        ("NVIDIA H100 80GB HBM3", "h100_sxm5_80"),
        ("h100_sxm5_80", "h100_sxm5_80"),
        ("Tesla V100-SXM2-32GB", "v100_sxm2_32"),
        ("V100-SXM3-32GB (DGX-2H)", "v100_sxm3_32_450w"),
        ("NVIDIA A100-SXM4-80GB", "a100_sxm4_80"),
        ("A100-PCIE-40GB", "a100_pcie_40"),
        ("NVIDIA GeForce RTX 4090", "rtx_4090"),
        ("GB200", "gb200"),
        ("H200-141GB", "h200_sxm"),
        ("MI300X OAM", "mi300x"),
        ("AMD Instinct MI300X VF", "mi300x"),
        ("Intel Arc Pro B60", "arc_b60"),
        ("A10", "a10"),
        ("NVIDIA A10G", "a10g"),
        ("L40S", "l40s"),
        ("NVIDIA H100 80GB HBM3 SXM5 (700W)", "h100_sxm5_80"),
        ("V100 SXM2 16 GB", "v100_sxm2_16"),
        ("H100SXM5 80 GB", "h100_sxm5_80"),
    ],
)
def test_plain_spellings_resolve_without_a_warning(text, name):
    part, warning = resolve_gpu(text)
    assert part.name == name
    assert warning is None


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("A100-SXM", "a100_sxm4_80", "memory not stated"),
        ("A100", "a100_sxm4_80", "memory not stated"),
        ("A100-80GB", "a100_sxm4_80", "form factor not stated"),
        ("V100", "v100_sxm2_16", "not stated"),
        ("H100-SXM-96GB-HBM2e-500W", "h100_sxm5_96", "500 W stated"),
        ("A100-SXM-64GB", "a100_sxm4_80", "64 GB of memory instead of 80"),
        ("H20-3e 141GB", "h20", "141 GB"),
        ("V100S-PCIE-32GB", "v100_pcie_32", "not in the catalogue"),
        ("unknown Hopper-class", "h100_sxm5_80", "only the architecture"),
    ],
)
def test_open_spellings_take_the_nearest_part_and_say_so(text, name, words):
    part, warning = resolve_gpu(text)
    assert part.name == name
    assert words in warning


def test_stated_memory_is_carried_over():
    part, _ = resolve_gpu("A100-SXM-64GB")
    assert part.memory_bytes == 64 * 2**30


def test_stated_power_is_carried_over():
    part, _ = resolve_gpu("H100-SXM-96GB-HBM2e-500W")
    assert part.power_w == 500


@pytest.mark.parametrize("text", ["TPU v4", "Gaudi2", "", "   ", "unstated", "RTX 3050", "B1"])
def test_unknown_devices_are_refused(text):
    with pytest.raises(UnknownNameError):
        resolve_gpu(text)


def test_unknown_device_offers_near_names():
    with pytest.raises(UnknownNameError, match=r"did you mean.*a100"):
        resolve_gpu("a10O_sxm4_80")


@given(st.sampled_from(list_gpus()), st.sampled_from(["-", " ", "_", ""]), st.booleans())
def test_case_and_separators_do_not_matter(name, separator, upper):
    text = name.replace("_", separator)
    assert resolve_gpu(text.upper() if upper else text)[0].name == name


@given(st.text(max_size=40))
def test_any_text_resolves_or_is_refused(text):
    for resolve in (resolve_gpu, resolve_dtype, resolve_collective):
        with suppress(InputError):
            resolve(text)


def test_no_spelling_means_two_things():
    aliases = catalogue().aliases
    for section in ("gpus", "nodes", "networks", "dtypes", "collectives"):
        seen = {}
        for name, texts in aliases[section].items():
            for text in {normalise(name), *map(normalise, texts)}:
                assert seen.setdefault(text, name) == name, (section, text)
    closed = {normalise(t) for texts in aliases["gpus"].values() for t in texts}
    opened = [normalise(t) for row in aliases["open_gpus"] for t in row["says"]]
    assert len(opened) == len(set(opened))
    assert not closed & set(opened)


def test_every_alias_points_at_an_entry():
    aliases = catalogue().aliases
    for section in ("gpus", "nodes", "networks"):
        assert set(aliases[section]) <= set(getattr(catalogue(), section))
    assert {row["is"] for row in aliases["open_gpus"]} <= set(list_gpus())


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("fp16 mixed", "fp16"),
        ("fp16/bf16 mixed (not stated per table)", "fp16"),
        ("fp16/fp8 mixed", "fp8"),
        ("bf16-amp", "bf16"),
        ("fp16-amp", "fp16"),
        ("AMP", "fp16"),
        ("fp8-tensorwise", "fp8"),
        ("fp8-rowwise", "fp8"),
        ("fp8-linear", "fp8"),
        ("fp8 linear", "fp8"),
        ("tf32", "tf32"),
        ("mxfp8", "mxfp8"),
        ("nvfp4", "nvfp4"),
        ("fp8/fp4, submitter dependent", "fp8"),
        ("float", "fp32"),
        ("half", "fp16"),
        ("double", "fp64"),
        ("bfloat16", "bf16"),
        ("torch.bfloat16", "bf16"),
        ("float8_e4m3fn", "fp8"),
        ("fp32 (tf32)", "tf32"),
        ("bf16 with fp32 master weights", "bf16"),
        ("bf16/fp16", "bf16"),
        ("mixed precision", "fp16"),
        ("uint8", "int8"),
    ],
)
def test_precisions_as_printed(text, dtype):
    assert resolve_dtype(text) == dtype


def test_note_says_what_was_chosen_of_several_formats():
    assert "fp8" in dtype_note("fp8/fp4, submitter dependent")
    assert dtype_note("bf16") is None
    assert dtype_note("float") is None


def test_unknown_precision_lists_the_allowed():
    with pytest.raises(InputError, match="fp64, fp32, tf32, bf16"):
        resolve_dtype("posit8")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("alltoall", "all_to_all"),
        ("all_to_allv", "all_to_all"),
        ("AllReduce", "all_reduce"),
        ("ncclAllReduce", "all_reduce"),
        ("reduce-scatter", "reduce_scatter"),
        ("_allgather_base", "all_gather"),
        ("sendrecv", "send_recv"),
        ("c10d::alltoall_base_", "all_to_all"),
        ("broadcast", "broadcast"),
    ],
)
def test_collective_spellings(text, kind):
    assert resolve_collective(text) == kind


def test_collectives_are_those_of_the_work_records():
    assert set(catalogue().aliases["collectives"]) == set(CollectiveKind)
    for kind in CollectiveKind:
        assert resolve_collective(kind) == kind


def test_unknown_collective_lists_the_allowed():
    with pytest.raises(InputError, match="all_reduce, all_gather"):
        resolve_collective("gossip")


@pytest.mark.parametrize(
    ("text", "name"),
    [("DGX A100", "dgx_a100_80"), ("p4d.24xlarge", "aws_p4d_24xlarge"), ("Selene", "selene")],
)
def test_node_spellings(text, name):
    assert resolve_node_name(text) == name


@pytest.mark.parametrize(
    ("text", "name"), [("NDR", "ib_ndr"), ("EFA", "efa_v1"), ("none", "none"), ("HDR IB", "ib_hdr")]
)
def test_network_spellings(text, name):
    assert resolve_network_name(text) == name


def test_unknown_network_offers_near_names():
    with pytest.raises(UnknownNameError, match="ib_"):
        resolve_network_name("ib_hdrr")
