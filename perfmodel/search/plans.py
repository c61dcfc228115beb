"""The best plan of a run, by the family of its workload."""

from __future__ import annotations

from typing import Any

from perfmodel.errors import InputError
from perfmodel.run import Run
from perfmodel.search.layouts import LayoutSearch, plan_layout


def plan(run: Run, **options: Any) -> LayoutSearch:
    """Search the plan with the shortest iteration that fits in memory.

    Parameters
    ----------
    run : Run
    **options
        For transformers those of `plan_layout`.

    Raises
    ------
    InputError
        If no plan fits, or plans of the family are not searched.
    """
    family = run.workload.model.family
    if family == "transformer":
        return plan_layout(run, **options)
    raise InputError(f"plans are searched for transformers, the workload is a {family}")
