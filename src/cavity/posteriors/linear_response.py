"""How scalar Gaussian sites on jointly Gaussian latents respond to each other.

In local coordinates the statistics of latent i are (u, −u²/2), u = (f − mean)/sd, and with the correlations ρ of q

    Cov(uᵢ, uⱼ) = ρᵢⱼ,    Cov(uᵢ²/2, uⱼ²/2) = ρᵢⱼ²/2,    Cov(uᵢ, uⱼ²/2) = 0.
"""

import jax
import jax.numpy as jnp

from cavity.posteriors.base import Equations

#: sites up to which the dense system, 2 × 2 numbers for each pair of sites, is solved
LARGEST = 3000
#: numbers, sites times statistics of the weights, up to which the system of a linear model is solved
LARGEST_BASIS = 50_000_000


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


def basis_size(dimension: int) -> int:
    """Statistics of that many weights: themselves and their products."""
    return dimension + dimension * (dimension + 1) // 2


def solve_in_basis(rows: jax.Array, groups: tuple[Equations, ...]) -> tuple[jax.Array, ...]:
    """The equations where latent i is rowsᵢ·v with v ~ N(0, I) under q, however many sites there are.

    With unit vectors a along the rows, u = a·v and −u²/2 = b·s up to a constant, where s are the uncorrelated
    statistics v_k v_l and (v_k² − 1)/√2, so that b = (−a_k a_l, −a_k²/√2). Both kinds of statistics are B v' in a basis
    v' of unit covariance, F = B Bᵀ, and y = Σ w Bᵀ x solves (I + Σ w Bᵀ D⁻¹ M B) y = Σ w Bᵀ D⁻¹ g.
    """
    a = rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
    first, second = jnp.triu_indices(rows.shape[1])
    b = -a[:, first] * a[:, second] * jnp.where(first == second, 0.5**0.5, 1.0)
    bases = (a, b)
    ends = (slice(None, a.shape[1]), slice(a.shape[1], None))
    matrix, right = jnp.eye(basis_size(rows.shape[1])), jnp.zeros(basis_size(rows.shape[1]))
    solved = []
    for group in groups:
        mixing, gap = jnp.linalg.solve(group.own, group.mixing), jnp.linalg.solve(group.own, group.right[..., None])
        solved.append((mixing, gap[..., 0]))
        for i in range(2):
            right = right.at[ends[i]].add(bases[i].T @ (group.copies * gap[:, i, 0]))
            for j in range(2):
                weighted = (group.copies * mixing[:, i, j])[:, None] * bases[j]
                matrix = matrix.at[ends[i], ends[j]].add(bases[i].T @ weighted)
    y = jnp.linalg.solve(matrix, right)
    moved = jnp.stack([basis @ y[end] for basis, end in zip(bases, ends, strict=True)], axis=-1)
    return tuple(gap - jnp.einsum("ijk,ik->ij", mixing, moved) for mixing, gap in solved)
