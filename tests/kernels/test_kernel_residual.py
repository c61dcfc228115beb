import io

import numpy as np
import pytest

from perfmodel.cost.kernels.residual import Trees
from perfmodel.measure.kernels.recipes import TreeRecipe
from perfmodel.measure.kernels.train import boost


@pytest.fixture(scope="module")
def trained():
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(3000, 6)).astype(np.float32)
    matrix[:, 5] = np.round(matrix[:, 5])
    target = np.sin(2 * matrix[:, 0]) * matrix[:, 1] + (matrix[:, 5] > 0)
    recipe = TreeRecipe(num_trees=40, depth=6, learning_rate=0.2, min_child_weight=2)
    return matrix, target, boost(matrix, target, recipe)


def test_trees_learn(trained):
    matrix, target, trees = trained
    assert np.mean((trees.predict(matrix) - target) ** 2) < 0.1 * np.var(target)


def test_small_and_large_batches_agree(trained):
    matrix, _, trees = trained
    many = np.tile(matrix, (8, 1))  # above the size from which xgboost is used
    assert np.allclose(trees.predict(many)[: len(matrix)], trees.predict(matrix), atol=1e-4)


def test_values_at_thresholds_go_the_same_way_in_both(trained):
    _, _, trees = trained
    width = trees.num_features
    matrix = np.zeros((25_000, width), dtype=np.float32)
    for j in range(width):
        mine = trees.thresholds[trees.offsets[j] : trees.offsets[j + 1]]
        if len(mine):
            matrix[:, j] = np.resize(mine, 25_000)
    few = matrix[:2000]
    assert np.allclose(trees.predict(matrix)[:2000], trees.predict(few), atol=1e-4)


def test_stored_trees_come_back(trained):
    matrix, _, trees = trained
    file = io.BytesIO()
    np.savez_compressed(file, **trees.arrays("known"))
    file.seek(0)
    with np.load(file, allow_pickle=False) as stored:
        again = Trees.from_arrays(dict(stored), "known")
    assert np.array_equal(again.predict(matrix), trees.predict(matrix))


def test_same_data_and_seed_give_the_same_trees(trained):
    matrix, target, trees = trained
    recipe = TreeRecipe(num_trees=40, depth=6, learning_rate=0.2, min_child_weight=2)
    again = boost(matrix, target, recipe)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(trees.arrays("t").values(), again.arrays("t").values(), strict=True)
    )
