"""cavity: expectation propagation that gives the evidence and says honestly when it failed.

Importing it changes no global state: double precision is opened as a scope at the public entry points. It loads nothing
either: JAX, SciPy and scikit-learn are imported with the first name that needs them.
"""

import pkgutil
from typing import TYPE_CHECKING, Any

from cavity._version import __version__

if TYPE_CHECKING:
    from cavity import factors, families, kernels, learned, models
    from cavity.discrete import Clusters, DiscreteGraph, Tree, max_product
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
    from cavity.factor_graph import FactorGraph
    from cavity.inference import stepping
    from cavity.inference.check import Check
    from cavity.inference.infer import infer
    from cavity.inference.methods import ADF, EP, Auto, ConvergentEP, Method, PowerEP, RelaxedEP, RestrictedEP
    from cavity.inference.problem import Problem, SiteGroup
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
    from cavity.inference.update_rule import Cowell
    from cavity.moments import ClosedForm, Enumeration, Importance, Quadrature

#: where the public names are; a module is imported when one of its names is first asked for
PLACES = {
    "cavity.discrete": "Clusters DiscreteGraph Tree max_product",
    "cavity.estimators": "BayesPointMachine GPClassifier GPOrdinal GPRegressor compare load select_features",
    "cavity.exact_inference": "exact",
    "cavity.factor_graph": "FactorGraph",
    "cavity.inference.check": "Check",
    "cavity.inference.infer": "infer",
    "cavity.inference.methods": "ADF EP Auto ConvergentEP Method PowerEP RelaxedEP RestrictedEP",
    "cavity.inference.problem": "Problem SiteGroup",
    "cavity.inference.schedule": (
        "Blocks EveryNth InOrder LargestMismatchFirst OneMessage Order Parallel Shuffled ThereAndBack"
    ),
    "cavity.inference.solution": "Solution",
    "cavity.inference.status": "Status",
    "cavity.inference.update_rule": "Cowell",
    "cavity.moments": "ClosedForm Enumeration Importance Quadrature",
}
LATER = {name: f"{place}:{name}" for place, names in PLACES.items() for name in names.split()}
MODULES = (
    "baselines discrete distributed estimators factor_graph factors families inference kernels learned models moments "
    "posteriors reports"
)
LATER |= {name: f"cavity.{name}" for name in MODULES.split()} | {"stepping": "cavity.inference.stepping"}


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module 'cavity' has no attribute {name!r}")
    globals()[name] = found = pkgutil.resolve_name(LATER[name])
    return found


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = ["__version__", "factors", "families", "kernels", "learned", "models", "stepping"]
__all__ += ["Clusters", "DiscreteGraph", "FactorGraph", "Tree", "max_product"]
__all__ += ["BayesPointMachine", "GPClassifier", "GPOrdinal", "GPRegressor", "compare", "load", "select_features"]
__all__ += ["Check", "Problem", "SiteGroup", "Solution", "Status", "exact", "infer"]
__all__ += ["ADF", "EP", "Auto", "ConvergentEP", "Cowell", "Method", "PowerEP", "RelaxedEP", "RestrictedEP"]
__all__ += ["InOrder", "LargestMismatchFirst", "Order", "Shuffled", "ThereAndBack"]
__all__ += ["Blocks", "EveryNth", "OneMessage", "Parallel"]
__all__ += ["ClosedForm", "Enumeration", "Importance", "Quadrature"]
