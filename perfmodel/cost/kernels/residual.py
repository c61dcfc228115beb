"""Boosted trees as plain arrays: stored without pickle, evaluated without a training library.

Thresholds are stored as positions in a sorted list per feature, leaf values as 16-bit floats.
Small batches are walked in numpy; large ones are handed to xgboost, which is built from the same
arrays, so that both give the same answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.kernels.rows import Vector

MAX_BIN = 255
"""Bins a feature: one fewer threshold than fits a byte, so that 255 can mean "leaf"."""
_LEAF = 255
_LARGE_BATCH = 20_000  # rows from which the second it takes to import xgboost is worth it
_STATES = 2_000_000  # (row, tree) pairs walked at once: bounds memory


@dataclass(frozen=True, slots=True)
class Trees:
    """A sum of regression trees; nodes of all trees one after the other.

    feature, code : uint8, (nodes,) - which feature is compared, and with which of its thresholds;
        code 255 marks a leaf
    left : uint16, (nodes,) - distance to the left child, the right one follows it; 0 at leaves
    value : float16, (nodes,) - of leaves
    roots : int32, (trees,)
    thresholds : float32, all features one after the other; `offsets` int32, (features + 1,)
    """

    feature: NDArray[np.uint8]
    code: NDArray[np.uint8]
    left: NDArray[np.uint16]
    value: NDArray[np.float16]
    roots: NDArray[np.int32]
    thresholds: NDArray[np.float32]
    offsets: NDArray[np.int32]
    depth: int
    _booster: list[Any] = field(default_factory=list, compare=False)

    @property
    def num_features(self) -> int:
        """Columns that `predict` expects."""
        return len(self.offsets) - 1

    def predict(self, matrix: NDArray[np.float32]) -> Vector:
        """Sum of the trees for each row of `matrix`, shape (n, features)."""
        if len(matrix) >= _LARGE_BATCH:
            return self._predict_large(matrix)
        codes = self._codes(matrix)
        out = np.zeros(len(matrix))
        step = max(1, _STATES // max(len(self.roots), 1))
        for start in range(0, len(matrix), step):
            out[start : start + step] = self._walk(codes[start : start + step])
        return out

    def _codes(self, matrix: NDArray[np.float32]) -> NDArray[np.uint8]:
        codes = np.empty(matrix.shape, dtype=np.uint8)
        for j in range(self.num_features):
            mine = self.thresholds[self.offsets[j] : self.offsets[j + 1]]
            codes[:, j] = np.searchsorted(mine, matrix[:, j], side="right")
        return codes

    def _walk(self, codes: NDArray[np.uint8]) -> Vector:
        n, width = codes.shape
        flat = codes.ravel()
        first = (np.arange(n, dtype=np.int32) * width)[:, None]
        state = np.broadcast_to(self.roots, (n, len(self.roots))).copy()
        for _ in range(self.depth):
            goes_right = flat[first + self.feature[state]] > self.code[state]
            state += self.left[state]
            state += goes_right
        return np.asarray(self.value[state].sum(axis=1, dtype=np.float64))

    def _predict_large(self, matrix: NDArray[np.float32]) -> Vector:
        import xgboost

        if not self._booster:
            self._booster.append(_booster_of(self))
        data = xgboost.DMatrix(matrix)
        predicted = self._booster[0].predict(data)
        return np.asarray(predicted, dtype=np.float64)

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Arrays to store, by name."""
        names = ("feature", "code", "left", "value", "roots", "thresholds", "offsets")
        stored = {f"{prefix}.{name}": getattr(self, name) for name in names}
        return stored | {f"{prefix}.depth": np.array(self.depth)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str) -> Trees:
        """Inverse of `arrays`."""
        names = ("feature", "code", "left", "value", "roots", "thresholds", "offsets")
        kept: dict[str, Any] = {name: arrays[f"{prefix}.{name}"] for name in names}
        return cls(**kept, depth=int(arrays[f"{prefix}.depth"]))


def from_xgboost(booster: Any, num_features: int) -> Trees:
    """Plain arrays of a trained xgboost model whose base score is 0."""
    document = json.loads(bytes(booster.save_raw("json")).decode())
    trees = document["learner"]["gradient_booster"]["model"]["trees"]
    split = [np.array(t["split_indices"]) for t in trees]
    condition = [np.array(t["split_conditions"], dtype=np.float32) for t in trees]
    left = [np.array(t["left_children"]) for t in trees]
    right = [np.array(t["right_children"]) for t in trees]
    for lower, upper in zip(left, right, strict=True):
        inner = lower >= 0
        if not np.array_equal(upper[inner], lower[inner] + 1):
            raise ValueError("a right child does not follow its left sibling")
    all_split, all_condition = np.concatenate(split), np.concatenate(condition)
    is_leaf = np.concatenate(left) < 0
    tables = [np.unique(all_condition[(all_split == j) & ~is_leaf]) for j in range(num_features)]
    code = np.full(len(all_split), _LEAF, dtype=np.uint8)
    for j, table in enumerate(tables):
        mine = (all_split == j) & ~is_leaf
        code[mine] = np.searchsorted(table, all_condition[mine])
    offset = np.concatenate([np.where(c >= 0, c - np.arange(len(c)), 0) for c in left])
    sizes = np.array([len(c) for c in left])
    return Trees(
        feature=np.where(is_leaf, 0, all_split).astype(np.uint8),
        code=code,
        left=offset.astype(np.uint16),
        value=np.where(is_leaf, all_condition, 0.0).astype(np.float16),
        roots=np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32),
        thresholds=np.concatenate(tables).astype(np.float32),
        offsets=np.concatenate([[0], np.cumsum([len(t) for t in tables])]).astype(np.int32),
        depth=max(_depth(c) for c in left),
    )


def _depth(left: NDArray[np.int64]) -> int:
    """Levels below the root."""
    level = np.zeros(len(left), dtype=int)
    for node in np.flatnonzero(left >= 0):  # children are stored after their parents
        level[left[node]] = level[left[node] + 1] = level[node] + 1
    return int(level.max())


def _booster_of(trees: Trees) -> Any:
    """The same trees as an xgboost model: a one-tree model whose tree is replaced by these."""
    import xgboost

    width = trees.num_features
    blank = xgboost.DMatrix(np.zeros((2, width), np.float32), label=np.zeros(2), nthread=1)
    seed = xgboost.train({"base_score": 0.0, "max_depth": 1, "nthread": 1}, blank, 1)
    document = json.loads(bytes(seed.save_raw("json")).decode())
    model = document["learner"]["gradient_booster"]["model"]
    template = model["trees"][0]
    ends = [*trees.roots[1:].tolist(), len(trees.code)]
    model["trees"] = [
        _tree_document(trees, template, number, start, end)
        for number, (start, end) in enumerate(zip(trees.roots.tolist(), ends, strict=True))
    ]
    model["tree_info"] = [0] * len(ends)
    model["iteration_indptr"] = list(range(len(ends) + 1))
    model["gbtree_model_param"]["num_trees"] = str(len(ends))
    booster = xgboost.Booster()
    booster.load_model(bytearray(json.dumps(document).encode()))
    return booster


def _tree_document(
    trees: Trees, template: dict[str, Any], number: int, start: int, end: int
) -> dict[str, Any]:
    code, feature = trees.code[start:end], trees.feature[start:end].astype(int)
    size = end - start
    inner = code != _LEAF
    left = np.where(inner, np.arange(size) + trees.left[start:end], -1)
    parents = np.full(size, 2147483647)
    parents[left[inner]] = parents[left[inner] + 1] = np.flatnonzero(inner)
    position = np.minimum(trees.offsets[feature] + code, len(trees.thresholds) - 1)
    condition = np.where(inner, trees.thresholds[position], trees.value[start:end])
    zeros = [0.0] * size
    return template | {
        "base_weights": zeros, "loss_changes": zeros, "sum_hessian": zeros,
        "default_left": [0] * size, "id": number, "left_children": left.tolist(),
        "right_children": np.where(inner, left + 1, -1).tolist(), "parents": parents.tolist(),
        "split_conditions": condition.astype(float).tolist(),
        "split_indices": np.where(inner, feature, 0).tolist(), "split_type": [0] * size,
        "tree_param": template["tree_param"] | {"num_nodes": str(size)},
    }  # fmt: skip
