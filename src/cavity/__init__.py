"""cavity: expectation propagation that gives the evidence and says honestly when it failed.

Importing it changes no global state: double precision is opened as a scope at the public entry points.
"""

from cavity import factors, families, models
from cavity._version import __version__
from cavity.inference.infer import infer
from cavity.inference.methods import ADF, EP, Method, PowerEP, RestrictedEP
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.projection import Cowell
from cavity.inference.schedule import Blocks, InOrder, LargestMismatchFirst, Order, Parallel, Shuffled
from cavity.inference.solution import Solution, Status
from cavity.moments import ClosedForm, Enumeration, Importance, Quadrature

__all__ = [
    "ADF",
    "EP",
    "Blocks",
    "ClosedForm",
    "Cowell",
    "Enumeration",
    "Importance",
    "InOrder",
    "LargestMismatchFirst",
    "Method",
    "Order",
    "Parallel",
    "PowerEP",
    "Problem",
    "Quadrature",
    "RestrictedEP",
    "Shuffled",
    "SiteGroup",
    "Solution",
    "Status",
    "__version__",
    "factors",
    "families",
    "infer",
    "models",
]
