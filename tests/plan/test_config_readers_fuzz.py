"""Whatever a configuration file holds, its reader answers with a run or with one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfmodel.errors import PerfmodelError
from perfmodel.schema.foreign.compose import READERS, Choices, run_from_files

CONFIGS = Path(__file__).parent / "configs"
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10**6), st.floats(), st.text(max_size=8),
    st.lists(st.integers(0, 3), max_size=3), st.just({}), st.just("auto"),
    st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
)  # fmt: skip
QUIET = settings(
    max_examples=40, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip


def answers(path: Path, kind: str) -> None:
    said = "a run"
    try:
        run_from_files({kind: path}, Choices(cluster="dgx_h100", batch=64, num_nodes=1))
    except PerfmodelError as error:
        said = str(error)
    assert said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("kind", "name"),
    [("hf", "hf_deepseek_v3.json"), ("hf", "hf_gemma2.json"), ("hf", "hf_t5.json"),
     ("deepspeed", "ds_zeropp.json")],
)  # fmt: skip
@QUIET
@given(data=st.data())
def test_json_with_one_odd_value(tmp_path, kind, name, data):
    content = json.loads((CONFIGS / name).read_text())
    key = data.draw(st.sampled_from(sorted(content)))
    content[key] = data.draw(ODD)
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(content))
    answers(path, kind)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("megatron", "megatron_llama3_8b.sh"), ("megatron", "megatron_mixtral.sh"),
     ("torchtitan", "titan_pp.toml"), ("nemo", "nemo_deepseek.yaml"),
     ("nemo", "nemo_gpt_5b.yaml")],
)  # fmt: skip
@QUIET
@given(data=st.data())
def test_text_with_a_damaged_place(tmp_path, kind, name, data):
    text = (CONFIGS / name).read_text()
    start = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 30))
    inserted = data.draw(st.text(alphabet="$({[\"'`#=:- \n0x,}])&|;", max_size=6))
    path = tmp_path / "odd"
    path.write_text(text[:start] + inserted + text[start + length :])
    answers(path, kind)


@pytest.mark.parametrize("kind", sorted(READERS))
@QUIET
@given(raw=st.binary(max_size=60))
def test_any_bytes(tmp_path, kind, raw):
    path = tmp_path / "bytes"
    path.write_bytes(raw)
    answers(path, kind)
