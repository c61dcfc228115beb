import pytest

from perfmodel.errors import InputError
from perfmodel.workload.convnet import convnet, convnet_from_fields, list_networks
from perfmodel.workload.records import Conv2d, Pointwise


def _millions(model) -> float:
    return sum(b.num_parameters for b in model.blocks()) / 1e6


@pytest.mark.parametrize(
    ("name", "giga_multiply_adds", "million_parameters"),
    [  # as published with torchvision, efficientnets at 224 pixels
        ("resnet18", 1.81, 11.69),
        ("resnet34", 3.66, 21.80),
        ("resnet50", 4.09, 25.56),
        ("resnet101", 7.80, 44.55),
        ("resnet152", 11.51, 60.19),
        ("wide_resnet50_2", 11.40, 68.88),
        ("resnext50_32x4d", 4.23, 25.03),
        ("resnext101_32x8d", 16.41, 88.79),
        ("vgg16", 15.47, 138.36),
        ("mobilenet_v2", 0.30, 3.50),
        ("efficientnet_b0", 0.386, 5.29),
        ("efficientnet_b4", 1.504, 19.34),
    ],
)
def test_standard_networks_have_their_published_size(name, giga_multiply_adds, million_parameters):
    model = convnet(name)
    assert model.multiply_adds / 1e9 == pytest.approx(giga_multiply_adds, rel=0.01)
    assert _millions(model) == pytest.approx(million_parameters, rel=0.002)


def test_resnet50_has_eleven_million_activations():
    outputs = 0
    for block in convnet("resnet50").blocks():
        for op in block.operators:
            if isinstance(op, Conv2d):
                outputs += block.repeat * op.out_channels * (op.height // op.stride) ** 2
    assert outputs == pytest.approx(11.1e6, rel=0.005)


def test_version_1_5_strides_in_the_3x3_convolution():
    block = next(b for b in convnet("resnet50").blocks() if b.name == "stage2.first")
    strides = {op.name: op.stride for op in block.operators if isinstance(op, Conv2d)}
    assert strides["stage2.first.conv1"] == 1
    assert strides["stage2.first.conv2"] == 2


@pytest.mark.parametrize("name", ["ResNet-50 v1.5", "resnet50v1.5", "RESNET_50", "resnet50b"])
def test_spellings_mean_the_same_network(name):
    assert convnet(name).blocks() == convnet("resnet50").blocks()


def test_squeeze_and_excite_adds_parameters_but_hardly_any_products():
    plain, with_se = convnet("resnext101_32x4d"), convnet("SE-ResNeXt101-32x4d")
    assert _millions(with_se) == pytest.approx(48.96, rel=0.001)
    assert with_se.multiply_adds == pytest.approx(plain.multiply_adds, rel=0.001)


def test_image_size_scales_the_feature_maps():
    small, large = convnet("resnet50"), convnet("resnet50", image=448)
    assert large.multiply_adds == pytest.approx(4 * small.multiply_adds, rel=0.01)
    assert _millions(large) == _millions(small)


def test_every_listed_network_can_be_built():
    for name in list_networks():
        model = convnet(name)
        assert model.family == "cnn"
        assert any(isinstance(o, Pointwise) for b in model.blocks() for o in b.operators)


def test_fields_of_a_published_run():
    model = convnet_from_fields(
        {"arch": "resnet50", "image": 192, "classes": 10, "layout": "NHWC", "moon": "full"}
    )
    assert (model.image, model.classes, model.layout) == (192, 10, "NHWC")
    assert model.warnings == ("model field 'moon' is not understood and ignored",)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "arch is missing"),
        ({"arch": "resnet51"}, "did you mean resnet50|resnet51"),
        ({"arch": "resnet50", "image": -1}, "image"),
        ({"arch": "resnet50", "image": 10**9}, "image"),
        ({"arch": "resnet50", "classes": "many"}, "classes"),
        ({"arch": "resnet50", "layout": "diagonal"}, "layout"),
    ],
)
def test_bad_fields_are_refused_by_name(fields, said):
    with pytest.raises(InputError, match=said):
        convnet_from_fields(fields)
