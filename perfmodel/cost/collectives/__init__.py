"""How long collectives take: from own measurements, or in closed form from specifications."""

from perfmodel.cost.collectives.model import CollectiveModel
from perfmodel.cost.collectives.paths import CommPath, comm_path
from perfmodel.cost.collectives.regimes import closed_form_seconds

__all__ = ["CollectiveModel", "CommPath", "closed_form_seconds", "comm_path"]
