"""`perfmodel predict RUN`: time, memory and what binds them."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perfmodel.cli.output import print_json
from perfmodel.cli.run_options import load_run_of, prices
from perfmodel.cost.collectives import CollectiveModel
from perfmodel.cost.execution import load_execution
from perfmodel.cost.protocol import CostModel
from perfmodel.errors import InputError
from perfmodel.hardware.records import Cluster
from perfmodel.predict import default_models, predict
from perfmodel.prediction import Prediction
from perfmodel.report.prediction import prediction_dict, prediction_text
from perfmodel.report.sweep import training_lines
from perfmodel.run import Run
from perfmodel.search.training import samples_to_train, whole_training

_OUT_OF_MEMORY = 1


def run(options: Namespace) -> int:
    """Predict one run; 1 if it does not fit in memory."""
    bundle = load_execution(options.bundle)
    loaded = load_run_of(options)
    models, notes = _models(options, loaded.cluster)
    prediction = predict(loaded, bundle=bundle, models=models)
    prediction = replace(prediction, assumptions=(*prediction.assumptions, *notes))
    if options.perfetto:
        prediction.to_perfetto(options.perfetto)
    training = _training(options, loaded, prediction)
    if options.json:
        print_json(prediction_dict(prediction) | ({"training": training} if training else {}))
    else:
        print(prediction_text(prediction, loaded, explain=options.explain))
        if training:
            print("\n".join(["", *training_lines(training)]))
    return 0 if prediction.fits else _OUT_OF_MEMORY


def _training(options: Namespace, loaded: Run, prediction: Prediction) -> dict[str, Any] | None:
    """Days, GPU-hours and cost of a whole training, if the options say how much is trained."""
    samples = samples_to_train(loaded, options.samples, options.tokens)
    price = prices(options.price)
    if samples is None:
        if price is not None:
            raise InputError("--price needs --samples or --tokens to train")
        return None
    if isinstance(price, dict):
        price = price.get(loaded.cluster.node.name)
    seconds, interval = prediction.iteration_time_s, prediction.interval_s
    return whole_training(loaded, seconds, interval, samples, price).to_dict()


def _models(
    options: Namespace, cluster: Cluster
) -> tuple[Sequence[CostModel] | None, tuple[str, ...]]:
    """Cost models that follow the user's own logs of collectives, and what to say about them."""
    if not options.comm:
        if options.plot:
            raise InputError("--plot draws the timings of --comm LOG; name a log")
        return None, ()
    from perfmodel.measure.collectives import plot_curves, read_own_logs

    own = read_own_logs(options.comm, cluster)
    for (file, reason), count in Counter((s.file, s.reason) for s in own.skipped).items():
        print(f"{file}: {count} skipped: {reason}", file=sys.stderr)
    model = CollectiveModel(own=own.curves)
    if options.plot:
        plot_curves(own.curves, model, options.plot)
    others = [m for m in default_models() if not isinstance(m, CollectiveModel)]
    return (model, *others), own.notes
