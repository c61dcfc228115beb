"""Physics that kernels of every family share: roofline, waves, padding, cache, alignment."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from perfmodel.cost.kernels.rows import Device, Vector

# Smooth maximum of compute and memory time: 1 adds them, infinity takes the larger. Kernels
# overlap the two well but not perfectly; 3 lies between and costs at most 26 % at the ridge.
OVERLAP_POWER = 3.0
# Read bandwidth of L2 over DRAM is about 3 from Volta to Blackwell; by cross-validation on GPUs.
L2_COST = 0.3
WARM_FRACTION = 0.5  # of L2: it is two partitions on A100 and later, each holding its own copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What n kernels do, before any GPU efficiency.

    compute_s : seconds of arithmetic at the nominal peak, padding and idle SMs included, (n,)
    num_bytes : least traffic to memory, (n,)
    features : what the learned residual may look at beside the two, dimensionless, each (n,)
    sizes : logarithms of raw sizes, for GPUs that were measured, each (n,)
    """

    compute_s: Vector
    num_bytes: Vector
    features: dict[str, Vector] = field(default_factory=dict)
    sizes: dict[str, Vector] = field(default_factory=dict)


def tiled_compute(
    m: Vector,
    n: Vector,
    flop_per_element: Vector,
    batch: Vector,
    device: Device,
    tiles: tuple[tuple[int, int, float], ...],
    least_s: Vector | float = 0.0,
) -> Vector:
    """Seconds of the best of several tilings of an m x n output at the sustained peak.

    Parameters
    ----------
    m, n, batch, flop_per_element : ndarray of float64, shape (rows,)
        Output sizes, number of outputs, and operations per output element.
    device : Device
        Peak and number of SMs.
    tiles : tuple of (tile_m, tile_n, share)
        Tilings a library offers, and the share of the peak an SM reaches with each.
    least_s : ndarray of float64, shape (rows,)
        Time of one tile that no arithmetic rate undercuts.

    Notes
    -----
    An SM computes one tile after the other; the kernel lasts as many waves as the busiest SM has
    tiles. Small outputs therefore prefer small, less efficient tiles.
    """
    per_sm = device.peak_flop_per_s * device.sustained_fraction / device.num_sms
    best = np.full(m.shape, np.inf)
    for tile_m, tile_n, share in tiles:
        blocks = np.ceil(m / tile_m) * np.ceil(n / tile_n) * batch
        waves = np.ceil(blocks / device.num_sms)
        tile_s = (tile_m * tile_n) * flop_per_element / (per_sm * share)
        best = np.minimum(best, waves * np.maximum(tile_s, least_s))
    return best


def warm_bytes(num_bytes: Vector, device: Device) -> Vector:
    """Traffic in DRAM bytes when half the L2 already holds what the kernel touches.

    Notes
    -----
    Tables are measured with warm caches. A byte found in L2 costs `L2_COST` of one from DRAM, which
    bounds by how much a prediction may beat the DRAM roofline (`WARM_CACHE_FACTOR`).
    """
    hit = np.minimum(1.0, WARM_FRACTION * device.l2_bytes / num_bytes)
    return num_bytes * (1.0 - hit * (1.0 - L2_COST))


def logs(**values: Vector) -> dict[str, Vector]:
    """Log2 of each value under "log_" and its name."""
    return {f"log_{name}": np.log2(value) for name, value in values.items()}


def wave_features(blocks: Vector, num_sms: Vector, name: str) -> dict[str, Vector]:
    """Logarithm of the wave count, and how full the waves are."""
    waves = blocks / num_sms
    return {f"{name}_waves": np.log2(waves), f"{name}_fill": waves / np.ceil(waves)}


def cache_feature(num_bytes: Vector, device: Device) -> Vector:
    """Logarithm of traffic over L2 size."""
    return np.log2(num_bytes / device.l2_bytes)


def alignment(size: Vector, limit: int = 8) -> Vector:
    """Power of two that divides `size`, capped: 0 for odd, `limit` for multiples of 2**limit."""
    whole = size.astype(np.int64)
    low = whole & -whole
    return np.asarray(np.minimum(np.log2(np.maximum(low, 1)), limit), dtype=np.float64)


def padding(size: Vector, tile: int) -> Vector:
    """Size rounded up to whole tiles, over the size."""
    return np.ceil(size / tile) * tile / size
