"""Convolutional networks by their standard names, as operator graphs of one image."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perfmodel.errors import InputError, UnknownNameError
from perfmodel.workload.convnet_parts import FeatureMap
from perfmodel.workload.mobile_networks import efficientnet, mobilenet_v2
from perfmodel.workload.plain_networks import alexnet, vgg
from perfmodel.workload.records import Block, Conv2d, Linear
from perfmodel.workload.resnets import resnet

_KNOWN_FIELDS = {
    "arch", "name", "model_name", "builder", "family", "image", "image_size", "classes",
    "num_classes", "layout", "standard_definition", "channels",
}  # fmt: skip

IMAGENET_IMAGE = 224
IMAGENET_CLASSES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionModel:
    """A network of one image size; `layout` is NCHW, NHWC, or empty for the stack's usual."""

    name: str
    image: int
    classes: int
    network: tuple[Block, ...]
    layout: str = ""
    warnings: tuple[str, ...] = field(default=())

    @property
    def family(self) -> str:
        """Convolutional networks."""
        return "cnn"

    def blocks(self) -> tuple[Block, ...]:
        """The operator graph in forward order."""
        return self.network

    @property
    def multiply_adds(self) -> float:
        """Multiply-accumulates of convolutions and linear layers, forward, one image."""
        total = 0.0
        for block in self.network:
            for op in block.operators:
                if isinstance(op, Conv2d):
                    outputs = -(-op.height // op.stride) * -(-op.width // op.stride)
                    total += block.repeat * outputs * op.num_parameters
                elif isinstance(op, Linear):
                    total += block.repeat * op.rows * op.in_features * op.out_features
        return total


_Builder = Callable[[FeatureMap, int], tuple[Block, ...]]


def _resnet(match: re.Match[str]) -> _Builder:
    depth = int(match["depth"])
    groups, width = int(match["groups"] or 1), int(match["width"] or 64)
    is_next = match["next"] is not None
    if is_next and match["groups"] is None:
        groups, width = 32, 4  # the usual ResNeXt
    if match["wide"] is not None:
        width *= int(match["wide_factor"] or 2)
    return lambda image, classes: resnet(
        depth, image, classes, groups=groups, group_width=width, has_se=match["se"] is not None
    )


def _vgg(match: re.Match[str]) -> _Builder:
    return lambda image, classes: vgg(
        int(match["depth"]), image, classes, has_norm=match["bn"] is not None
    )


def _efficientnet(match: re.Match[str]) -> _Builder:
    return lambda image, classes: efficientnet(int(match["size"]), image, classes)


# Names as people write them, without spaces, dashes and underscores.
_PATTERNS: tuple[tuple[str, Callable[[re.Match[str]], _Builder]], ...] = (
    (
        r"(?P<wide>wide)?(?P<se>se)?res(?P<next>ne?xt)?(?:net)?(?P<depth>18|34|50|101|152|200)"
        r"(?:(?P<groups>\d{2})x(?P<width>\d+)d)?(?:v1(?:\.?5)?|b|d)?(?P<wide_factor>(?<=\d)2)?$",
        _resnet,
    ),
    (r"vgg(?P<depth>11|13|16|19)(?P<bn>bn)?$", _vgg),
    (r"efficientnetb(?P<size>[0-7])$", _efficientnet),
    (r"mobilenet(?:v2)?$", lambda match: mobilenet_v2),
    (r"alexnet$", lambda match: alexnet),
)  # fmt: skip


def list_networks() -> tuple[str, ...]:
    """Names for which a builder exists (variants such as resnext101_64x4d are built too)."""
    return (
        "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2",
        "resnext50_32x4d", "resnext101_32x4d", "resnext101_32x8d", "se_resnext101_32x4d", "vgg11",
        "vgg13", "vgg16", "vgg19", "efficientnet_b0", "efficientnet_b4", "mobilenet_v2", "alexnet",
    )  # fmt: skip


def convnet(
    name: str, *, image: int = IMAGENET_IMAGE, classes: int = IMAGENET_CLASSES, layout: str = ""
) -> ConvolutionModel:
    """Network of a standard name; `resnet50` is version 1.5 (stride in the 3x3 convolution).

    Raises
    ------
    UnknownNameError
        If no builder knows the name.
    InputError
        If image size, classes or layout are not usable.
    """
    if not 1 <= image <= 10_000 or not 1 <= classes <= 10**7:
        raise InputError(f"image {image} and classes {classes} must be positive (image <= 10000)")
    plain = re.sub(r"[\s_\-]", "", name.lower())
    for pattern, make in _PATTERNS:
        match = re.match(pattern, plain)
        if match:
            builder = make(match)
            start = FeatureMap(height=image, width=image, channels=3)
            network = builder(start, classes)
            return ConvolutionModel(
                name=name, image=image, classes=classes, network=network, layout=_layout(layout)
            )
    raise UnknownNameError("network", name, list_networks())


def _layout(text: str) -> str:
    plain = text.upper().replace("CHANNELS_LAST", "NHWC").replace("CHANNELS-LAST", "NHWC")
    if plain not in ("", "NCHW", "NHWC"):
        raise InputError(f"layout {text!r} is not known; use NCHW or NHWC")
    return plain


def convnet_from_fields(fields: Mapping[str, Any]) -> ConvolutionModel:
    """Network from the `model` object of a published run: `arch, image, classes, layout`.

    Keys nobody knows are listed in the `warnings` of the model.

    Raises
    ------
    InputError
        If the network is unknown or a field is not usable.
    """
    name = fields.get("arch") or fields.get("name") or fields.get("model_name")
    if not name:
        raise InputError("arch is missing: the name of the network, e.g. resnet50")
    model = convnet(
        str(name),
        image=_count(fields.get("image") or fields.get("image_size") or IMAGENET_IMAGE, "image"),
        classes=_count(
            fields.get("classes") or fields.get("num_classes") or IMAGENET_CLASSES, "classes"
        ),
        layout=str(fields.get("layout") or ""),
    )
    unknown = sorted(str(k) for k, v in fields.items() if k not in _KNOWN_FIELDS and v is not None)
    warnings = tuple(f"model field {k!r} is not understood and ignored" for k in unknown)
    return replace(model, warnings=warnings)


def _count(value: Any, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise InputError(f"{key} {value!r} is not a positive whole number")
    return value
