"""Posteriors: how q is stored and how a change of sites is absorbed."""

from cavity.posteriors.base import Posterior
from cavity.posteriors.dense_gaussian import DenseGaussian
from cavity.posteriors.factorised import Factorised
from cavity.posteriors.shared import Shared
from cavity.posteriors.tree import TreePosterior
from cavity.posteriors.weight_gaussian import WeightGaussian

__all__ = ["DenseGaussian", "Factorised", "Posterior", "Shared", "TreePosterior"]
__all__ += ["WeightGaussian"]
