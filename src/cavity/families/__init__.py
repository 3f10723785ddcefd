"""Families: what a message is. Natural parameters are plain arrays; product and ratio of densities are + and −."""

from cavity.families.base import Family, Tilted
from cavity.families.categorical import Categorical
from cavity.families.dirichlet import Beta, Dirichlet
from cavity.families.full_gaussian import FullGaussian, FullGaussianWithUniform
from cavity.families.gamma import Gamma, GammaWithUniform
from cavity.families.gaussian import DiagonalGaussian, Gaussian, GaussianWithUniform, SphericalGaussian
from cavity.families.product import Product

__all__ = ["DiagonalGaussian", "FullGaussian", "Gaussian", "SphericalGaussian"]
__all__ += ["FullGaussianWithUniform", "GammaWithUniform", "GaussianWithUniform"]
__all__ += ["Beta", "Categorical", "Dirichlet", "Family", "Gamma", "Product", "Tilted"]
