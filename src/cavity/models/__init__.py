"""From data to a problem: each model is one function."""

from cavity.models.clutter import clutter
from cavity.models.latent_gaussian.build import latent_gaussian
from cavity.models.mixture_weights import mixture_weights
from cavity.models.posterior import posterior
from cavity.models.truncation import truncation

__all__ = ["clutter", "latent_gaussian", "mixture_weights", "posterior", "truncation"]
