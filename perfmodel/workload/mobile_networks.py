"""Networks of inverted bottlenecks: MobileNetV2 (Sandler 2018), EfficientNet (Tan 2019)."""

from __future__ import annotations

import math

from perfmodel.workload.convnet_parts import Classifier, FeatureMap, Stretch
from perfmodel.workload.records import Block

# Per stage: expansion, channels, repeats, stride, kernel.
_MOBILE_V2 = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3), (6, 96, 3, 1, 3),
    (6, 160, 3, 2, 3), (6, 320, 1, 1, 3),
)  # fmt: skip
_EFFICIENT_B0 = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5), (6, 320, 1, 1, 3),
)  # fmt: skip
# Width and depth multipliers of B0 to B7.
_EFFICIENT_SCALE = (
    (1.0, 1.0), (1.0, 1.1), (1.1, 1.2), (1.2, 1.4), (1.4, 1.8), (1.6, 2.2), (1.8, 2.6), (2.0, 3.1),
)  # fmt: skip
_Stage = tuple[int, int, int, int, int]


def mobilenet_v2(image: FeatureMap, classes: int) -> tuple[Block, ...]:
    """MobileNetV2 of width 1."""
    return _inverted(image, classes, _MOBILE_V2, stem=32, head=1280, op="relu", has_se=False)


def efficientnet(size: int, image: FeatureMap, classes: int) -> tuple[Block, ...]:
    """EfficientNet B`size`."""
    width, depth = _EFFICIENT_SCALE[size]
    stages = tuple(
        (e, _round_channels(c * width), math.ceil(n * depth), s, k)
        for e, c, n, s, k in _EFFICIENT_B0
    )
    stem, head = _round_channels(32 * width), _round_channels(1280 * width)
    return _inverted(image, classes, stages, stem=stem, head=head, op="swish", has_se=True)


def _round_channels(value: float) -> int:
    """To a multiple of 8, never more than a tenth down."""
    rounded = max(8, int(value + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * value else rounded


def _inverted(
    image: FeatureMap,
    classes: int,
    stages: tuple[_Stage, ...],
    *,
    stem: int,
    head: int,
    op: str,
    has_se: bool,
) -> tuple[Block, ...]:
    start = Stretch(at=image, name="stem")
    start.conv("conv", stem, 3, stride=2, has_input_gradient=False).norm("norm").activation(
        "act", op
    )
    blocks, at = [start.block()], start.at
    for number, stage in enumerate(stages):
        for first in (True, False):
            repeat = 1 if first else stage[2] - 1
            if not repeat:
                continue
            part = Stretch(at=at, name=f"stage{number + 1}.{'first' if first else 'rest'}")
            _bottleneck(part, stage, op, has_se=has_se, is_first=first)
            at = part.at
            blocks.append(part.block(repeat))
    top = Stretch(at=at, name="head")
    top.conv("conv", head, 1).norm("norm").activation("act", op)
    return (*blocks, top.block(), Classifier(widths=(classes,)).block(top.at))


def _bottleneck(part: Stretch, stage: _Stage, op: str, *, has_se: bool, is_first: bool) -> None:
    expansion, channels, _, stride, kernel = stage
    inputs = part.at.channels
    inner = inputs * expansion
    stride = stride if is_first else 1
    if expansion > 1:
        part.conv("expand", inner, 1).norm("norm1").activation("act1", op)
    part.conv("depthwise", inner, kernel, stride=stride, groups=inner)
    part.norm("norm2").activation("act2", op)
    if has_se:
        part.squeeze_excite("se", max(1, inputs // 4))
    part.conv("project", channels, 1).norm("norm3")
    if stride == 1 and inputs == channels:
        part.add("add")
