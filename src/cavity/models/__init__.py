"""From data to a problem: each model is one function."""

from cavity.models._latent_gaussian.model import latent_gaussian
from cavity.models.one_unknown import clutter, mixture_weights, posterior, truncation

__all__ = ["clutter", "latent_gaussian", "mixture_weights", "posterior", "truncation"]
