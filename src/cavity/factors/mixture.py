"""The mixture-weight term: one observation of a mixture of K known densities with unknown weights (thesis 3.3)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import is_traced
from cavity.factors.base import Factor, factor, is_one
from cavity.families.base import Family, Tilted
from cavity.families.dirichlet import Dirichlet


@factor
class Mixture(Factor):
    """The mixture-weight term t(w) = Σ_k w_k p_k(x) (thesis 3.3).

    The data are K numbers log p_k(x) per site, −inf where a component cannot give x.

    Raises:
        ValueError: in a run, if all log densities of a site are −inf, or one is NaN.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> term = cv.factors.Mixture()
        >>> round(float(np.exp(term.log_density(np.array([0.5, 0.5]), np.log([0.2, 0.4])))), 4)
        0.3
    """

    closed_forms = ("Dirichlet with power 1, matching E[log w] or, for the Cowell projection, E[w] and Σ E[w²]",)

    def check(self, data: Any) -> None:
        """Log densities may be −inf, but not everywhere in a row."""
        table = data if is_traced(data) else np.asarray(data, float)
        if not is_traced(table) and not np.all(np.isfinite(table.max(axis=-1)) & ~np.isnan(table).any(axis=-1)):
            raise ValueError("data of Mixture must be rows of log densities, −inf at most for some components.")

    def is_log_concave(self) -> bool:
        return True

    def log_density(self, x: jax.Array, data: Any) -> jax.Array:
        return jax.scipy.special.logsumexp(jnp.log(x) + data, axis=-1)

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        """log Z = log Σ p_k a_k − log Σ a_k (3.91); the statistics follow in closed form."""
        if not isinstance(family, Dirichlet) or not is_one(power):
            return NotImplemented
        # p_k is only used up to its row maximum: ratios p_k / Σ p_j a_j are what the formulas need.
        top = jnp.max(data)
        p = jnp.exp(data - top)
        total = jnp.sum(cavity)
        weighted = jnp.sum(p * cavity)
        log_z = jnp.log(weighted) - jnp.log(total) + top
        if family.match == "mean_square":
            stats = two_moments(cavity, total, p, weighted)
        else:
            # Ψ(a_k) − Ψ(Σa) + p_k/Σ_j p_j a_j − 1/Σa (3.94)
            stats = family.moments(cavity) + p / weighted - 1.0 / total
        return Tilted(log_z, stats, family.message(cavity, stats))


def two_moments(cavity: jax.Array, total: jax.Array, p: jax.Array, weighted: jax.Array) -> jax.Array:
    """(E[w_k], E[w_k²]) of the tilted distribution (3.110, 3.112), with Z Σa = Σ_j p_j a_j put in."""
    first = cavity / weighted * (p + weighted) / (1.0 + total)
    second = (cavity + 1.0) * cavity / weighted * (2.0 * p + weighted) / ((1.0 + total) * (2.0 + total))
    return jnp.concatenate([first, second])
