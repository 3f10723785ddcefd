"""Exact terms of models: each says what it is, none knows how it is inferred."""

from cavity._core.pytrees import static
from cavity.factors.base import Factor, MissingClosedForm, MissingDensity, factor
from cavity.factors.clutter import Clutter
from cavity.factors.draws import Bernoulli, CategoricalDraw, Mixture
from cavity.factors.gamma_variables import GammaRate, GaussianPrecision
from cavity.factors.gaussian import Gaussian
from cavity.factors.linear import Equality, InnerProduct, Linear, MatrixProduct
from cavity.factors.logistic import Logistic
from cavity.factors.logistic_link import LogisticLink
from cavity.factors.ordinal import OrdinalProbit
from cavity.factors.poisson import Poisson
from cavity.factors.probit import Probit
from cavity.factors.step import Step
from cavity.factors.student_t import StudentT
from cavity.factors.table import Table
from cavity.factors.truncation import Truncation
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
