"""`perfmodel rank RUN --plans P...`: sharding plans of one recommender beside each other."""

from __future__ import annotations

from argparse import Namespace

from perfmodel.cli.output import print_json
from perfmodel.cli.run_options import load_run_of
from perfmodel.cost.execution import load_execution
from perfmodel.report.ranking import ranking_text
from perfmodel.search.rank import rank_plans

_OUT_OF_MEMORY = 1


def run(options: Namespace) -> int:
    """Rank the plans; 1 if none fits in memory."""
    loaded = load_run_of(options)
    ranking = rank_plans(loaded, options.plans, bundle=load_execution(options.bundle))
    document = ranking.to_dict()
    if options.json:
        print_json(document)
    else:
        print(ranking_text(document))
    return 0 if any(p.memory.fits for p in ranking.plans) else _OUT_OF_MEMORY
