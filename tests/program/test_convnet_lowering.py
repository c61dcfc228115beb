import pytest

from perfmodel.errors import InvalidPlanError
from perfmodel.hardware.clusters import resolve_cluster
from perfmodel.hardware.records import Dtype
from perfmodel.plan.records import Plan
from perfmodel.plan.stack import Stack
from perfmodel.program.convnet import lower_convnet
from perfmodel.program.work import Collective, Convolution, Memory, OptimizerStep, Pass
from perfmodel.workload.convnet import convnet
from perfmodel.workload.records import Precision, Workload

STACK = Stack(name="plain", title="plain", year=2021, optimizer_bytes_per_parameter=20.0)


def _lower(
    layout: str = "NHWC",
    dtype: Dtype = Dtype.FP16,
    ranks: int = 8,
    passes: int = 1,
    stack: Stack = STACK,
):
    model = convnet("resnet50", layout=layout)
    workload = Workload(
        name="resnet50",
        model=model,
        global_batch=32.0 * ranks * passes,
        precision=Precision.of(dtype, is_autocast=True),
    )
    cluster = resolve_cluster("dgx_a100_80", 1, gpus_per_node=ranks)
    return lower_convnet(workload, Plan(dp=ranks, micro_batch=32), stack, cluster)


def _items(program, kind):
    return [i for t in program.classes[0].tasks for i in t.work if isinstance(i.work, kind)]


def _flops(item) -> float:
    w = item.work
    outputs = w.out_channels * (w.height // w.stride) * (w.width // w.stride)
    return item.count * 2 * w.batch * outputs * w.kernel**2 * w.in_channels / w.groups


def test_training_takes_three_forwards_less_the_first_input_gradient():
    items = _items(_lower(), Convolution)
    forward = sum(_flops(i) for i in items if i.work.direction is Pass.FORWARD)
    backward = sum(_flops(i) for i in items if i.work.direction is Pass.BACKWARD)
    assert forward == pytest.approx(2 * 32 * 4.087e9, rel=0.001)  # all but the classifier
    stem = 2 * 32 * 64 * 112**2 * 49 * 3
    assert backward == pytest.approx(2 * forward - stem)


def test_gradients_are_reduced_in_buckets_once():
    reductions = _items(_lower(), Collective)
    total = sum(i.work.num_bytes for i in reductions)
    assert total == pytest.approx(25.557e6 * 4, rel=0.001)
    assert len(reductions) == 4  # three of 25 MiB and the rest


def test_accumulation_reduces_after_the_last_pass_only():
    one, two = _lower(), _lower(passes=2)
    assert len(_items(two, Collective)) == len(_items(one, Collective))
    assert len(_items(two, Convolution)) == 2 * len(_items(one, Convolution))
    assert len(_items(two, OptimizerStep)) == 1


def test_one_gpu_reduces_nothing():
    program = _lower(ranks=1)
    assert not _items(program, Collective)
    assert program.groups == {}


def test_tensor_cores_convert_nchw_tensors_and_vector_units_do_not():
    def conversions(layout: str, dtype: Dtype) -> int:
        items = _items(_lower(layout, dtype), Memory)
        return sum(i.work.op == "transpose" for i in items)

    assert conversions("NHWC", Dtype.FP16) == 0
    assert conversions("NCHW", Dtype.FP16) > 0
    assert conversions("NCHW", Dtype.TF32) > 0
    assert conversions("NCHW", Dtype.FP32) == 0


def test_fused_norms_move_fewer_bytes():
    options = {"fuses_norm_activation_half": True, "fuses_norm_add_half": True}
    fused = Stack(name="fused", title="fused", year=2021, options=options)

    def moved(stack: Stack) -> float:
        return sum(i.count * i.work.num_bytes for i in _items(_lower(stack=stack), Memory))

    assert 0.6 < moved(fused) / moved(STACK) < 0.9


def test_layout_of_the_model_goes_before_the_usual_one_of_the_stack():
    usual = Stack(name="nhwc", title="nhwc", year=2021, options={"channels_last_half": True})
    assert "channels-last" in " ".join(_lower("", stack=usual).assumptions)
    assert "NCHW" in " ".join(_lower("NCHW", stack=usual).assumptions)


def test_only_data_parallel_plans_are_known():
    workload = Workload(
        name="r",
        model=convnet("resnet18"),
        global_batch=64,
        precision=Precision.of(Dtype.FP16),
    )
    cluster = resolve_cluster("dgx_a100_80", 1)
    with pytest.raises(InvalidPlanError, match="tp 2"):
        lower_convnet(workload, Plan(dp=4, tp=2, micro_batch=16), STACK, cluster)
