"""q over the d weights of a linear model whose site i sees wᵀxᵢ: the weight form (thesis 5.3).

    precision Λ = prior precision + Xᵀ diag(τ) X,    covariance Λ⁻¹,    mean = Λ⁻¹ (prior shift + Xᵀν).

A window of sites sees N(X_S mean, X_S covariance X_Sᵀ), and what it absorbs moves mean and covariance by one update of
rank |S|: O(n d²) per sweep, in matrix products. A pass is a function of (q, rows, sites), so rows may be streamed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from cavity._numerics.blocked import cholesky, gaussian_log_density, solve_triangular
from cavity.posteriors import windows
from cavity.posteriors.base import Coordinates, Equations
from cavity.posteriors.windows import Absorbed, Window, WindowedPosterior


class WeightPrior(NamedTuple):
    """w ~ N(mean, precision⁻¹) with shift = precision · mean, and the rows xᵢ the sites look along."""

    rows: jax.Array
    shift: jax.Array
    precision: jax.Array


class Weights(NamedTuple):
    """q(w) = N(mean, covariance); log_partition: log normaliser up to (2π)^{d/2}."""

    mean: jax.Array
    covariance: jax.Array
    log_partition: jax.Array
    proper: jax.Array


def weights(shift: jax.Array, precision: jax.Array) -> Weights:
    """The Gaussian with these natural parameters."""
    lower = cholesky(precision)
    inverse = solve_triangular(lower, jnp.eye(shift.size))
    mean = inverse.T @ (inverse @ shift)
    log_partition = 0.5 * shift @ mean - jnp.sum(jnp.log(jnp.diagonal(lower)))
    return Weights(mean, inverse.T @ inverse, log_partition, jnp.isfinite(log_partition))


#: sites in a window
WINDOW = 32
#: numbers, sites times statistics of the weights, up to which the linear equations of all sites are solved
LARGEST_BASIS = 50_000_000


@dataclass(frozen=True)
class WeightGaussian(WindowedPosterior):
    """q over the weights of a linear model, mean and covariance. Site i of every group sees the latent wᵀxᵢ.

    Examples:
        >>> import cavity as cv
        >>> model = cv.models.latent_gaussian([1.0, -1.0, 1.0], cv.factors.Probit(), X=[[1, 0], [-1, 0.5], [0.5, 1]])
        >>> model.problem().posterior
        WeightGaussian()
        >>> solution = cv.infer(model)
        >>> solution.mean.shape, solution.latent_mean.shape
        ((2,), (3,))
    """

    variable: ClassVar[str] = "weights"

    def refresh(self, prior: WeightPrior, groups: tuple[tuple[Any, jax.Array], ...]) -> Weights:
        _, sites = zip(*groups, strict=True)
        nu, tau = jnp.sum(jnp.stack(sites), axis=0).T
        return weights(prior.shift + prior.rows.T @ nu, prior.precision + prior.rows.T @ (tau[:, None] * prior.rows))

    def flat(self, prior: WeightPrior) -> Weights:
        return weights(prior.shift, prior.precision)

    def marginals(self, prior: WeightPrior, q: Weights, scope: Any, index: jax.Array) -> jax.Array:
        rows = prior.rows[index]
        precision = 1.0 / jnp.sum((rows @ q.covariance) * rows, axis=1)
        return jnp.stack([rows @ q.mean * precision, precision], axis=-1)

    def window_sizes(self, size: int, block: int) -> tuple[int, ...]:
        return (WINDOW,)

    def open(self, prior: WeightPrior, passed: Weights, scope: Any, number: jax.Array, index: jax.Array) -> Window:
        rows = prior.rows[index]
        reach = passed.covariance @ rows.T
        return windows.open_window(rows @ passed.mean, rows @ reach, reach)

    def close(self, passed: Weights, number: jax.Array, window: Window | Absorbed) -> Weights:
        if isinstance(window, Absorbed):
            columns = windows.absorbed_columns(window)
            return passed._replace(
                mean=passed.mean + window.reach @ window.moves,
                covariance=passed.covariance - (columns * window.signs) @ columns.T,
            )
        spread = windows.update_columns(window)
        return passed._replace(
            mean=passed.mean + spread @ window.moves, covariance=passed.covariance - (spread * window.gains) @ spread.T
        )

    def can_solve(self, prior: WeightPrior, sites: int) -> bool:
        return sites * basis_size(prior.rows.shape[1]) <= LARGEST_BASIS

    def solve(self, prior: WeightPrior, q: Weights, groups: tuple[Equations, ...]) -> tuple[jax.Array, ...]:
        return solve_in_basis(prior.rows @ cholesky(q.covariance), groups)

    def is_valid(self, q: Any) -> jax.Array:
        return self.flat(q).proper if isinstance(q, WeightPrior) else q.proper

    def log_partition(self, q: Any) -> jax.Array:
        return self.flat(q).log_partition if isinstance(q, WeightPrior) else q.log_partition

    def divergence(self, prior: WeightPrior, q: Weights) -> jax.Array:
        """½ (tr(P Σ) − d + (m − m₀)ᵀ P (m − m₀) − log |P Σ|), P the prior precision and m₀ its mean."""
        before, after = cholesky(prior.precision), cholesky(q.covariance)
        spread = before.T @ after
        gap = before.T @ q.mean - solve_triangular(before, prior.shift[:, None])[:, 0]
        log_det = jnp.sum(jnp.log(jnp.diagonal(before) * jnp.diagonal(after)))
        return 0.5 * (jnp.sum(spread**2) - gap.size + gap @ gap) - log_det

    def views(self, prior: WeightPrior, q: Weights) -> dict[str, Callable[[], jax.Array]]:
        return {
            "mean": lambda: q.mean,
            "covariance": lambda: q.covariance,
            "variance": lambda: jnp.diagonal(q.covariance),
            "latent_mean": lambda: prior.rows @ q.mean,
            "latent_variance": lambda: jnp.sum((prior.rows @ q.covariance) * prior.rows, axis=1),
        }

    def sample(self, key: jax.Array, prior: WeightPrior, q: Weights, draws: int) -> jax.Array:
        noise = jax.random.normal(key, (draws, q.mean.size), dtype=float)
        return q.mean + noise @ cholesky(q.covariance).T

    def log_density(self, prior: WeightPrior, q: Weights, x: Any) -> jax.Array:
        return gaussian_log_density(q.mean, q.covariance, x)

    def factor_arguments(self, prior: WeightPrior, scope: Any, index: jax.Array, x: jax.Array) -> jax.Array:
        return prior.rows[index] @ x

    def coordinates(self, prior: WeightPrior, q: Weights) -> Coordinates:
        """With precision = L Lᵀ the prior's covariance is L⁻ᵀ L⁻¹: w = mean + L⁻ᵀ z, z = Lᵀ (w − mean)."""
        lower = cholesky(prior.precision)
        centre = self.flat(prior).mean
        root = solve_triangular(lower, jnp.eye(centre.size)).T
        return Coordinates(centre, root, lower.T @ (q.mean - centre), lower.T @ q.covariance @ lower)


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
            right = right.at[ends[i]].add(bases[i].T @ (group.multiplicity * gap[:, i, 0]))
            for j in range(2):
                weighted = (group.multiplicity * mixing[:, i, j])[:, None] * bases[j]
                matrix = matrix.at[ends[i], ends[j]].add(bases[i].T @ weighted)
    y = jnp.linalg.solve(matrix, right)
    moved = jnp.stack([basis @ y[end] for basis, end in zip(bases, ends, strict=True)], axis=-1)
    return tuple(gap - jnp.einsum("ijk,ik->ij", mixing, moved) for mixing, gap in solved)
