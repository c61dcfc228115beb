"""Memory: published per-layer and per-parameter byte counts, and what must be monotone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.hardware.catalogue import gpu
from perfmodel.hardware.records import (
    Cluster,
    Dtype,
    FabricKind,
    Network,
    NetworkKind,
    Node,
)
from perfmodel.memory import Part, estimate_memory
from perfmodel.memory.activations import Rules, saved_by_block
from perfmodel.memory.estimate import micro_batches_in_flight
from perfmodel.memory.stages import Parameters, parameters_of, split_into_stages
from perfmodel.memory.states import model_state
from perfmodel.plan.placement_rules import place
from perfmodel.plan.records import Plan, Recompute, Schedule, Shard
from perfmodel.plan.sharding import ShardingPlan
from perfmodel.plan.stacks import stack_by_name
from perfmodel.units import GIB
from perfmodel.workload.recommender import EmbeddingTable, RecommenderModel
from perfmodel.workload.records import Precision, Workload
from perfmodel.workload.transformer import TransformerModel

MEGATRON = stack_by_name("megatron_2021")
BF16 = Precision.of(Dtype.BF16)
FP16 = Precision.of(Dtype.FP16)
S, H, A, F = 2048, 4096, 32, 16384
NODE = Node(
    name="node", title="node", gpu=gpu("a100_sxm4_80"), num_gpus=8, fabric=FabricKind.NVSWITCH,
    fabric_bytes_per_s=300e9, nvlink_domain_gpus=8,
)  # fmt: skip
NETWORK = Network(
    name="ib", title="ib", kind=NetworkKind.INFINIBAND, port_bytes_per_s=25e9, latency_s=2e-6,
    step_latency_s=1e-6, achieved_fraction=0.8, has_gpudirect=True,
)  # fmt: skip


def cluster(num_gpus: int) -> Cluster:
    return Cluster(
        node=NODE,
        network=NETWORK,
        num_nodes=max(1, num_gpus // 8),
        gpus_per_node=min(8, num_gpus),
        node_bytes_per_s=100e9,
    )


def gpt(**changes: object) -> TransformerModel:
    fields: dict[str, object] = {
        "layers": 24, "hidden": H, "heads": A, "ffn": F, "vocab": 51200, "seq": S,
    }  # fmt: skip
    return TransformerModel(**(fields | changes))  # type: ignore[arg-type]


def run(plan: Plan, *, precision: Precision = FP16, batch: float = 64, **changes: object):
    workload = Workload(name="gpt", model=gpt(**changes), global_batch=batch, precision=precision)
    return estimate_memory(workload, plan, MEGATRON, cluster(plan.num_gpus))


def layer_bytes(plan: Plan, recompute: Recompute) -> float:
    rules = Rules.of(FP16, plan, MEGATRON)
    layer = next(b for b in gpt().blocks() if b.is_layer)
    return saved_by_block(layer, rules).held(recompute)


# arXiv:2205.05198, table 2: bytes of one layer and one sample.
@pytest.mark.parametrize(
    ("plan", "recompute", "expected"),
    [
        (Plan(), Recompute.NONE, S * H * (34 + 5 * A * S / H)),
        (Plan(tp=8), Recompute.NONE, S * H * (10 + 24 / 8 + 5 * A * S / (H * 8))),
        (
            Plan(tp=8, sequence_parallel=True),
            Recompute.NONE,
            S * H * (34 / 8 + 5 * A * S / (H * 8)),
        ),
        (Plan(tp=8, sequence_parallel=True), Recompute.SELECTIVE, S * H * 34 / 8),
        (Plan(tp=8), Recompute.FULL, 2 * S * H),
    ],
)
def test_layer_activations_equal_the_published_formulas(
    plan: Plan, recompute: Recompute, expected: float
) -> None:
    assert layer_bytes(plan, recompute) == pytest.approx(expected, rel=1e-9)


def test_fused_attention_keeps_statistics_instead_of_scores() -> None:
    flash = replace(MEGATRON, attention_kernel="flash2")
    layer = next(b for b in gpt().blocks() if b.is_layer)
    saved = saved_by_block(layer, Rules.of(FP16, Plan(), flash))
    assert saved.scores == 0
    assert saved.kept == pytest.approx(S * H * 34 + 4 * A * S)


def test_context_parallelism_divides_activations() -> None:
    assert layer_bytes(Plan(cp=4), Recompute.NONE) == pytest.approx(
        layer_bytes(Plan(), Recompute.NONE) / 4
    )


# Bytes per parameter: Megatron's dist_optimizer page, the ZeRO paper, PyTorch FSDP.
@pytest.mark.parametrize(
    ("precision", "plan", "stack", "expected"),
    [
        (FP16, Plan(dp=8), "megatron_2021", 20),
        (FP16, Plan(dp=8, shard=Shard.OPTIMIZER), "megatron_2021", 4 + 16 / 8),
        (BF16, Plan(dp=8), "megatron_core", 18),
        (BF16, Plan(dp=8, shard=Shard.OPTIMIZER), "megatron_core", 6 + 12 / 8),
        (Precision.of(Dtype.FP32), Plan(), "megatron_2021", 16),
        (BF16, Plan(dp=8, shard=Shard.PARAMETERS, uses_fsdp=True), "torchtitan", 16 / 8),
    ],
)
def test_model_state_matches_published_bytes_per_parameter(
    precision: Precision, plan: Plan, stack: str, expected: float
) -> None:
    workload = Workload(name="x", model=gpt(), global_batch=64, precision=precision)
    state = model_state(Parameters(dense=1e9), workload, plan, stack_by_name(stack))
    total = state.parameters + state.gradients + state.optimizer + state.update
    assert total / 1e9 == pytest.approx(expected)


def test_autocast_keeps_a_cached_copy_and_ddp_buckets() -> None:
    precision = Precision.of(Dtype.FP16, is_autocast=True)
    workload = Workload(name="x", model=gpt(), global_batch=64, precision=precision)
    state = model_state(Parameters(dense=1.0), workload, Plan(dp=8), stack_by_name("torch_ddp"))
    assert state.parameters + state.gradients + state.optimizer == pytest.approx(18)
    assert state.buffers == pytest.approx(4)


def test_frozen_weights_have_no_gradient_and_no_optimizer_state() -> None:
    full, lora = run(Plan(dp=8)), run(Plan(dp=8), lora_rank=16)
    assert lora.by_part["optimizer"] < 0.05 * full.by_part["optimizer"]
    assert lora.by_part["parameters"] == pytest.approx(full.by_part["parameters"], rel=0.05)


def test_pipeline_stages_share_out_all_parameters() -> None:
    model = gpt(ties_embeddings=False)
    whole = parameters_of(split_into_stages(model.blocks(), 1)[0], Plan(), 1).all
    stages = split_into_stages(model.blocks(), 8)
    assert sum(parameters_of(s, Plan(pp=8), 8).all for s in stages) == pytest.approx(whole)


def test_a_tied_vocabulary_lies_on_the_first_and_the_last_stage() -> None:
    model = gpt()
    whole = parameters_of(split_into_stages(model.blocks(), 1)[0], Plan(), 1).all
    stages = split_into_stages(model.blocks(), 2)
    held = sum(parameters_of(s, Plan(pp=2), 2).all for s in stages)
    assert held == pytest.approx(whole + 51200 * H)


def test_uneven_layers_leave_room_for_embedding_and_head() -> None:
    stages = split_into_stages(gpt(layers=70).blocks(), 12)
    counts = [sum(n for b, n in s.parts if b.is_layer) for s in stages]
    assert counts == [5, *[6] * 10, 5]


@pytest.mark.parametrize(
    ("plan", "stage", "expected"),
    [
        (Plan(pp=4, dp=1), 0, 4),
        (Plan(pp=4, dp=1), 3, 1),
        (Plan(pp=4, dp=1, schedule=Schedule.GPIPE), 2, 64),
        (Plan(pp=4, dp=1, vp=2, schedule=Schedule.INTERLEAVED), 0, 4 * (1 + 3 / 8)),
        (Plan(pp=4, dp=32), 0, 2),  # no more than there are micro-batches
    ],
)
def test_micro_batches_in_flight(plan: Plan, stage: int, expected: float) -> None:
    assert micro_batches_in_flight(plan, 64, stage) == pytest.approx(expected)


def test_verdict_follows_capacity() -> None:
    small = run(Plan(dp=8, tp=8, recompute=Recompute.FULL))
    large = run(Plan(dp=8, micro_batch=8))
    assert small.fits
    assert small.probability_fits > 0.99
    assert not large.fits
    assert large.interval[0] < large.peak_bytes < large.interval[1]


def test_parts_sum_to_the_peak() -> None:
    estimate = run(Plan(dp=2, tp=2, pp=4, shard=Shard.OPTIMIZER))
    assert sum(estimate.by_part.values()) == pytest.approx(estimate.peak_bytes)
    assert max(estimate.by_rank.values()) == estimate.peak_bytes
    assert len(estimate.by_rank) == 4


@settings(max_examples=40, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    dp=st.sampled_from([1, 2, 4]),
    micro=st.sampled_from([1, 2, 4]),
    shard=st.sampled_from(list(Shard)),
)
def test_memory_falls_with_sharding_and_recompute_and_grows_with_micro_batch(
    tp: int, dp: int, micro: int, shard: Shard
) -> None:
    plan = Plan(tp=tp, dp=dp, micro_batch=micro, shard=shard)
    base = run(plan).peak_bytes
    assert run(replace(plan, micro_batch=micro * 2)).peak_bytes >= base
    assert run(replace(plan, recompute=Recompute.SELECTIVE)).peak_bytes <= base * (1 + 1e-9)
    full = run(replace(plan, recompute=Recompute.FULL)).by_part["activations"]
    assert full <= run(plan).by_part["activations"]
    assert run(replace(plan, sequence_parallel=True)).peak_bytes <= base * (1 + 1e-9)


TABLES = tuple(EmbeddingTable(name=f"t{i}", rows=10**6 * (i + 1), dim=128) for i in range(8))
DLRM = RecommenderModel(
    name="dlrm", tables=TABLES, num_dense=13, bottom_mlp=(512, 128), top_mlp=(1024, 1)
)


def dlrm(embedding: ShardingPlan | None, optimizer: str = "sgd"):
    workload = Workload(
        name="dlrm",
        model=DLRM,
        global_batch=65536,
        precision=Precision.of(Dtype.FP32),
        optimizer=optimizer,
    )
    plan = Plan(dp=8, micro_batch=8192, embedding=embedding)
    return estimate_memory(workload, plan, MEGATRON, cluster(8))


def test_tables_are_counted_on_the_rank_that_holds_them() -> None:
    estimate = dlrm(place("round_robin", TABLES, 8))
    assert estimate.by_part[Part.TABLES] == pytest.approx(8e6 * 128 * 4)
    assert len(estimate.by_rank) == 8


def test_replicated_tables_cost_every_rank_and_adagrad_doubles_them() -> None:
    everywhere = dlrm(place("replicated", TABLES, 8))
    assert everywhere.by_part[Part.TABLES] == pytest.approx(36e6 * 128 * 4)
    adagrad = dlrm(place("replicated", TABLES, 8), optimizer="adagrad")
    assert adagrad.by_part[Part.TABLES] == pytest.approx(2 * 36e6 * 128 * 4)


def test_tables_without_a_plan_are_spread_not_counted_twice() -> None:
    estimate = dlrm(None)
    assert estimate.by_part["parameters"] < 0.1 * GIB
    assert estimate.by_part[Part.TABLES] < 36e6 * 128 * 4
