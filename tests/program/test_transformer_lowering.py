"""Lowering of transformers: work is conserved whatever the plan, bad plans are named."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from perfmodel.errors import InvalidPlanError
from perfmodel.hardware.clusters import cluster_from_names
from perfmodel.hardware.records import Dtype
from perfmodel.plan.records import Plan, Recompute, Schedule, Shard
from perfmodel.plan.stacks import stack_by_name
from perfmodel.predict import price_run
from perfmodel.program.lower import lower
from perfmodel.program.records import Program
from perfmodel.program.work import Attention, Collective, CollectiveKind, Gemm, OptimizerStep, Work
from perfmodel.run import Run
from perfmodel.simulator import simulate
from perfmodel.workload.flops import model_flops
from perfmodel.workload.records import Precision, Workload
from perfmodel.workload.transformer import Mixture, TransformerModel

MODEL = TransformerModel(layers=8, hidden=1024, heads=16, ffn=4096, vocab=32000, seq=512)
STACK = stack_by_name("megatron_2021")
FUSED = stack_by_name("megatron_core")


def workload(model: TransformerModel = MODEL, batch: float = 64) -> Workload:
    return Workload(
        name="test", model=model, global_batch=batch, precision=Precision.of(Dtype.BF16)
    )


def cluster(num_gpus: int):
    nodes = max(1, num_gpus // 8)
    return cluster_from_names("dgx_a100_80", nodes, gpus_per_node=min(8, num_gpus))


def works(program: Program) -> Iterator[tuple[Work, float]]:
    """Every work with its count, over all ranks."""
    for cls in program.classes:
        for task in cls.tasks:
            for item in task.work:
                yield item.work, float(item.count) * cls.multiplicity


def product_flops(program: Program) -> float:
    total = 0.0
    for work, count in works(program):
        if isinstance(work, Gemm):
            total += count * 2 * work.batch * work.m * work.n * work.k
        elif isinstance(work, Attention):
            pairs = work.query_len * work.key_len * (0.5 if work.causal else 1)
            flops = 2 * work.batch * work.heads * pairs * (work.head_dim + work.value_dim)
            total += count * flops * (2 if work.direction == "bwd" else 1)
    return total


PLANS = {
    "dp8": Plan(dp=8, micro_batch=4),
    "tp4": Plan(dp=2, tp=4, micro_batch=8),
    "tp2 sp": Plan(dp=4, tp=2, micro_batch=4, sequence_parallel=True),
    "pp4": Plan(dp=2, pp=4, micro_batch=4),
    "pp2 vp2": Plan(dp=4, pp=2, vp=2, micro_batch=2, schedule=Schedule.INTERLEAVED),
    "cp2": Plan(dp=4, cp=2, micro_batch=4),
    "fsdp": Plan(dp=8, micro_batch=2, shard=Shard.PARAMETERS, uses_fsdp=True),
    "hsdp": Plan(dp=8, micro_batch=2, shard=Shard.PARAMETERS, uses_fsdp=True, shard_group=4),
    "zero1": Plan(dp=8, micro_batch=2, shard=Shard.OPTIMIZER),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_matrix_products_of_all_ranks_add_up_to_the_model(plan):
    program = lower(workload(), plan, FUSED, cluster(8))
    assert product_flops(program) == pytest.approx(model_flops(MODEL) * 64, rel=1e-9)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_full_recomputation_runs_the_layers_forward_twice(plan):
    plain = product_flops(lower(workload(), plan, FUSED, cluster(8)))
    again = product_flops(
        lower(workload(), replace(plan, recompute=Recompute.FULL), FUSED, cluster(8))
    )
    layers = sum(
        2 * 512 * o.in_features * o.out_features
        for b in MODEL.layer_kinds()
        for o in b.operators
        if hasattr(o, "in_features")
    )
    attention = 8 * 2 * 16 * 512 * 256 * 128
    assert again - plain == pytest.approx(64 * (layers + attention), rel=1e-9)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_every_parameter_is_updated_on_exactly_one_rank_of_each_copy(plan):
    program = lower(workload(), plan, FUSED, cluster(8))
    updated = sum(w.parameters * c for w, c in works(program) if isinstance(w, OptimizerStep))
    owners = {Shard.NOTHING: plan.dp * plan.cp}.get(plan.shard)
    if owners is None:
        owners = plan.dp // (plan.shard_group or plan.dp)
    replicated = workload().num_parameters
    tolerance = 0.002 if plan.tp > 1 else 1e-9  # norms are not divided by tp
    assert updated / owners == pytest.approx(replicated, rel=tolerance)


def test_tensor_parallel_reduces_twice_a_layer_and_direction():
    program = lower(workload(), Plan(dp=2, tp=4, micro_batch=8), STACK, cluster(8))
    size = 8 * 512 * 1024 * 2
    counts = sum(
        c
        for w, c in works(program)
        if isinstance(w, Collective) and w.cause == "tp_comm" and w.num_bytes == size
    )
    # 4 a layer, one for the embedding, one for the gradient of the logits' input; 4 micro-batches
    assert counts == pytest.approx(8 * 4 * (8 * 4 + 2))


def test_fsdp_gathers_twice_and_scatters_once_a_micro_batch():
    program = lower(workload(), PLANS["fsdp"], STACK, cluster(8))
    moved = {
        kind: sum(
            w.num_bytes * c
            for w, c in works(program)
            if isinstance(w, Collective) and w.kind == kind
        )
        / 8
        for kind in CollectiveKind
    }
    parameters = workload().num_parameters * 2 * 4  # bytes of all gathers of 4 micro-batches
    assert moved[CollectiveKind.REDUCE_SCATTER] == pytest.approx(parameters, rel=1e-9)
    # the embedding and the head stay gathered between forward and backward
    root = sum(b.num_parameters for b in MODEL.blocks() if not b.is_layer) * 2 * 4
    assert moved[CollectiveKind.ALL_GATHER] == pytest.approx(2 * parameters - root, rel=1e-9)


def test_deduplicated_dispatch_crosses_nodes_once_per_node():
    model = replace(MODEL, mixture=Mixture(num_experts=16, top_k=8, ffn=1024))
    plan = Plan(dp=16, ep=16, micro_batch=1)
    plain = replace(FUSED, deduplicates_dispatch=False)

    def dispatched(stack) -> float:
        program = lower(workload(model), plan, stack, cluster(16))
        return sum(
            w.num_bytes * c
            for w, c in works(program)
            if isinstance(w, Collective) and w.kind is CollectiveKind.ALL_TO_ALL
        )

    # two nodes, eight choices: nearly every token visits both, 2 (1 - 1/2^8) of 8 copies
    assert dispatched(FUSED) / dispatched(plain) == pytest.approx(2 * (1 - 0.5**8) / 8)


def test_pipeline_bubble_has_its_closed_form():
    free = replace(STACK, host_op_s=0.0, host_step_s=0.0, overlaps_p2p=True, clips_gradients=False)
    # layers only: the ends of the model would unbalance the stages
    model = replace(MODEL, vocab=16, classes=2, seq=4096)

    def seconds(plan: Plan, batch: float) -> float:
        run = Run(workload=workload(model, batch), plan=plan, stack=free, cluster=cluster(8))
        return float(simulate(price_run(run)).iteration_s[0])

    one, two = (seconds(Plan(pp=8, micro_batch=1), m) for m in (8, 16))
    slot = (two - one) / 8  # one more micro-batch costs one forward and one backward
    assert one == pytest.approx((8 + 7) * slot, rel=0.06)  # transfers and the update beside it


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(dp=1, tp=8), "does not divide the 12 attention heads"),
        (Plan(dp=4), "the cluster has 8 GPUs"),
        (Plan(dp=1, pp=8, vp=2), "needs more than the 8 layers"),
        (Plan(dp=8, ep=2), "needs a mixture of experts"),
        (Plan(dp=8, micro_batch=16), "global_batch 64 is smaller than dp 8 x micro_batch 16"),
        (Plan(dp=8, micro_batch=3), "not a multiple of dp 8 x micro_batch 3"),
    ],
)
def test_plans_that_do_not_fit_are_refused_in_words(plan, words):
    model = replace(MODEL, hidden=1536, heads=12)
    with pytest.raises(InvalidPlanError, match=words):
        lower(workload(model), plan, STACK, cluster(8))


def test_communicators_cover_every_rank_once():
    program = lower(workload(), PLANS["hsdp"], STACK, cluster(8))
    for members in program.groups.values():
        assert sorted(np.ravel(members)) == list(range(8))
