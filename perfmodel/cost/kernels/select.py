"""Which fitted model prices rows of a family and dtype on one silicon."""

from __future__ import annotations

import numpy as np

from perfmodel.cost.kernels.bundle import KernelBundle
from perfmodel.cost.kernels.families import Family
from perfmodel.cost.kernels.learned import LearnedModel
from perfmodel.cost.kernels.rows import Rows

# 16-bit formats run on the same unit at the same rate: either stands for the other.
_TWINS = {"bf16": "fp16", "fp16": "bf16"}


def choose_model(
    bundle: KernelBundle, family: Family, rows: Rows
) -> tuple[LearnedModel | None, Rows]:
    """Model for rows of one silicon and dtype, and the rows under the dtype it was fitted on.

    A dtype whose own model knows the silicon wins, then its 16-bit twin that does, then its own.
    """
    if family.name != "gemm":
        return bundle.model(family.name), rows
    dtype = str(rows.labels["dtype"][0])
    own = bundle.model(f"gemm.{dtype}")
    silicon = str(rows.labels["silicon"][0])
    if own is not None and _knows(own, silicon):
        return own, rows
    twin_dtype = _TWINS.get(dtype)
    twin = bundle.model(f"gemm.{twin_dtype}") if twin_dtype else None
    if twin is not None and (own is None or _knows(twin, silicon)):
        return twin, _as_dtype(rows, str(twin_dtype))
    return own, rows


def _knows(model: LearnedModel, silicon: str) -> bool:
    return any(kind.silicon == silicon for kind in model.kinds.kinds)


def _as_dtype(rows: Rows, dtype: str) -> Rows:
    renamed = np.full(len(rows), dtype, dtype=object)
    return Rows(
        shape=rows.shape, device=rows.device, element_bytes=rows.element_bytes,
        labels={**rows.labels, "dtype": renamed},
    )  # fmt: skip
