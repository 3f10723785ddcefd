"""Quadrature over two or three variables of mixed families, each on its own line."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cavity._numerics.product_quadrature import integrate_product
from cavity._numerics.quadrature import Integral, Place
from cavity.families.base import Family, Tilted
from cavity.families.gaussian import LOG_2PI, Gaussian
from cavity.families.product import Product
from cavity.families.standardised import (
    Frame,
    Line,
    cavity_statistics,
    is_unconstrained,
    line,
    match_line_moments,
    matches_squares,
    tilted,
    whiten,
    whitened_moments,
)
from cavity.moments.base import Info

#: points per axis by default
ORDERS = {2: 65, 3: 41}
#: ends of the axes, in units of the spread: the logarithm of a Gamma variable falls off exponentially only
REACH = 20.0


class Straight(NamedTuple):
    """A Gaussian variable in its own units."""

    family: Any
    frame: Frame

    @property
    def place(self) -> Place:
        """Of x on the line of u."""
        return self.frame.mean[0], self.frame.root[0, 0]

    def value(self, u: jax.Array) -> jax.Array:
        """x as the factor sees it."""
        return self.frame.value(u[None])[0]

    def log_density(self, u: jax.Array) -> jax.Array:
        """Of the cavity, in u."""
        return -0.5 * (u**2 + LOG_2PI)

    def match(self, rule: Integral, slopes: jax.Array, surprise: jax.Array) -> tuple[jax.Array, ...]:
        """Statistics and message from weighted points; the statistics of a constant factor."""
        column = rule._replace(nodes=rule.nodes[:, None])
        said = tilted(self.family, self.frame, rule.log_z, *whitened_moments(column, slopes[:, None], self.frame))
        return said.stats, said.site, jnp.zeros(2)


class Curved(NamedTuple):
    """A Beta, Gamma or two-component Dirichlet variable on its line; an improper cavity has a stand-in."""

    family: Any
    cavity: jax.Array
    own: Line

    @property
    def place(self) -> Place:
        """Of the coordinate on the line of u."""
        return self.own.centre, self.own.scale

    def value(self, u: jax.Array) -> jax.Array:
        """x as the factor sees it."""
        return self.own.value(u)

    def log_density(self, u: jax.Array) -> jax.Array:
        """Of the cavity, in u."""
        return self.own.log_density(u)

    def match(self, rule: Integral, slopes: jax.Array, surprise: jax.Array) -> tuple[jax.Array, ...]:
        """Statistics and message from weighted points; the statistics of a constant factor."""
        heard = match_line_moments(self.family, self.cavity, self.own, rule.nodes, rule.log_weights, surprise)
        return *heard, cavity_statistics(self.family, self.cavity)


def is_joint(family: Family) -> bool:
    """Whether the family is a product of two or three variables that `joint` integrates."""
    if not isinstance(family, Product) or len(family.families) not in ORDERS:
        return False
    return all(
        isinstance(own, Gaussian) or (is_unconstrained(own) and not matches_squares(own)) for own in family.families
    )


def joint(
    log_factor: Callable[[Any], jax.Array], family: Product, cavity: jax.Array, order: int
) -> tuple[Tilted, Info]:
    """Moments of a factor of several variables times its cavities, by a product rule with `order` points per axis.

    Each message follows from the weighted points alone: those to Gaussian variables through moments or slopes in their
    own direction, Beta and Gamma ones through the changes of their expected statistics, whichever keeps more digits.
    """
    slots = [slot(own, piece) for own, piece in zip(family.families, family.parts(cavity), strict=True)]
    proper = family.is_proper(cavity)

    def log_t(u: jax.Array) -> jax.Array:
        return log_factor(tuple(own.value(u[k]) for k, own in enumerate(slots)))

    def log_cavity(u: jax.Array) -> jax.Array:
        return jnp.sum(jnp.stack([own.log_density(u[k]) for k, own in enumerate(slots)]))

    centres, scales = (jnp.stack(part) for part in zip(*(own.place for own in slots), strict=True))
    rule = integrate_product(log_t, log_cavity, len(slots), order, (centres, jnp.diag(scales)), REACH)
    found = proper & (rule.log_z > -jnp.inf)
    values, slopes = jax.vmap(jax.value_and_grad(log_t))(rule.nodes)
    answers = [
        own.match(rule._replace(nodes=rule.nodes[:, k]), slopes[:, k], values - rule.log_z)
        for k, own in enumerate(slots)
    ]
    stats, site, silent = (jnp.concatenate(part) for part in zip(*answers, strict=True))
    result = Tilted(
        jnp.where(found, rule.log_z, -jnp.inf), jnp.where(found, stats, silent), jnp.where(found, site, 0.0)
    )
    return result, {"error": jnp.where(found, rule.error, jnp.inf)}


def slot(family: Any, cavity: jax.Array) -> Straight | Curved:
    """A variable on its line, so that nothing downstream of an improper cavity is NaN."""
    if isinstance(family, Gaussian):
        return Straight(family, whiten(family, cavity))
    safe = jnp.where(family.is_proper(cavity), cavity, 1.0)
    return Curved(family, safe, line(family, safe))
