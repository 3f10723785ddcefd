# %% [markdown]
# # The weights of a mixture of known densities
#
# Two close Gaussians with means 0 and 1 and variance 3, and 50 points: the example of thesis figure 3-7. The posterior
# of the weights is approximated by a Dirichlet.

# %%
import numpy as np

import cavity
from cavity.baselines import variational_bayes
from cavity.exact_inference import exact

rng = np.random.default_rng(0)
means = np.array([0.0, 1.0])
x = rng.normal(means[rng.integers(0, 2, 50)], 3.0**0.5)
densities = np.exp(-0.5 * (x[:, None] - means) ** 2 / 3.0) / np.sqrt(2.0 * np.pi * 3.0)
problem = cavity.models.mixture_weights(densities)

# %% [markdown]
# EP matches E[log w]. The Cowell projection matches E[w] and Σ E[w²] instead, which needs no Newton iterations.

# %%
truth = exact(problem)
print(f"{'exact':18} mean {truth.mean.round(4)}  log p(D) {truth.log_evidence:.6f}")
for name, method in {"EP": cavity.EP(), "EP with Cowell": cavity.EP(projection=cavity.Cowell())}.items():
    found = cavity.infer(problem, method)
    print(f"{name:18} mean {found.mean.round(4)}  log p(D) {found.log_evidence:.6f}  {found.status}")

# %% [markdown]
# Variational Bayes gives a lower bound.

# %%
bound = variational_bayes(problem)
print(f"{'variational Bayes':18} mean {bound.mean.round(4)}  log p(D) ≥ {bound.log_evidence:.6f}")
