"""What one GPU achieves by dtype: the constants applied to its data sheet."""

from __future__ import annotations

from perfmodel.cost.kernels import constants as c
from perfmodel.errors import InputError
from perfmodel.hardware.records import Dtype, Gpu

# Formats that run on another one's unit where the GPU has no unit of their own.
_RUNS_AS: dict[Dtype, tuple[Dtype, ...]] = {
    Dtype.TF32: (Dtype.FP32,),
    Dtype.BF16: (Dtype.FP32,),
    Dtype.FP16: (Dtype.FP32,),
    Dtype.INT8: (Dtype.FP16, Dtype.FP32),
    Dtype.MXFP8: (Dtype.FP8,),
    Dtype.NVFP4: (Dtype.FP8,),
}
_DEFAULT_CEILING = 0.65  # formats without an entry: between bf16 (0.7) and fp8 (0.58) on hopper


def gemm_flop_per_s(gpu: Gpu, dtype: Dtype) -> float:
    """Rate of large dense GEMMs in `dtype`, operations per second.

    Raises
    ------
    InputError
        If the GPU can neither run nor emulate the format.
    """
    if dtype in (Dtype.MXFP8, Dtype.NVFP4) and Dtype.FP8 in gpu.peak_flop_per_s:
        share = c.MXFP8_OF_FP8 if dtype is Dtype.MXFP8 else c.NVFP4_OF_FP8
        return share * gemm_flop_per_s(gpu, Dtype.FP8)
    unit = unit_of(gpu, dtype)
    ceilings = c.GEMM_CEILING[c.architecture_of(gpu)[0]]
    return gpu.peak_flop_per_s[unit] * ceilings.get(unit, _DEFAULT_CEILING)


def unit_of(gpu: Gpu, dtype: Dtype) -> Dtype:
    """Format whose arithmetic unit runs `dtype` on `gpu`."""
    for candidate in (dtype, *_RUNS_AS.get(dtype, ())):
        if candidate in gpu.peak_flop_per_s:
            return candidate
    have = ", ".join(sorted(gpu.peak_flop_per_s))
    raise InputError(f"{gpu.title} has no {dtype} arithmetic; it has {have}")


def conv_flop_per_s(gpu: Gpu, dtype: Dtype, *, channels_last: bool) -> float:
    """Rate of convolutions in `dtype`; half formats in NCHW pay for layout conversion."""
    unit = unit_of(gpu, dtype)
    share = c.CONV_CEILING.get((c.architecture_of(gpu)[0], unit))
    if share is None:
        rate = c.CONV_OF_GEMM * gemm_flop_per_s(gpu, dtype)
    else:
        rate = share * gpu.peak_flop_per_s[unit]
    return rate if channels_last else rate / c.NCHW_SLOWDOWN.get(unit, 1.0)


def attention_flop_per_s(gpu: Gpu, kernel: str) -> float:
    """Forward rate of a fused attention kernel at long sequences."""
    generation = c.ATTENTION_GENERATION.get(kernel, c.DEFAULT_ATTENTION_GENERATION)
    architecture = c.architecture_of(gpu)[0]
    while architecture not in c.ATTENTION_RATE[generation] and generation in c.ATTENTION_FALLBACK:
        generation = c.ATTENTION_FALLBACK[generation]
    table = c.ATTENTION_RATE[generation]
    # Older and smaller parts without a figure of their own: as ampere, the same mma.sync kernels.
    share = table[architecture] if architecture in table else table["ampere"]
    return share * gpu.peak(Dtype.FP16)
