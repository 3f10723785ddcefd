# %% [markdown]
# # A factor of one's own
#
# An instrument measures θ with noise 0.5, but one reading in five has noise 4. Integrated against a Gaussian cavity
# this is a mixture of two Gaussians, so log Z is known and the rest follows by differentiation.

# %%
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import cavity

SHARES, NOISES = np.array([0.8, 0.2]), np.array([0.5, 4.0])


def log_z(mean: jax.Array, variance: jax.Array, y: jax.Array) -> jax.Array:
    """log ∫ t(θ) N(θ; mean, variance) dθ."""
    return jax.nn.logsumexp(jnp.log(SHARES) + norm.logpdf(y, mean, jnp.sqrt(variance + NOISES**2)))


y = np.array([1.2, 0.7, 1.9, -6.5, 1.1, 1.5])
solution = cavity.infer(cavity.models.posterior(cavity.factors.from_log_z(log_z), y, prior_variance=25.0))
print(solution)
print(f"θ = {solution.mean:.4f} ± {solution.covariance**0.5:.4f}")

# %% [markdown]
# The same from the log density alone, by importance sampling. `ess` is the number of draws that count.


# %%
def log_density(theta: jax.Array, y: jax.Array) -> jax.Array:
    """log t(θ) of one reading."""
    return jax.nn.logsumexp(jnp.log(SHARES) + norm.logpdf(y, theta, NOISES))


problem = cavity.models.posterior(
    cavity.factors.from_log_density(log_density), y, prior_variance=25.0, moments=cavity.Importance(draws=5000)
)
sampled = cavity.infer(problem, cavity.EP(tol=1e-6))
print(f"θ = {sampled.mean:.4f} ± {sampled.covariance**0.5:.4f}")
print(f"smallest ess: {sampled.info[0]['ess'].min():.0f} of 5000 draws")
