"""`perfmodel predict RUN`: time, memory and what binds them."""

from __future__ import annotations

from argparse import Namespace

from perfmodel.cli.output import print_json
from perfmodel.cost.execution import load_execution
from perfmodel.predict import predict
from perfmodel.report.prediction import prediction_dict, prediction_text
from perfmodel.run import Run

_OUT_OF_MEMORY = 1


def run(options: Namespace) -> int:
    """Predict one run; 1 if it does not fit in memory."""
    bundle = load_execution(options.bundle)
    loaded = Run.load(options.file, options.row)
    prediction = predict(loaded, parameters=bundle.parameters, spread=bundle.spread)
    if options.perfetto:
        prediction.to_perfetto(options.perfetto)
    if options.json:
        print_json(prediction_dict(prediction))
    else:
        print(prediction_text(prediction, loaded, explain=options.explain))
    return 0 if prediction.fits else _OUT_OF_MEMORY
