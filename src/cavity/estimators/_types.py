"""What users hand to estimators, by type, and what an estimator is made of."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.gaussian_process import kernels as sk

from cavity.estimators.sklearn_kernels import SearchedKernel
from cavity.inference.methods import Method
from cavity.models._latent_gaussian import ExactGP, LinearModel, SparseGP

#: inputs, one per row
Rows = ArrayLike | sparse.sparray | sparse.spmatrix
#: observations, labels, weights or thresholds
Vector = ArrayLike
KernelChoice = SearchedKernel | sk.Kernel | str | None
MethodChoice = Method | None
#: factors on the weights of classes, by label
ClassWeight = Mapping[Any, float] | str | None
Seed = int | np.random.RandomState | None
#: 0 for silence, a number above for lines on standard output, or what is called with every line
Verbose = int | Callable[[str], object]
#: fitted to one set of sites
FittedModel = ExactGP | SparseGP | LinearModel
