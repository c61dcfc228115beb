"""2-d convolution: physics and features."""

from __future__ import annotations

import numpy as np

from perfmodel.cost.kernels import physics
from perfmodel.cost.kernels.rows import Rows

OPS = ("conv2d",)
SHAPE = (
    "batch", "in_channels", "out_channels", "kernel_size", "image_size", "stride", "padding",
)  # fmt: skip
_TILES = ((128, 128, 1.0), (128, 64, 0.9), (64, 64, 0.75), (64, 32, 0.6), (32, 32, 0.4))


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
    compute = physics.tiled_compute(
        pixels, outputs, 2.0 * (depth + 32.0), np.ones_like(batch), device, _TILES
    )
    flop_s = 2.0 * pixels * outputs * depth / device.peak_flop_per_s
    features = {
        "intensity": np.log2(flop_s / (num_bytes / device.bytes_per_s)),
        "tiling_loss": np.log2(compute / flop_s),
        "in_cache": physics.cache_feature(num_bytes, device),
        "unfolded_in_cache": physics.cache_feature(size * pixels * depth, device),
        "log_batch": np.log2(batch), "log_in": np.log2(inputs), "log_out": np.log2(outputs),
        "kernel": kernel, "stride": stride, "log_image": np.log2(image), "image": image,
        "out": out, "align_in": physics.alignment(inputs), "align_out": physics.alignment(outputs),
        "align_image": physics.alignment(image), "align_batch": physics.alignment(batch),
        "pad_out": physics.padding(outputs, 32), "pad_out128": physics.padding(outputs, 128),
        "pad_pixels": physics.padding(pixels, 128), "pad_in": physics.padding(inputs, 8),
        "winograd_pad": physics.padding(out, 4), "pointwise": (kernel == 1) * 1.0,
        "padding": pad, "log_pixels": np.log2(pixels), "log_depth": np.log2(depth),
        **physics.wave_features(
            np.ceil(pixels / 128) * np.ceil(outputs / 128), device.num_sms, "tile128"
        ),
        **physics.wave_features(
            np.ceil(pixels / 64) * np.ceil(outputs / 32), device.num_sms, "tile64"
        ),
    }  # fmt: skip
    sizes = {
        "log_flop": np.log2(pixels * outputs * depth), "log_bytes": np.log2(num_bytes),
        "in": inputs, "outputs": outputs, "batch": batch,
        "log_weights": np.log2(depth * outputs), "log_input": np.log2(batch * inputs * image**2),
        "log_output": np.log2(pixels * outputs),
    }  # fmt: skip
    return physics.Work(compute_s=compute, num_bytes=num_bytes, features=features, sizes=sizes)
