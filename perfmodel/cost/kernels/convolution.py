"""2-d convolution: physics and features."""

from __future__ import annotations

import numpy as np

from perfmodel.cost.kernels import physics
from perfmodel.cost.kernels.rows import Rows, Vector

OPS = ("conv2d",)
SHAPE = (
    "batch", "in_channels", "out_channels", "kernel_size", "image_size", "stride", "padding",
)  # fmt: skip
_TILES = ((128, 128, 1.0), (128, 64, 0.9), (64, 64, 0.75), (64, 32, 0.6), (32, 32, 0.4))


_DEPTH_TAIL = 32.0  # prologue and epilogue of a tile, in steps of depth

# Winograd F(4x4, 3x3) (Lavin, Gray 2016): 36 products of small matrices give 4 x 4 outputs, which
# would take 144; inputs and outputs are transformed to and from 6 x 6 tiles in memory.
_WINOGRAD_KERNEL = 3
_WINOGRAD_TILE = 4
_WINOGRAD_POINTS = 36.0
_WINOGRAD_SHARE = 0.7  # of the speed of a plain GEMM, by cross-validation
_TRANSFORM_PASSES = 1.0  # over the transformed tiles: half of write and read, since L2 keeps some


def _winograd(rows: Rows, out: Vector) -> tuple[Vector, Vector]:
    """Seconds of a Winograd convolution, and the share of its transforms."""
    batch, inputs, outputs = (rows.shape[c] for c in ("batch", "in_channels", "out_channels"))
    device = rows.device
    tiles = batch * np.ceil(out / _WINOGRAD_TILE) ** 2
    products = physics.tiled_compute(
        tiles, outputs, 2.0 * (inputs + _DEPTH_TAIL / 4.0), np.full_like(out, _WINOGRAD_POINTS),
        device, _TILES,
    )  # fmt: skip
    moved = _TRANSFORM_PASSES * _WINOGRAD_POINTS * tiles * (inputs + outputs) * rows.element_bytes
    transforms = moved / device.bytes_per_s
    total = products / _WINOGRAD_SHARE + transforms
    return total, transforms / total


def describe(rows: Rows) -> physics.Work:
    """Convolution as the GEMM (batch x outputs) x out_channels x (in_channels x taps)."""
    batch, inputs = rows.shape["batch"], rows.shape["in_channels"]
    outputs, kernel = rows.shape["out_channels"], rows.shape["kernel_size"]
    image, stride, pad = rows.shape["image_size"], rows.shape["stride"], rows.shape["padding"]
    device, size = rows.device, rows.element_bytes
    out = np.maximum(np.floor((image + 2.0 * pad - kernel) / stride) + 1.0, 1.0)
    pixels, taps = batch * out * out, kernel * kernel
    depth = inputs * taps
    num_bytes = size * (batch * inputs * image * image + pixels * outputs + depth * outputs)
    direct = physics.tiled_compute(
        pixels, outputs, 2.0 * (depth + _DEPTH_TAIL), np.ones_like(batch), device, _TILES
    )
    winograd, transform_share = _winograd(rows, out)
    is_eligible = (kernel == _WINOGRAD_KERNEL) & (stride == 1)
    compute = np.where(is_eligible, np.minimum(direct, winograd), direct)
    flop_s = 2.0 * pixels * outputs * depth / device.peak_flop_per_s
    features = {
        "intensity": np.log2(flop_s / (num_bytes / device.bytes_per_s)),
        "tiling_loss": np.log2(direct / flop_s), "winograd_gain": np.log2(winograd / direct),
        "transform_share": transform_share,
        "in_cache": physics.cache_feature(num_bytes, device),
        "unfolded_in_cache": physics.cache_feature(size * pixels * depth, device),
        "log_batch": np.log2(batch), "log_in": np.log2(inputs), "log_out": np.log2(outputs),
        "kernel": kernel, "stride": stride, "log_image": np.log2(image), "image": image,
        "out": out, **_fit(batch, inputs, outputs, image, pixels),
        "winograd_pad": physics.padding(out, 4), "pointwise": (kernel == 1) * 1.0,
        "padding": pad, "log_pixels": np.log2(pixels), "log_depth": np.log2(depth),
        **physics.wave_features(
            np.ceil(pixels / 128) * np.ceil(outputs / 128), device.num_sms, "tile128"),
        **physics.wave_features(
            np.ceil(pixels / 64) * np.ceil(outputs / 32), device.num_sms, "tile64"),
    }  # fmt: skip
    return physics.Work(
        compute_s=compute, num_bytes=num_bytes, features=features,
        sizes={
            "log_flop": np.log2(pixels * outputs * depth), "log_bytes": np.log2(num_bytes),
            "in": inputs, "outputs": outputs, "batch": batch,
            **physics.logs(
                weights=depth * outputs, input=batch * inputs * image**2, output=pixels * outputs
            ),
        },
    )  # fmt: skip


def _fit(
    batch: Vector, inputs: Vector, outputs: Vector, image: Vector, pixels: Vector
) -> dict[str, Vector]:
    """How well sizes fit vector widths and tiles."""
    return {
        "align_in": physics.alignment(inputs), "align_out": physics.alignment(outputs),
        "align_image": physics.alignment(image), "align_batch": physics.alignment(batch),
        "pad_out": physics.padding(outputs, 32), "pad_out128": physics.padding(outputs, 128),
        "pad_pixels": physics.padding(pixels, 128), "pad_in": physics.padding(inputs, 8),
    }  # fmt: skip
