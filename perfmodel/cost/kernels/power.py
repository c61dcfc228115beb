"""Sustained clocks: what a board's power limit leaves of the nominal peak."""

from __future__ import annotations

from typing import Final

from perfmodel.hardware.records import Dtype, Gpu

# Watts a part needs for each nominal TFLOP/s to hold its boost clock under a dense GEMM, by
# generation (in effect by process). fp32 on the vector units: boards whose limit is known not to
# bind, from their data sheets: Titan Xp 20.6, Titan V 16.8, Titan RTX 17.2, RTX 3090 9.8, RTX 4090
# 5.4, RTX 5090 5.5 (hopper: the same process).
_VECTOR_WATT_PER_TFLOP: Final[dict[str, float]] = {
    "pascal": 20.6, "volta": 16.8, "turing": 17.2, "ampere": 9.8, "ada": 5.4, "hopper": 5.5,
    "blackwell": 5.5, "blackwell ultra": 5.5,
}  # fmt: skip
# 16-bit on the matrix units, likewise: Titan RTX 2.1, A100 PCIe 0.80, RTX 6000 Ada 0.82, H100 PCIe
# 0.46 and NVL 0.48.
_MATRIX_WATT_PER_TFLOP: Final[dict[str, float]] = {
    "volta": 2.1, "turing": 2.1, "ampere": 0.8, "ada": 0.8, "hopper": 0.47, "blackwell": 0.47,
    "blackwell ultra": 0.47,
}  # fmt: skip
_TERA: Final = 1e12


def sustained_fraction(gpu: Gpu, dtype: str) -> float:
    """Share of the nominal peak that the power limit allows, 1 where it does not bind.

    Notes
    -----
    8-bit formats need half the energy of a 16-bit operation, so their limit is the same share.
    """
    if dtype == Dtype.FP32:
        need = _VECTOR_WATT_PER_TFLOP.get(gpu.architecture, 0.0)
        peak = gpu.vector_flop_per_s
    else:
        need = _MATRIX_WATT_PER_TFLOP.get(gpu.architecture, 0.0)
        peak = gpu.peak_flop_per_s.get(Dtype.FP16, 0.0)
    if need <= 0.0 or peak <= 0.0 or gpu.power_w <= 0.0:
        return 1.0
    return min(1.0, gpu.power_w * _TERA / (peak * need))
