"""How scalar Gaussian sites on jointly Gaussian latents respond to each other.

In local coordinates the statistics of latent i are (u, −u²/2), u = (f − mean)/sd, and with the correlations ρ of q

    Cov(uᵢ, uⱼ) = ρᵢⱼ,    Cov(uᵢ²/2, uⱼ²/2) = ρᵢⱼ²/2,    Cov(uᵢ, uⱼ²/2) = 0.
"""

import jax
import jax.numpy as jnp

from cavity.posteriors.base import Equations

#: sites up to which the dense system, 2 × 2 numbers for each pair of sites, is solved
LARGEST = 3000


def solve_dense(covariance: jax.Array, groups: tuple[Equations, ...]) -> tuple[jax.Array, ...]:
    """The equations of all groups, site i of each on latent i, by one factorisation of a dense matrix."""
    root = jnp.sqrt(jnp.diagonal(covariance))
    rho = covariance / (root[:, None] * root)
    couplings = (rho, 0.5 * rho**2)
    size = rho.shape[0]
    rows = []
    for number, group in enumerate(groups):
        for i in range(2):
            row = [group.mixing[:, i, j, None] * couplings[j] * other.copies for other in groups for j in range(2)]
            for j in range(2):
                place = 2 * number + j
                row[place] = row[place] + jnp.diag(group.own[:, i, j])
            rows.append(jnp.concatenate(row, axis=1))
    right = jnp.concatenate([group.right.T.ravel() for group in groups])
    found = jnp.linalg.solve(jnp.concatenate(rows), right).reshape(len(groups), 2, size)
    return tuple(jnp.moveaxis(own, 0, -1) for own in found)
