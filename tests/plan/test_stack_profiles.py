"""Execution profiles: every field has a source; rules choose as a reader would."""

from dataclasses import fields

import pytest

from perfmodel.errors import UnknownNameError
from perfmodel.plan.stack import Stack
from perfmodel.plan.stacks import (
    generic_stack,
    list_stacks,
    select_stack,
    stack_by_name,
    with_attention_kernel,
    year_of,
)

PROFILES = list_stacks()


@pytest.mark.parametrize("profile", PROFILES, ids=lambda p: p.stack.name)
def test_every_field_of_a_profile_is_a_stack_field_of_its_type_with_a_source(profile):
    names = {f.name for f in fields(Stack)}
    for name, source in profile.sources.items():
        assert len(source) > 3, name
        if name in names:
            default = getattr(Stack(name="x", title="x", year=2020), name)
            value = getattr(profile.stack, name)
            if isinstance(default, bool):
                assert isinstance(value, bool), name
            elif isinstance(default, int | float):
                assert isinstance(value, int | float), name


@pytest.mark.parametrize(
    ("software", "name"),
    [
        ("Megatron-LM 2021", "megatron_2021"),
        ("Megatron-LM 2025", "megatron_core"),
        ("NVIDIA 25.11 NeMo container, Megatron-Bridge", "megatron_core"),
        ("Megatron-DeepSpeed, 1F1B", "megatron_deepspeed"),
        ("DeepSpeed ZeRO-3 2021", "deepspeed_zero3_2021"),
        ("DeepSpeed ZeRO-2, PyTorch 2.1", "deepspeed"),
        ("torchtitan 2025-01, FSDP2", "torchtitan"),
        ("PyTorch FSDP, 2024", "pytorch_fsdp"),
        ("Composer/llm-foundry + PyTorch FSDP, MP mode PURE (2023)", "composer_fsdp_pure"),
        ("PyTorch Transformer-XL (NGC)", "ngc_transformer_xl"),
        ("OneFlow W/O clip (2020-10)", "oneflow_no_clip"),
    ],
)
def test_stack_is_chosen_from_the_software_text(software, name):
    stack, warning = select_stack(software, "transformer")
    assert stack.name == name
    assert warning is None


def test_unknown_software_gets_the_generic_profile_of_its_year_and_a_warning():
    stack, warning = select_stack("In-house trainer 2024", "transformer")
    assert stack.name == "generic_transformer_2024"
    assert not stack.is_known
    assert stack.attention_kernel == "flash2"
    assert "In-house trainer 2024" in warning
    assert select_stack("In-house trainer 2019", "transformer")[0].attention_kernel == "unfused"


@pytest.mark.parametrize(
    ("text", "year"),
    [("ngc 21.10 line", 2021), ("megatron-lm 2022", 2022), ("paper arxiv:2311.05610", 2023),
     ("25.11 nemo", 2025), ("release 3.1", None)],
)  # fmt: skip
def test_year_of_a_software_text(text, year):
    assert year_of(text) == year


def test_every_family_has_a_generic_profile():
    for family in ("transformer", "dlrm", "cnn"):
        assert not generic_stack(family, 2023).is_known


def test_misspelt_stack_offers_near_names():
    with pytest.raises(UnknownNameError, match="megatron_core"):
        stack_by_name("megatron_cor")


def test_stated_attention_kernel_replaces_that_of_the_stack():
    stack = stack_by_name("megatron-2021")
    assert (
        with_attention_kernel(stack, "flash_attention2 + RMS kernel").attention_kernel == "flash2"
    )
    assert with_attention_kernel(stack, "flash_attentionv1.0.8").attention_kernel.startswith(
        "flash"
    )
    unknown = with_attention_kernel(stack, "zeta")
    assert unknown.attention_kernel == "unfused"
    assert "zeta" in unknown.assumptions[0]
