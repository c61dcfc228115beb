import sys
from pathlib import Path

import pytest

from perfmodel.measure.kernels import recipes
from perfmodel.measure.kernels.fit import fit_kernels

sys.path.insert(0, str(Path(__file__).parent))

from kernel_tables import add_table, gemm_table

SMALL = recipes.TreeRecipe(
    num_trees=20, depth=4, learning_rate=0.2, min_child_weight=3, max_rows=5000
)


@pytest.fixture(scope="session")
def small_recipes():
    """Few small trees for every model, so that fitting a test bundle takes a second."""
    kept = dict(recipes._RECIPES), recipes._DEFAULT
    recipes._RECIPES = {}
    recipes._DEFAULT = recipes.Recipe(known=SMALL, transfer=SMALL)
    yield
    recipes._RECIPES, recipes._DEFAULT = kept


@pytest.fixture(scope="session")
def small_bundle(small_recipes, tmp_path_factory):
    """Bundle fitted on the invented tables."""
    folder = tmp_path_factory.mktemp("bundle")
    fit_kernels([gemm_table(), add_table()], folder)
    return folder
