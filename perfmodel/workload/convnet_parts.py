"""Pieces that convolutional networks are built from.

Pass counts are of eager kernels in training. Batch norm reads its input twice and writes once
forward; backward reads input and gradient twice and writes once (cuDNN's spatial mode). An
activation reads and writes; backward reads output and gradient and writes. An addition reads two
and writes one; backward the two gradients that meet at its input are added.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from perfmodel.workload.records import Block, Conv2d, Linear, Loss, Operator, Pointwise


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureMap:
    """Shape of what flows between operators of one image."""

    height: int
    width: int
    channels: int

    @property
    def pixels(self) -> int:
        """Positions."""
        return self.height * self.width


@dataclass(slots=True)
class Stretch:
    """Collects operators while it follows the feature map."""

    at: FeatureMap
    name: str
    operators: list[Operator] = field(default_factory=list)

    def conv(
        self,
        name: str,
        channels: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        source: FeatureMap | None = None,
        has_input_gradient: bool = True,
    ) -> Stretch:
        """Append a convolution that keeps the size but for its stride."""
        start = source or self.at
        self.operators.append(
            Conv2d(
                name=f"{self.name}.{name}",
                height=start.height,
                width=start.width,
                in_channels=start.channels,
                out_channels=channels,
                kernel=kernel,
                stride=stride,
                groups=groups,
                has_input_gradient=has_input_gradient,
            )
        )
        self.at = FeatureMap(
            height=-(-start.height // stride), width=-(-start.width // stride), channels=channels
        )
        return self

    def norm(self, name: str) -> Stretch:
        """Append batch norm."""
        return self.pointwise(name, "batch_norm", 3.0, 5.0, parameters=2 * self.at.channels)

    def activation(self, name: str, op: str = "relu") -> Stretch:
        """Append ReLU or swish."""
        return self.pointwise(name, op, 2.0, 3.0)

    def add(self, name: str) -> Stretch:
        """Append the sum with a shortcut."""
        return self.pointwise(name, "add", 3.0, 3.0)

    def pool(self, name: str, stride: int) -> Stretch:
        """Append max pooling; its passes count the larger input."""
        share = 1 / stride**2
        self.pointwise(name, "pool", 1.0 + share, 1.0 + 2 * share)
        self.at = FeatureMap(
            height=-(-self.at.height // stride),
            width=-(-self.at.width // stride),
            channels=self.at.channels,
        )
        return self

    def squeeze_excite(self, name: str, hidden: int) -> Stretch:
        """Append channel weights: average over pixels, two small layers, a product."""
        channels = self.at.channels
        self.pointwise(f"{name}.mean", "pool", 1.0, 1.0)
        for part, (inputs, outputs) in (
            ("reduce", (channels, hidden)),
            ("expand", (hidden, channels)),
        ):
            self.operators.append(
                Linear(
                    name=f"{self.name}.{name}.{part}",
                    rows=1,
                    in_features=inputs,
                    out_features=outputs,
                )
            )
        return self.pointwise(f"{name}.scale", "scale", 2.0, 4.0)

    def pointwise(
        self, name: str, op: str, forward: float, backward: float, parameters: int = 0
    ) -> Stretch:
        """Append a bandwidth-bound operator by its passes over the feature map."""
        self.operators.append(
            Pointwise(
                name=f"{self.name}.{name}",
                op=op,
                rows=self.at.pixels,
                width=self.at.channels,
                forward_passes=forward,
                backward_passes=backward,
                num_parameters=parameters,
            )
        )
        return self

    def block(self, repeat: int = 1) -> Block:
        """Finish: the operators as a block."""
        return Block(name=self.name, operators=tuple(self.operators), repeat=repeat)


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """Average pooling (unless flattened), linear layers, loss."""

    widths: tuple[int, ...]
    is_flattened: bool = False

    def block(self, at: FeatureMap) -> Block:
        """Block on top of a feature map."""
        stretch = Stretch(at=at, name="classifier")
        inputs = at.channels * (at.pixels if self.is_flattened else 1)
        if not self.is_flattened:
            stretch.pointwise("pool", "pool", 1.0, 1.0)
        for i, width in enumerate(self.widths):
            stretch.operators.append(
                Linear(name=f"classifier.{i}", rows=1, in_features=inputs, out_features=width)
            )
            inputs = width
        stretch.operators.append(Loss(name="loss", rows=1, classes=self.widths[-1]))
        return stretch.block()
