import pytest

from perfmodel.errors import InputError
from perfmodel.workload.recommender import EmbeddingTable, Interaction, RecommenderModel
from perfmodel.workload.recommender_fields import recommender_from_fields
from perfmodel.workload.records import Linear

CRITEO = {
    "arch": "dlrm", "table_rows": [1000] * 26, "table_dim": 128, "pooling": [1] * 26,
    "num_dense": 13, "bottom_mlp": [512, 256, 128], "top_mlp": [1024, 1024, 512, 256, 1],
    "interaction": "dot",
}  # fmt: skip


def _multiply_adds(layers: tuple[Linear, ...]) -> int:
    return sum(layer.in_features * layer.out_features for layer in layers)


def test_dlrm_mlps_have_hand_computed_multiply_adds():
    model = recommender_from_fields(CRITEO)
    assert _multiply_adds(model.bottom_layers()) == 13 * 512 + 512 * 256 + 256 * 128
    # 27 vectors: 351 products and 128 values, padded to 480.
    assert model.top_input_width == 480
    expected = 480 * 1024 + 1024 * 1024 + 1024 * 512 + 512 * 256 + 256
    assert _multiply_adds(model.top_layers()) == expected


def test_first_layer_after_the_data_needs_no_input_gradient():
    bottom = recommender_from_fields(CRITEO).bottom_layers()
    assert [layer.has_input_gradient for layer in bottom] == [False, True, True]


def test_blocks_hold_all_parameters():
    model = recommender_from_fields(CRITEO)
    tables = 26 * 1000 * 128
    layers = (*model.bottom_layers(), *model.top_layers())
    dense = sum(layer.num_parameters for layer in layers)
    assert sum(b.num_parameters for b in model.blocks()) == tables + dense


def test_dcnv2_cross_layers_are_low_rank_pairs_over_the_concatenation():
    fields = {**CRITEO, "interaction": "dcnv2", "cross_layers": 3, "cross_rank": 512}
    model = recommender_from_fields(fields)
    width = 27 * 128
    assert model.top_input_width == width
    assert _multiply_adds(model.cross_operators()) == 3 * 2 * width * 512


def test_ncf_matches_its_published_size():
    model = recommender_from_fields(
        {
            "arch": "neumf",
            "table_rows": [138493, 26744, 138493, 26744],
            "table_dim": [64, 64, 128, 128],
            "pooling": 1,
            "top_mlp": [256, 256, 128, 64, 1],
            "num_dense": 0,
            "interaction": "gmf+mlp",
        }
    )
    assert sum(t.num_parameters for t in model.tables) == 31_725_504
    shapes = [(layer.in_features, layer.out_features) for layer in model.top_layers()]
    assert shapes == [(256, 256), (256, 128), (128, 64), (128, 1)]
    assert model.has_dropout


def test_wide_and_deep_from_slots():
    model = recommender_from_fields(
        {"deep_slots": 26, "wide_slots": 2, "deep_dim": 16, "deep_vocab_total": 2_600_000,
         "num_dense": 13, "top_mlp": [1024, 1024, 1]}
    )  # fmt: skip
    assert model.interaction is Interaction.WIDE_DEEP
    assert len(model.tables) == 28
    assert model.tables[0].rows == 100_000
    assert model.top_input_width == 26 * 16 + 13
    assert any("equal tables assumed" in w for w in model.warnings)


def test_one_table_may_serve_several_features_with_different_pooling():
    fields = {**CRITEO, "table_rows": [10, 20], "table_dim": [8, 16], "pooling": [[1, 10], 3]}
    model = recommender_from_fields({**fields, "interaction": "concat", "bottom_mlp": None})
    assert model.num_features == 3
    assert model.lookups == 14
    assert model.embedding_width == 2 * 8 + 16
    assert model.top_input_width == 2 * 8 + 16 + 13


def test_average_pooling_stride_shortens_the_input_of_the_mlp():
    fields = {**CRITEO, "interaction": "1-D average pooling, stride 7"}
    assert recommender_from_fields(fields).top_input_width == -(-27 * 128 // 7)


def test_unknown_keys_are_warnings():
    model = recommender_from_fields({**CRITEO, "flux_capacitor": 3})
    assert model.warnings == ("model field 'flux_capacitor' is not understood and ignored",)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"table_rows": None}, "table_rows"),
        ({"table_rows": []}, "table_rows"),
        ({"table_rows": [0] * 26}, "table_rows"),
        ({"table_rows": [float("nan")] * 26}, "table_rows"),
        ({"table_dim": [128]}, "table_dim"),
        ({"table_dim": None}, "table_dim"),
        ({"pooling": ["x"] * 26}, "pooling"),
        ({"pooling": [-1] * 26}, "pooling"),
        ({"top_mlp": [1024, 0]}, "top_mlp"),
        ({"num_dense": -1}, "num_dense"),
        ({"interaction": "telepathy"}, "interaction"),
    ],
)
def test_bad_dimensions_are_refused_by_name(change, named):
    with pytest.raises(InputError, match=named):
        recommender_from_fields({**CRITEO, **change})


def test_tables_must_have_different_names():
    with pytest.raises(InputError, match="not unique: a"):
        RecommenderModel(name="x", tables=(EmbeddingTable(name="a", rows=1, dim=1),) * 2)
