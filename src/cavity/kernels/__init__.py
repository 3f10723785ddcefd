"""Covariance functions: k(x, z) with positive parameters, which add and multiply.

kernel = 2.0 * RBF(length_scale=[1.0, 3.0]) + Linear(0.5)
K = kernel(X)                # (n, n)
kernel.names                 # what theta, the vector of logarithms, holds
kernel.pullback(X, G)        # gradient in theta

A basis (`InducingInputs`, `RandomFeatures`) carries a process by a few functions, for many rows.
"""

from cavity._core.pytrees import static
from cavity.kernels.base import Constant, Kernel, Product, Sum
from cavity.kernels.basis import Basis, InducingInputs, RandomFeatures, Spanned
from cavity.kernels.covariances import RBF, Linear, Matern, Polynomial, White
from cavity.kernels.parameters import kernel, limits

__all__ = ["RBF", "Constant", "Linear", "Matern", "Polynomial", "White"]
__all__ += ["Kernel", "Product", "Sum", "kernel", "limits", "static"]
__all__ += ["Basis", "InducingInputs", "RandomFeatures", "Spanned"]
