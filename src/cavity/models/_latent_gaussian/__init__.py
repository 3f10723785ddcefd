"""Fitted latent Gaussian models: what the estimators are made of. Arrays in, arrays out."""

from cavity.models._latent_gaussian.exact_gp import ExactGP, fit_exact_gp
from cavity.models._latent_gaussian.linear_model import LinearModel, fit_linear_model
from cavity.models._latent_gaussian.sparse_gp import SparseGP, fit_sparse_gp

__all__ = ["ExactGP", "LinearModel", "SparseGP"]
__all__ += ["fit_exact_gp", "fit_linear_model", "fit_sparse_gp"]
