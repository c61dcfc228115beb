"""Fused expert blocks of a mixture of experts: physics and features."""

from __future__ import annotations

import numpy as np

from perfmodel.cost.kernels import physics
from perfmodel.cost.kernels.rows import Rows, Vector

OPS = ("moe",)
SHAPE = (
    "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size",
)  # fmt: skip

_TILES = ((128, 128, 1.0), (64, 128, 0.8), (16, 128, 0.3))
_SKEW = {"balanced": 0.0, "power_law_1.01": 1.01, "power_law_1.2": 1.2}  # exponent of the source


def _hit_experts(local: Vector, load: Vector, routed: Vector) -> Vector:
    """Distinct local experts hit when tokens draw at random, `load` of them an expert."""
    hit = local * (1.0 - np.exp(-load))
    return np.maximum(np.minimum(hit, routed), 1.0)


def describe(rows: Rows) -> physics.Work:
    """Gate, up and down projections of the experts one rank holds, with routing."""
    tokens, topk = rows.shape["num_tokens"], rows.shape["topk"]
    hidden, experts = rows.shape["hidden_size"], rows.shape["num_experts"]
    inter = rows.shape["inter_size"] / rows.shape["moe_tp_size"]
    local = np.maximum(experts / rows.shape["moe_ep_size"], 1.0)
    device, size = rows.device, rows.element_bytes
    gated = np.array(["nongated" not in k for k in rows.labels["kernel"]], dtype=float)
    matrices = 2.0 + gated
    routed = np.maximum(tokens * topk * local / experts, 1.0)
    active = _hit_experts(local, tokens * topk / experts, routed)
    per_expert = routed / active
    weights = matrices * active * hidden * inter * size
    num_bytes = weights + routed * (2.0 * hidden + matrices * inter) * size + 2.0 * tokens * hidden
    compute = physics.tiled_compute(
        per_expert, inter, 2.0 * matrices * hidden, active, device, _TILES
    )
    flop_s = 2.0 * matrices * routed * hidden * inter / device.peak_flop_per_s
    skew = np.array([_SKEW.get(d, 1.0) for d in rows.labels["distribution"]])
    features = {
        "intensity": np.log2(flop_s / (num_bytes / device.bytes_per_s)),
        "tiling_loss": np.log2(compute / flop_s),
        "weights_in_cache": physics.cache_feature(weights, device),
        "log_per_expert": np.log2(per_expert), "pad": physics.padding(per_expert, 64),
        "log_active": np.log2(active), "active_share": active / local,
        **physics.logs(
            tokens=tokens, topk=topk, hidden=hidden, inter=inter, local=local, experts=experts
        ),
        "align_inter": physics.alignment(inter), "skew": skew, "gated": gated,
        "weight_share": weights / num_bytes,
        **physics.wave_features(
            active * np.ceil(per_expert / 128) * np.ceil(inter / 128), device.num_sms, "tile128"
        ),
    }  # fmt: skip
    flop = matrices * routed * hidden * inter
    sizes = physics.logs(
        routed=routed, weights=weights, flop=flop, bytes=num_bytes, tp=rows.shape["moe_tp_size"],
        ep=rows.shape["moe_ep_size"], full_inter=rows.shape["inter_size"],
    )  # fmt: skip
    return physics.Work(compute_s=compute, num_bytes=num_bytes, features=features, sizes=sizes)
