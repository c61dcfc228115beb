"""Work records of a convolutional network's blocks."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.errors import InputError
from perfmodel.hardware.records import Dtype, Gpu
from perfmodel.plan.stack import Stack
from perfmodel.program.builder import Item
from perfmodel.program.work import Cause, Convolution, Gemm, Memory, Pass
from perfmodel.workload.convnet import ConvolutionModel
from perfmodel.workload.records import Block, Conv2d, Linear, Loss, Operator, Pointwise, Workload

_ACTIVATIONS = ("relu", "swish")
# A fused activation keeps a bit mask, read once in backward: 1/16 of a 16-bit pass.
_MASK_PASSES = 1 / 16
# Adding a residual inside a fused norm reads the shortcut, and writes its gradient in backward.
_FUSED_ADD_PASSES = (1.0, 1.0)
_LOSS_PASSES = 4.0  # softmax and cross entropy over the classes, each direction


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionWork:
    """Makes the work of blocks; `batch` is images per pass."""

    batch: float
    compute: Dtype
    activation: Dtype
    channels_last: bool
    fuses_activations: bool  # batch norm and ReLU in one kernel
    fuses_additions: bool  # batch norm, residual and ReLU in one kernel

    @classmethod
    def of(
        cls, model: ConvolutionModel, workload: Workload, stack: Stack, gpu: Gpu, batch: float
    ) -> ConvolutionWork:
        """Settings of a stack; the model's own layout goes before the stack's usual."""
        precision = workload.precision
        compute = precision.compute
        if compute is Dtype.FP32 and Dtype.TF32 in gpu.peak_flop_per_s:
            # cuDNN convolves fp32 tensors in tf32 unless told otherwise.
            compute = Dtype.TF32 if _flag(stack, "runs_fp32_as_tf32") else compute
        is_half = precision.compute.num_bytes < Dtype.FP32.num_bytes
        usual = _flag(stack, "channels_last_half") and is_half
        channels_last = model.layout == "NHWC" if model.layout else usual
        return cls(
            batch=batch,
            compute=compute,
            activation=precision.activation,
            channels_last=channels_last or _flag(stack, "channels_last"),
            fuses_activations=is_half and _flag(stack, "fuses_norm_activation_half"),
            fuses_additions=is_half and _flag(stack, "fuses_norm_add_half"),
        )

    def forward(self, block: Block) -> list[Item]:
        """Forward of all repeats of a block."""
        return [(w, block.repeat) for op in block.operators for w in self._forward(op)]

    def backward(self, block: Block) -> list[Item]:
        """Backward of all repeats of a block, last operator first."""
        return [(w, block.repeat) for op in reversed(block.operators) for w in self._backward(op)]

    def _forward(self, op: Operator) -> list[Convolution | Gemm | Memory]:
        if isinstance(op, Conv2d):
            return [*self._convolution(op, Pass.FORWARD)]
        if isinstance(op, Linear):
            return [self._gemm(self.batch * op.rows, op.out_features, op.in_features)]
        if isinstance(op, Pointwise):
            return self._pointwise(op, op.forward_passes, 0)
        return self._loss(op)

    def _backward(self, op: Operator) -> list[Convolution | Gemm | Memory]:
        if isinstance(op, Conv2d):
            # Gradients of weights and of the input cost one convolution each.
            one = self._convolution(op, Pass.BACKWARD)
            return [*one, *one] if op.has_input_gradient else [*one]
        if isinstance(op, Linear):
            rows = self.batch * op.rows
            return [
                self._gemm(rows, op.in_features, op.out_features),
                self._gemm(op.in_features, op.out_features, rows),
            ]
        if isinstance(op, Pointwise):
            return self._pointwise(op, op.backward_passes, 1)
        return self._loss(op)

    def _convolution(self, op: Conv2d, direction: Pass) -> list[Convolution | Memory]:
        convolution = Convolution(
            batch=self.batch,
            height=op.height,
            width=op.width,
            in_channels=op.in_channels,
            out_channels=op.out_channels,
            kernel=op.kernel,
            stride=op.stride,
            groups=op.groups,
            direction=direction,
            channels_last=self.channels_last or self._has_layout_kernels,
            dtype=self.compute,
        )
        if not self._has_layout_kernels or self.channels_last or op.groups == op.in_channels:
            return [convolution]
        return [convolution, self._layout_change(op)]

    @property
    def _has_layout_kernels(self) -> bool:
        """Tensor cores convolve NHWC; the library converts NCHW tensors before and after."""
        return self.compute is not Dtype.FP32

    def _layout_change(self, op: Conv2d) -> Memory:
        """What a convolution reads and writes, each read and written once more."""
        outputs = op.out_channels * -(-op.height // op.stride) * -(-op.width // op.stride)
        elements = self.batch * (op.in_channels * op.height * op.width + outputs)
        return Memory(
            num_bytes=2.0 * elements * self.activation.num_bytes,
            launches=2.0,
            op="transpose",
            dtype=self.activation,
            cause=Cause.CONVOLUTION,
        )

    def _gemm(self, m: float, n: float, k: float) -> Gemm:
        return Gemm(m=m, n=n, k=k, dtype=self.compute)

    def _pointwise(
        self, op: Pointwise, passes: float, direction: int
    ) -> list[Convolution | Gemm | Memory]:
        if op.op in _ACTIVATIONS and self.fuses_activations:
            passes = _MASK_PASSES
        elif op.op == "add" and self.fuses_additions:
            passes = _FUSED_ADD_PASSES[direction]
        size = self.batch * op.rows * op.width * self.activation.num_bytes
        return [Memory(num_bytes=size * passes, op=op.op, dtype=self.activation)]

    def _loss(self, op: Operator) -> list[Convolution | Gemm | Memory]:
        if not isinstance(op, Loss):
            raise InputError(f"operator {op.name!r} does not belong into a convolutional network")
        size = self.batch * op.rows * op.classes * Dtype.FP32.num_bytes
        return [
            Memory(
                num_bytes=size * _LOSS_PASSES,
                launches=3.0,
                op="loss",
                dtype=Dtype.FP32,
                cause=Cause.LOGITS,
            )
        ]


def _flag(stack: Stack, name: str) -> bool:
    value = stack.options.get(name, False)
    if not isinstance(value, bool):
        raise InputError(f"stack option {name} {value!r} is not true or false")
    return value
