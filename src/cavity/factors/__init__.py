"""Exact terms of models: each says what it is, none knows how it is inferred."""

from cavity._core.pytrees import static
from cavity.factors.base import Factor, MissingClosedForm, MissingDensity, factor
from cavity.factors.bernoulli import Bernoulli
from cavity.factors.categorical_draw import CategoricalDraw
from cavity.factors.clutter import Clutter
from cavity.factors.conditioned import Conditioned
from cavity.factors.convolved import GaussianConvolved
from cavity.factors.custom import from_log_density, from_log_z
from cavity.factors.equality import Equality
from cavity.factors.gamma_rate import GammaRate
from cavity.factors.gaussian import Gaussian
from cavity.factors.gaussian_precision import GaussianPrecision
from cavity.factors.linear import InnerProduct, Linear
from cavity.factors.logistic import Logistic
from cavity.factors.logistic_link import LogisticLink
from cavity.factors.matrix_product import MatrixProduct
from cavity.factors.mixture import Mixture
from cavity.factors.ordinal import OrdinalProbit
from cavity.factors.poisson import Poisson
from cavity.factors.probit import Probit
from cavity.factors.step import Step
from cavity.factors.student_t import StudentT
from cavity.factors.table import Table
from cavity.factors.tempered import Tempered
from cavity.factors.truncation import Truncation

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
