"""How well a GPU is predicted once a few of its kernels are measured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.cost.kernels.learned import LearnedModel
from perfmodel.measure.kernels.adapt import adapt_model
from perfmodel.measure.kernels.evaluate import by_model, error_table
from perfmodel.measure.kernels.tables import Checked, check, fitting_rows, read_tables, take
from perfmodel.measure.kernels.train import SEED, train_model
from perfmodel.units import US

if TYPE_CHECKING:
    import pandas as pd

NUM_SHOTS = 20


def evaluate_few_shots(
    tables: Iterable[str | Path | pd.DataFrame], shots: int = NUM_SHOTS, seed: int = SEED
) -> pd.DataFrame:
    """Errors on every GPU, left out with its siblings, before and after `shots` of its kernels.

    Each (GPU, dtype, operator) gets `shots` rows drawn at random; the others are predicted.

    Returns
    -------
    DataFrame
        One row a GPU, dtype and operator: `rows`, errors as in `evaluate.errors` with the suffix
        `_before` and `_after`.
    """
    import pandas as pd

    parts, _ = check(read_tables(tables))
    pieces = []
    for part in fitting_rows(parts):
        for name, mine in by_model(part):
            silicon = mine.rows.labels["silicon"]
            for this in sorted(set(silicon.tolist())):
                training = take(mine, silicon != this)
                if len(training.index):
                    model = train_model(name, training, branches=("transfer",))
                    pieces.append(_judge(model, take(mine, silicon == this), shots, seed))
    rows = pd.concat(pieces, ignore_index=True)
    keys = ["gpu", "dtype", "op"]
    before = pd.DataFrame(error_table(rows.assign(predicted_us=rows["before_us"]), keys)).T
    after = pd.DataFrame(error_table(rows.assign(predicted_us=rows["after_us"]), keys)).T
    # The interval is that of the adapted model.
    before = before.drop(columns="coverage")
    out = before.join(after.drop(columns="rows"), lsuffix="_before", rsuffix="_after")
    return out.rename_axis(keys).reset_index()


def _judge(model: LearnedModel, part: Checked, shots: int, seed: int) -> pd.DataFrame:
    import pandas as pd

    labels = part.rows.labels
    kinds = sorted(set(zip(labels["gpu"], labels["dtype"], labels["op"], strict=True)))
    frames = []
    for gpu, dtype, op in kinds:
        rows = np.flatnonzero(
            (labels["gpu"] == gpu) & (labels["dtype"] == dtype) & (labels["op"] == op)
        )
        chosen = np.random.default_rng(seed).permutation(rows)
        few, rest = np.sort(chosen[:shots]), np.sort(chosen[shots:])
        if not len(rest):
            continue
        test = take(part, rest)
        after = adapt_model(model, take(part, few)).predict(test.rows)
        factor = np.exp(after.half_width)
        predicted = np.exp(after.log_seconds) / US
        frames.append(
            pd.DataFrame(
                {
                    "gpu": gpu, "dtype": dtype, "op": op,
                    "latency_us": np.exp(test.log_measured) / US,
                    "before_us": np.exp(model.predict(test.rows).log_seconds) / US,
                    "after_us": predicted, "lo_us": predicted / factor, "hi_us": predicted * factor,
                }
            )
        )  # fmt: skip
    return pd.concat(frames, ignore_index=True)
