"""ResNet, wide ResNet, ResNeXt and their squeeze-and-excite variants (He et al. 2015, version 1.5).

Version 1.5 puts the stride of a bottleneck into its 3x3 convolution, as all current libraries do.
"""

from __future__ import annotations

from perfmodel.workload.convnet_parts import Classifier, FeatureMap, Stretch
from perfmodel.workload.records import Block

BOTTLENECK_DEPTHS: dict[int, tuple[int, int, int, int]] = {
    50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3),
}  # fmt: skip
_BASIC_DEPTHS: dict[int, tuple[int, int, int, int]] = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
_STAGE_CHANNELS = (64, 128, 256, 512)
_EXPANSION = 4
_SE_REDUCTION = 16


def resnet(
    depth: int,
    image: FeatureMap,
    classes: int,
    *,
    groups: int = 1,
    group_width: int = 64,
    has_se: bool = False,
) -> tuple[Block, ...]:
    """Blocks of a ResNet; `groups` and `group_width` as in ResNeXt (32 groups of width 4)."""
    is_basic = depth in _BASIC_DEPTHS
    counts = _BASIC_DEPTHS[depth] if is_basic else BOTTLENECK_DEPTHS[depth]
    stem = Stretch(at=image, name="stem")
    stem.conv("conv", 64, 7, stride=2, has_input_gradient=False).norm("norm").activation("relu")
    stem.pool("pool", 2)
    blocks, at = [stem.block()], stem.at
    for stage, (channels, count) in enumerate(zip(_STAGE_CHANNELS, counts, strict=True)):
        inner = channels * group_width * groups // 64
        for first in (True, False):
            repeat = 1 if first else count - 1
            if not repeat:
                continue
            stride = 2 if first and stage > 0 else 1
            name = f"stage{stage + 1}.{'first' if first else 'rest'}"
            part = Stretch(at=at, name=name)
            if is_basic:
                _basic(part, channels, stride)
            else:
                _bottleneck(part, inner, channels * _EXPANSION, stride, groups, has_se=has_se)
            at = part.at
            blocks.append(part.block(repeat))
    return (*blocks, Classifier(widths=(classes,)).block(at))


def _bottleneck(
    part: Stretch, inner: int, outer: int, stride: int, groups: int, *, has_se: bool
) -> None:
    start = part.at
    part.conv("conv1", inner, 1).norm("norm1").activation("relu1")
    part.conv("conv2", inner, 3, stride=stride, groups=groups).norm("norm2").activation("relu2")
    part.conv("conv3", outer, 1).norm("norm3")
    if has_se:
        part.squeeze_excite("se", outer // _SE_REDUCTION)
    _shortcut(part, start, outer, stride)
    part.add("add").activation("relu3")


def _basic(part: Stretch, channels: int, stride: int) -> None:
    start = part.at
    part.conv("conv1", channels, 3, stride=stride).norm("norm1").activation("relu1")
    part.conv("conv2", channels, 3).norm("norm2")
    _shortcut(part, start, channels, stride)
    part.add("add").activation("relu2")


def _shortcut(part: Stretch, start: FeatureMap, channels: int, stride: int) -> None:
    if start.channels != channels or stride > 1:
        part.conv("shortcut", channels, 1, stride=stride, source=start).norm("shortcut_norm")
