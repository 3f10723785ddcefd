"""q in one family; every site acts on all of it, or on one part of a product family.

A cavity is q without a site. Where nearly all that q knows is from that site, as under a prior wider than it by more
than floating point can hold, the difference has no digits. So q is a sum and what rounding left out of it, from which a
cavity has as many digits as prior and other sites have.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cavity._numerics.blocked import cholesky, solve_triangular
from cavity._numerics.sums import sum_with_rest, two_sum
from cavity.families.base import Family
from cavity.families.gaussian import Gaussian, VectorGaussian
from cavity.families.product import Product
from cavity.posteriors.base import Coordinates, Equations, Posterior


class Total(NamedTuple):
    """Natural parameters of q as they are rounded, and what rounding left out."""

    eta: jax.Array
    rest: jax.Array


def rounded(q: Any) -> jax.Array:
    """q as a vector of natural parameters; a prior, or what a solution keeps, is one."""
    return q.eta if isinstance(q, Total) else jnp.asarray(q)


@dataclass(frozen=True)
class Shared(Posterior):
    """q is one natural parameter vector. A group's scope is None, or the (start, stop) of its part of the vector.

    Attributes:
        family: of q, and of every site's message where a group's scope is None.

    Examples:
        >>> import cavity as cv
        >>> problem = cv.models.clutter([[0.8, 1.6], [2.1, 0.3]], covariance="diagonal")
        >>> problem.posterior
        Shared(family=DiagonalGaussian(dimension=2))
    """

    family: Family

    def refresh(self, prior: Any, groups: tuple[tuple[Any, jax.Array], ...]) -> Total:
        eta = jnp.asarray(prior, float)
        q = Total(eta, jnp.zeros_like(eta))
        for scope, sites in groups:
            q = self.absorb(q, scope, jnp.arange(sites.shape[0]), sites)
        return q

    def marginals(self, prior: Any, q: Any, scope: Any, index: jax.Array) -> jax.Array:
        return self.local(q, scope, index)

    def local(self, window: Any, scope: Any, place: jax.Array) -> jax.Array:
        part = part_of(rounded(window), scope)
        return jnp.broadcast_to(part, (*place.shape, *part.shape))

    def absorb(self, window: Total, scope: Any, place: jax.Array, change: jax.Array) -> Total:
        total, left = sum_with_rest(change)
        eta, lost = two_sum(part_of(window.eta, scope), total)
        rest = part_of(window.rest, scope) + (lost + left)
        if scope is None:
            return Total(eta, rest)
        part = slice(*scope)
        return Total(window.eta.at[part].set(eta), window.rest.at[part].set(rest))

    def local_cavities(
        self, window: Any, scope: Any, place: jax.Array, removed: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        seen = self.local(window, scope, place)
        if not isinstance(window, Total):
            return seen, seen - removed
        left, lost = two_sum(seen, -removed)
        return seen, left + (lost + part_of(window.rest, scope))

    def cavities(
        self, prior: Any, q: Any, scope: Any, index: jax.Array, removed: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        return self.local_cavities(q, scope, index, removed)

    def kept(self, q: Total) -> jax.Array:
        return rounded(q)

    def restored(self, prior: Any, kept: Any, groups: tuple[tuple[Any, jax.Array], ...]) -> Total:
        return self.refresh(prior, groups)

    def can_solve(self, prior: Any, sites: int) -> bool:
        return True

    def solve(self, prior: Any, q: Any, groups: tuple[Equations, ...]) -> tuple[jax.Array, ...]:
        """Through the change y = Σ w x of q: (I + Σ w D⁺ M F) y = Σ w D⁺ g, then x = D⁺ (g − M F y).

        D⁺ is the pseudo-inverse: log weights of a categorical variable are known up to a constant only.
        """
        q = rounded(q)
        fisher = jax.jacfwd(lambda x: self.family.local_moments(q, q + self.family.from_local(q, x)))(
            jnp.zeros(self.family.local_size)
        )
        inverses = [jnp.linalg.pinv(group.own, hermitian=True) for group in groups]
        matrix, right = jnp.eye(self.family.local_size), jnp.zeros(self.family.local_size)
        for group, inverse in zip(groups, inverses, strict=True):
            part = self.local_part(group.scope)
            weighted = group.multiplicity[:, None, None] * (inverse @ group.mixing)
            matrix = matrix.at[part].add(jnp.sum(weighted, axis=0) @ fisher[part])
            right = right.at[part].add(jnp.einsum("i,ijk,ik->j", group.multiplicity, inverse, group.right))
        moved = fisher @ jnp.linalg.solve(matrix, right)
        return tuple(
            jnp.einsum("ijk,ik->ij", inverse, group.right - group.mixing @ moved[self.local_part(group.scope)])
            for group, inverse in zip(groups, inverses, strict=True)
        )

    def local_part(self, scope: Any) -> slice:
        """Where a group's part of the vector lies in local coordinates."""
        if scope is None or not isinstance(self.family, Product):
            return slice(None)
        pairs = zip(self.family.families, self.family.slices, strict=True)
        sizes = [(family.local_size, part) for family, part in pairs]
        start = sum(size for size, part in sizes if part.stop <= scope[0])
        return slice(start, start + sum(size for size, part in sizes if scope[0] <= part.start < scope[1]))

    def is_valid(self, q: Any) -> jax.Array:
        return self.family.is_proper(rounded(q))

    def log_partition(self, q: Any) -> jax.Array:
        return self.family.log_partition(rounded(q))

    def log_mass(self, prior: Any) -> jax.Array:
        return jnp.zeros(())

    def divergence(self, prior: Any, q: Any) -> jax.Array | None:
        return None if self.family.cavities_proper else self.family.kl(rounded(q), jnp.asarray(prior, float))

    def views(self, prior: Any, q: Any) -> dict[str, Callable[[], jax.Array]]:
        q = rounded(q)
        own = {name: partial(lambda value: value, value) for name, value in self.family.views(q).items()}
        return {"mean": lambda: self.family.mean(q), "covariance": lambda: self.family.covariance(q), **own}

    def sample(self, key: jax.Array, prior: Any, q: Any, draws: int) -> jax.Array:
        return self.family.sample(key, rounded(q), (draws,))

    def log_density(self, prior: Any, q: Any, x: Any) -> jax.Array:
        return self.family.log_density(rounded(q), x)

    def factor_arguments(self, prior: Any, scope: Any, index: jax.Array, x: Any) -> Any:
        part = x if scope is None or not isinstance(self.family, Product) else select_part(self.family, scope, x)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*index.shape, *jnp.shape(leaf))), part)

    def coordinates(self, prior: Any, q: Any) -> Coordinates | None:
        if not isinstance(self.family, Gaussian | VectorGaussian):
            return None
        q = rounded(q)
        centre, gap = self.family.mean(prior), self.family.mean(q) - self.family.mean(prior)
        root = cholesky(jnp.atleast_2d(self.family.covariance(prior)))
        half = solve_triangular(root, jnp.atleast_2d(self.family.covariance(q)))
        mean = solve_triangular(root, jnp.atleast_1d(gap)[:, None])[:, 0]
        return Coordinates(centre, root, mean, solve_triangular(root, half.T))


def part_of(vector: jax.Array, scope: tuple[int, int] | None) -> jax.Array:
    """A group's part of the vector."""
    return vector if scope is None else vector[scope[0] : scope[1]]


def select_part(family: Product, scope: tuple[int, int], x: tuple[Any, ...]) -> Any:
    """The entries of a value whose natural parameters lie in the scope; alone where it is one."""
    held = [own for part, own in zip(family.slices, x, strict=True) if scope[0] <= part.start and part.stop <= scope[1]]
    return held[0] if len(held) == 1 else tuple(held)
