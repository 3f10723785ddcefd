"""Exact terms of models: each says what it is, none knows how it is inferred."""

from cavity._core.pytrees import static
from cavity.factors.base import Factor, FactorError, MissingClosedForm, MissingDensity, factor
from cavity.factors.binary import Probit, Step
from cavity.factors.clutter import Clutter
from cavity.factors.gamma_variables import GammaRate, GaussianPrecision
from cavity.factors.interval import OrdinalProbit, Truncation
from cavity.factors.linear import Equality, InnerProduct, Linear, MatrixProduct
from cavity.factors.logistic import Logistic
from cavity.factors.poisson import Poisson
from cavity.factors.probabilities import Bernoulli, CategoricalDraw, LogisticLink, Mixture
from cavity.factors.regression import Gaussian, StudentT
from cavity.factors.table import Table
from cavity.factors.wrappers import Conditioned, GaussianConvolved, Tempered, from_log_density, from_log_z

__all__ = ["Bernoulli", "Gaussian", "Logistic", "OrdinalProbit", "Poisson", "Probit", "Step", "StudentT"]
__all__ += ["Equality", "InnerProduct", "Linear", "LogisticLink", "MatrixProduct"]
__all__ += ["Clutter", "GammaRate", "GaussianPrecision", "Truncation"]
__all__ += ["CategoricalDraw", "Mixture", "Table"]
__all__ += ["Conditioned", "GaussianConvolved", "Tempered"]
__all__ += ["Factor", "FactorError", "MissingClosedForm", "MissingDensity", "factor"]
__all__ += ["from_log_density", "from_log_z", "static"]
