"""Exact terms of models: each says what it is, none knows how it is inferred."""

from cavity.factors.base import Factor, MissingClosedForm, MissingDensity, factor, static
from cavity.factors.clutter import Clutter
from cavity.factors.custom import from_log_density, from_log_z
from cavity.factors.gaussian import Gaussian
from cavity.factors.mixture import Mixture
from cavity.factors.probit import Probit
from cavity.factors.truncation import Truncation

__all__ = [
    "Clutter",
    "Factor",
    "Gaussian",
    "MissingClosedForm",
    "MissingDensity",
    "Mixture",
    "Probit",
    "Truncation",
    "factor",
    "from_log_density",
    "from_log_z",
    "static",
]
