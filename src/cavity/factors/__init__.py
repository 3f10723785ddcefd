"""Exact terms of models: each says what it is, none knows how it is inferred."""

from cavity._core.pytrees import static
from cavity.factors.base import Factor, MissingClosedForm, MissingDensity, factor
from cavity.factors.binary import Logistic, Probit, Step
from cavity.factors.clutter import Clutter
from cavity.factors.gamma_variables import GammaRate, GaussianPrecision
from cavity.factors.interval import OrdinalProbit, Truncation
from cavity.factors.linear import Equality, InnerProduct, Linear, MatrixProduct
from cavity.factors.poisson import Poisson
from cavity.factors.probabilities import Bernoulli, CategoricalDraw, LogisticLink, Mixture
from cavity.factors.regression import Gaussian, StudentT
from cavity.factors.table import Table
from cavity.factors.wrappers import Conditioned, GaussianConvolved, Tempered, from_log_density, from_log_z

__all__ = [
    "Bernoulli",
    "CategoricalDraw",
    "Clutter",
    "Conditioned",
    "Equality",
    "Factor",
    "GammaRate",
    "Gaussian",
    "GaussianConvolved",
    "GaussianPrecision",
    "InnerProduct",
    "Linear",
    "Logistic",
    "LogisticLink",
    "MatrixProduct",
    "MissingClosedForm",
    "MissingDensity",
    "Mixture",
    "OrdinalProbit",
    "Poisson",
    "Probit",
    "Step",
    "StudentT",
    "Table",
    "Tempered",
    "Truncation",
    "factor",
    "from_log_density",
    "from_log_z",
    "static",
]
