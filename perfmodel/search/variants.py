"""The same run with another batch, length, number of GPUs or kind of hardware."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.errors import InputError, InvalidPlanError
from perfmodel.hardware.clusters import resolve_cluster
from perfmodel.hardware.records import Cluster
from perfmodel.plan.records import Plan
from perfmodel.plan.sharding import ShardingPlan
from perfmodel.run import Run, plan_problems
from perfmodel.schema.parts import embedding_from_rule
from perfmodel.workload.records import Workload

_AS_GIVEN = "as given"  # the note of a sharding plan that the user spelled out


def variant(
    run: Run,
    *,
    batch: float | None = None,
    micro_batch: float | None = None,
    seq: int | None = None,
    gpus: int | None = None,
    cluster: str | None = None,
) -> Run:
    """`run` with what is given changed; data parallelism takes up the change of GPUs.

    A run that does its batch in one pass keeps doing so; one that accumulates keeps its
    micro-batch unless a replica has fewer samples. Embedding tables are placed anew by the rule
    that placed them.

    Raises
    ------
    InputError
        If the result is no run: its sizes do not divide, or tables were placed by hand.
    """
    hardware = run.cluster if cluster is None else resolve_cluster(cluster)
    hardware = resized(hardware, gpus or run.cluster.num_gpus)
    workload = _workload(run.workload, batch, seq)
    plan = _plan(run, workload, hardware.num_gpus, micro_batch)
    plan.num_micro_batches(workload.global_batch)  # raises where it does not divide
    for problem in plan_problems(workload, plan):
        raise InvalidPlanError(problem)
    return replace(run, workload=workload, plan=plan, cluster=hardware)


def resized(cluster: Cluster, num_gpus: int) -> Cluster:
    """`num_gpus` of the same kind: part of one node, or whole nodes as far as the job uses them.

    Raises
    ------
    InputError
        If they do not make whole nodes.
    """
    if num_gpus == cluster.num_gpus:
        return cluster
    node = cluster.node
    if num_gpus < 1:
        raise InputError(f"gpus {num_gpus} is not a positive number")
    if num_gpus <= node.num_gpus and (cluster.num_nodes == 1 or num_gpus <= cluster.gpus_per_node):
        return replace(cluster, num_nodes=1, gpus_per_node=num_gpus)
    per_node, rate = cluster.gpus_per_node, cluster.node_bytes_per_s
    if cluster.num_nodes == 1:
        per_node, rate = node.num_gpus, node.num_nics * node.nic_bytes_per_s or rate
    if num_gpus % per_node:
        raise InputError(
            f"gpus {num_gpus} is not a multiple of the {per_node} GPUs of a node ({node.title})"
        )
    return replace(
        cluster, num_nodes=num_gpus // per_node, gpus_per_node=per_node, node_bytes_per_s=rate
    )


def _workload(workload: Workload, batch: float | None, seq: int | None) -> Workload:
    if seq is not None:
        model = workload.model
        if model.family != "transformer":
            raise InputError(f"seq is for transformers, the workload is a {model.family}")
        changes: dict[str, object] = {"seq": seq}
        masked = getattr(model, "mlm_predictions", None)
        if masked is not None:
            share = masked / model.seq  # type: ignore[attr-defined]
            changes["mlm_predictions"] = max(1, round(share * seq))
        workload = replace(workload, model=replace(model, **changes))  # type: ignore[type-var]
    return workload if batch is None else replace(workload, global_batch=batch)


def _plan(run: Run, workload: Workload, num_gpus: int, micro_batch: float | None) -> Plan:
    old = run.plan
    model_parallel = old.tp * old.pp * old.cp
    if num_gpus % model_parallel:
        raise InvalidPlanError(
            f"gpus {num_gpus} is not a multiple of tp {old.tp} x pp {old.pp} x cp {old.cp}"
        )
    dp = num_gpus // model_parallel
    in_one_pass = old.num_micro_batches(run.workload.global_batch) == 1
    per_replica = workload.global_batch / dp
    size = per_replica if in_one_pass or 1 <= per_replica < old.micro_batch else old.micro_batch
    group = old.shard_group
    plan = replace(
        old,
        dp=dp,
        micro_batch=micro_batch or size,
        shard_group=None if group is not None and group >= dp else group,
    )
    if num_gpus == old.num_gpus or not isinstance(old.embedding, ShardingPlan):
        return plan
    if old.embedding.note == _AS_GIVEN:
        raise InputError(
            f"tables are placed by hand for {old.num_gpus} GPUs, not {num_gpus}; name a rule "
            "(embedding_sharding: table_wise) to change the number of GPUs"
        )
    rule = embedding_from_rule(old.embedding.note, workload.model, num_gpus, run.stack.options)
    return replace(plan, embedding=rule)
