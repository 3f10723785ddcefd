"""scikit-learn estimators on latent Gaussian models: the classes most users begin with."""

from cavity.estimators.bayes_point_machine import BayesPointMachine
from cavity.estimators.gp_classifier import GPClassifier
from cavity.estimators.gp_ordinal import GPOrdinal
from cavity.estimators.gp_regressor import GPRegressor
from cavity.estimators.loading import load
from cavity.estimators.selection import Selection, compare, select_features
from cavity.estimators.sklearn_kernels import as_kernel

__all__ = ["BayesPointMachine", "GPClassifier", "GPOrdinal", "GPRegressor"]
__all__ += ["Selection", "as_kernel", "compare", "load", "select_features"]
