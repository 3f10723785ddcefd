"""Unknown weights of a mixture of known densities (thesis 3.3)."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64, is_traced
from cavity.factors.probabilities import Mixture
from cavity.families import Dirichlet
from cavity.inference.problem import Problem, SiteGroup
from cavity.moments.closed_form import ClosedForm
from cavity.posteriors.shared import Shared


@float64
def mixture_weights(densities: Any, prior: Any = 1.0) -> Problem:
    """p(x | w) = Σ_k w_k p_k(x) with w ~ Dirichlet(prior) (3.79–3.82, the prior normalised for every K).

    Args:
        densities: (n, K), the values p_k(x_i).
        prior: one concentration for all components, or K of them.
    """
    table = checks.array("densities", densities, (2,))
    components = table.shape[1]
    if components < 2:
        raise ValueError(f"densities must have at least two columns, one a component; found {components}.")
    if not is_traced(table):
        if (table < 0).any():
            raise ValueError(f"densities must not be negative; found {table[table < 0][0]}.")
        empty = np.flatnonzero(table.max(axis=1) == 0)
        if empty.size:
            raise ValueError(f"densities must have a positive entry in every row; row {empty[0]} is all zero.")
    concentration = checks.array("prior", prior, (0, 1))
    if concentration.shape not in ((), (components,)):
        raise ValueError(f"prior must be a number or {components} numbers; found shape {concentration.shape}.")
    if not is_traced(concentration) and not (concentration > 0).all():
        raise ValueError(f"prior must be positive; found {concentration.min()}.")
    family = Dirichlet(components)
    if is_traced(table):
        log_densities = jnp.log(table)
    else:
        with np.errstate(divide="ignore"):
            log_densities = np.log(table)
    group = SiteGroup(factor=Mixture(), data=log_densities, family=family, moments=ClosedForm())
    start = jnp.broadcast_to(jnp.asarray(concentration, float), (components,))
    return Problem(prior=start, groups=(group,), posterior=Shared(family))
