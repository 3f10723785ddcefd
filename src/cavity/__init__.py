"""cavity: expectation propagation that gives the evidence and says honestly when it failed.

Importing it changes no global state: double precision is opened as a scope at the public entry points.
"""

import importlib
from typing import TYPE_CHECKING, Any

from cavity import factors, families, kernels, models
from cavity._version import __version__
from cavity.discrete import Clusters, DiscreteGraph, Tree, max_product
from cavity.factor_graph import FactorGraph
from cavity.inference import stepping
from cavity.inference.check import Check
from cavity.inference.infer import infer
from cavity.inference.methods import ADF, EP, Auto, ConvergentEP, Method, PowerEP, RelaxedEP, RestrictedEP
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.projection import Cowell
from cavity.inference.schedule import (
    Blocks,
    EveryNth,
    InOrder,
    LargestMismatchFirst,
    OneMessage,
    Order,
    Parallel,
    Shuffled,
    ThereAndBack,
)
from cavity.inference.solution import Solution
from cavity.inference.status import Status
from cavity.moments import ClosedForm, Enumeration, Importance, Quadrature

if TYPE_CHECKING:
    from cavity import learned
    from cavity.estimators import (
        BayesPointMachine,
        GPClassifier,
        GPOrdinal,
        GPRegressor,
        compare,
        load,
        select_features,
    )
    from cavity.exact_inference import exact

#: names that need scikit-learn are imported when they are first used
LATER = {
    "BayesPointMachine": "cavity.estimators",
    "GPClassifier": "cavity.estimators",
    "GPOrdinal": "cavity.estimators",
    "GPRegressor": "cavity.estimators",
    "compare": "cavity.estimators",
    "exact": "cavity.exact_inference",
    "learned": "cavity",
    "load": "cavity.estimators",
    "select_features": "cavity.estimators",
}


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module 'cavity' has no attribute {name!r}")
    if LATER[name] == "cavity":
        return importlib.import_module(f"cavity.{name}")
    return getattr(importlib.import_module(LATER[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "ADF",
    "EP",
    "Auto",
    "BayesPointMachine",
    "Blocks",
    "Check",
    "ClosedForm",
    "Clusters",
    "ConvergentEP",
    "Cowell",
    "DiscreteGraph",
    "Enumeration",
    "EveryNth",
    "FactorGraph",
    "GPClassifier",
    "GPOrdinal",
    "GPRegressor",
    "Importance",
    "InOrder",
    "LargestMismatchFirst",
    "Method",
    "OneMessage",
    "Order",
    "Parallel",
    "PowerEP",
    "Problem",
    "Quadrature",
    "RelaxedEP",
    "RestrictedEP",
    "Shuffled",
    "SiteGroup",
    "Solution",
    "Status",
    "ThereAndBack",
    "Tree",
    "__version__",
    "compare",
    "exact",
    "factors",
    "families",
    "infer",
    "kernels",
    "learned",
    "load",
    "max_product",
    "models",
    "select_features",
    "stepping",
]
