"""Rivals of EP on the same problems, and the exact answers they are all measured against."""

from cavity.baselines.base import Estimate
from cavity.baselines.exact import exact, posterior_density
from cavity.baselines.gibbs import Chain, gibbs, gibbs_chain, gibbs_density
from cavity.baselines.importance import importance
from cavity.baselines.laplace import laplace
from cavity.baselines.latent_laplace import latent_laplace
from cavity.baselines.latent_sampling import latent_sampling
from cavity.baselines.online import directed_decision, probabilistic_teacher
from cavity.baselines.variational import jensen, variational_bayes, variational_bound_by_quadrature

__all__ = [
    "Chain",
    "Estimate",
    "directed_decision",
    "exact",
    "gibbs",
    "gibbs_chain",
    "gibbs_density",
    "importance",
    "jensen",
    "laplace",
    "latent_laplace",
    "latent_sampling",
    "posterior_density",
    "probabilistic_teacher",
    "variational_bayes",
    "variational_bound_by_quadrature",
]
