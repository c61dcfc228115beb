"""Networks without shortcuts: VGG (Simonyan 2014) and AlexNet (the one-GPU version of 2014)."""

from __future__ import annotations

from perfmodel.workload.convnet_parts import Classifier, FeatureMap, Stretch
from perfmodel.workload.records import Block

_VGG_COUNTS: dict[int, tuple[int, ...]] = {
    11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4),
}  # fmt: skip
_VGG_CHANNELS = (64, 128, 256, 512, 512)
_HIDDEN = 4096


def vgg(
    depth: int, image: FeatureMap, classes: int, *, has_norm: bool = False
) -> tuple[Block, ...]:
    """VGG with 11, 13, 16 or 19 layers."""
    at, blocks = image, []
    for stage, (channels, count) in enumerate(zip(_VGG_CHANNELS, _VGG_COUNTS[depth], strict=True)):
        part = Stretch(at=at, name=f"stage{stage + 1}")
        for i in range(count):
            is_first = stage == 0 and i == 0
            part.conv(f"conv{i + 1}", channels, 3, has_input_gradient=not is_first)
            if has_norm:
                part.norm(f"norm{i + 1}")
            part.activation(f"relu{i + 1}")
        part.pool("pool", 2)
        at = part.at
        blocks.append(part.block())
    return (*blocks, Classifier(widths=(_HIDDEN, _HIDDEN, classes), is_flattened=True).block(at))


def alexnet(image: FeatureMap, classes: int) -> tuple[Block, ...]:
    """AlexNet; sizes of its unpadded layers are rounded up."""
    part = Stretch(at=image, name="features")
    part.conv("conv1", 64, 11, stride=4, has_input_gradient=False).activation("relu1")
    part.pool("pool1", 2)
    part.conv("conv2", 192, 5).activation("relu2").pool("pool2", 2)
    part.conv("conv3", 384, 3).activation("relu3")
    part.conv("conv4", 256, 3).activation("relu4")
    part.conv("conv5", 256, 3).activation("relu5").pool("pool5", 2)
    # Unpadded pooling leaves 6 x 6 of 224; padded sizes would say 7 x 7.
    at = FeatureMap(
        height=max(1, part.at.height - 1), width=max(1, part.at.width - 1), channels=256
    )
    head = Classifier(widths=(_HIDDEN, _HIDDEN, classes), is_flattened=True)
    return (part.block(), head.block(at))
