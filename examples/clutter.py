# %% [markdown]
# # The clutter problem: EP from sweep to sweep
#
# Points lie around θ = 2 with unit noise, half of them replaced by clutter. The first sweep of EP is ADF. Each further
# sweep refines the sites in the context of all others.

# %%
import numpy as np

import cavity
from cavity.baselines import laplace, variational_bayes
from cavity.exact_inference import exact

rng = np.random.default_rng(1)
signal, noise = rng.normal(2.0, 1.0, 20), rng.normal(0.0, 10.0**0.5, 20)
x = np.where(rng.random(20) < 0.5, noise, signal)
problem = cavity.models.clutter(x, w=0.5)
truth = exact(problem)


# %% [markdown]
# A callback sees the solution after every sweep.


# %%
def show(state: cavity.Solution) -> None:
    mean_error, evidence_error = abs(state.mean - truth.mean), abs(state.log_evidence - truth.log_evidence)
    print(f"sweep {int(state.sweeps)}: error of the mean {mean_error:.1e}, of log p(D) {evidence_error:.1e}")


solution = cavity.infer(problem, callback=show)
print(solution)

# %% [markdown]
# The same problem by two other Gaussian approximations.

# %%
for name, baseline in (("Laplace", laplace), ("variational Bayes", variational_bayes)):
    found = baseline(problem)
    mean_error, evidence_error = abs(found.mean - truth.mean), abs(found.log_evidence - truth.log_evidence)
    print(f"{name}: error of the mean {mean_error:.1e}, of log p(D) {evidence_error:.1e}")
