"""Quadrature: adaptive in one variable, a product rule that follows the mass in two and three."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from cavity._numerics.product_quadrature import evaluations, integrate_product
from cavity._numerics.quadrature import EVALUATIONS, integrate, log_abs
from cavity.factors.base import Factor, evaluate
from cavity.families.base import Family, Tilted
from cavity.families.gaussian import LOG_2PI
from cavity.families.product import Product
from cavity.families.standardised import (
    cavity_statistics,
    dimension,
    is_gaussian,
    is_unconstrained,
    line,
    match_line_moments,
    matches_squares,
    tilted,
    whiten,
    whitened_moments,
)
from cavity.moments.base import ClosedForm, Info, Moments
from cavity.moments.joint import ORDERS as JOINT_ORDERS
from cavity.moments.joint import is_joint, joint

#: dimension up to which a product rule is affordable
LARGEST = 3
#: points per axis by default
ORDERS = {2: 41, 3: 25}


@dataclass(frozen=True)
class Quadrature(Moments):
    """Numerical integration of factor**power × cavity from the factor's log density.

    One variable (Gaussian, Beta, Gamma, Dirichlet of two components): adaptive, about 1e-10, kinks, jumps, bounded
    support and mass thousands of standard deviations away included. Two or three variables (vector Gaussians): `order`
    points per axis, about 1e-9 for smooth factors. Products of two or three single variables: the same with each of
    them on its own line, about 1e-8 (messages of three variables 1e-7), for factors that see a tuple of values.
    `info["error"]` estimates the relative error of log Z and of the moments; it is inf, with log Z = −inf and a flat
    site, where no mass was found. A factor of a Beta variable sees x rounded to double precision, 1 − x no nearer to 0
    than 1e-16; a two-component Dirichlet's sees both weights in full.

    Args:
        order: points per axis in two and three dimensions, 4k + 1; 41 and 25 if not given, 65 and 41 for products,
            which takes some 10 MB per site in three dimensions.
        landmarks: a function of one site's data giving the points x (any fixed number) where the factor jumps or peaks.
            Only needed for features narrower than a twentieth of the cavity's standard deviation that do not show from
            a distance (`cavity._numerics.quadrature` says what can be missed); not used in two and three dimensions.

    Raises:
        ValueError: if order is not 9, 13, 17, …
        TypeError: if landmarks is not a function.

    Examples:
        >>> import cavity as cv
        >>> laplace = cv.factors.from_log_density(lambda x, data: -abs(x - data))
        >>> problem = cv.models.posterior(laplace, [0.3, -1.2], prior_variance=1.0).with_moments(cv.Quadrature())
        >>> print(round(float(cv.infer(problem).mean), 3))
        -0.259
    """

    order: int | None = None
    landmarks: Callable[[Any], jax.Array] | None = None

    def __post_init__(self) -> None:
        if self.order is not None and (not isinstance(self.order, int) or self.order < 9 or self.order % 4 != 1):
            raise ValueError(f"order must be 9, 13, 17, … (4k + 1); found {self.order!r}.")
        if self.landmarks is not None and not callable(self.landmarks):
            raise TypeError(f"landmarks must be a function of a site's data; found {type(self.landmarks).__name__}.")

    def tilt(
        self, state: Any, factor: Factor, family: Family, cavity: jax.Array, data: Any, power: float, key: jax.Array
    ) -> tuple[Tilted, Info]:
        check_has_rule(family)

        def log_factor(x: jax.Array) -> jax.Array:
            return power * evaluate(factor, "log_density", x, data)

        marks = None if self.landmarks is None else jnp.atleast_1d(jnp.asarray(self.landmarks(data), float))
        if isinstance(family, Product):
            return joint(log_factor, family, cavity, self.order or JOINT_ORDERS[len(family.families)])
        if is_gaussian(family):
            return self._gaussian(log_factor, family, cavity, marks)
        return constrained(log_factor, family, cavity, marks)

    def evaluations(self, family: Family) -> int:
        check_has_rule(family)
        if isinstance(family, Product):
            return evaluations(len(family.families), self.order or JOINT_ORDERS[len(family.families)])
        size = dimension(family) if is_gaussian(family) else 1
        return EVALUATIONS if size == 1 else evaluations(size, self.order or ORDERS[size])

    def _gaussian(
        self, log_factor: Callable[[jax.Array], jax.Array], family: Family, cavity: jax.Array, marks: jax.Array | None
    ) -> tuple[Tilted, Info]:
        frame = whiten(family, cavity)
        size = dimension(family)

        def log_t(z: jax.Array) -> jax.Array:
            x = frame.value(z)
            return log_factor(x if family.event_shape else x[0])

        def log_normal(z: jax.Array) -> jax.Array:
            return -0.5 * (jnp.sum(z**2) + size * LOG_2PI)

        if size == 1:
            places = None if marks is None else (jnp.ravel(marks) - frame.mean) / frame.root[0]
            # The site rests on the slopes: they must be resolved where they lie, be it far out in the cavity's tail.
            slopes = jax.grad(log_t)
            place = (frame.mean[0], frame.root[0, 0])
            rule = integrate(lambda u: log_t(u[None]), log_normal, lambda u: log_abs(slopes(u[None])), places, place)
            rule = rule._replace(nodes=rule.nodes[:, None])
        else:
            order = self.order or ORDERS[size]
            rule = integrate_product(log_t, log_normal, size, order, (frame.mean, frame.root))
        mean, spread, change = whitened_moments(rule, jax.vmap(jax.grad(log_t))(rule.nodes), frame)
        error = jnp.where(frame.proper, rule.error, jnp.inf)
        return tilted(family, frame, rule.log_z, mean, spread, change), {"error": error}


def default_moments(factor: Factor) -> Moments:
    """How a factor is integrated by default: its own strategy, else its closed form, else quadrature."""
    closed = factor.closed_forms or factor.log_z is not None
    return factor.default_moments() or (ClosedForm() if closed else Quadrature())


def can_integrate(family: Family) -> bool:
    """Whether there is a rule for the family."""
    return (is_gaussian(family) and dimension(family) <= LARGEST) or is_unconstrained(family) or is_joint(family)


def check_has_rule(family: Family) -> None:
    """Refuse families without a rule."""
    if is_gaussian(family) and dimension(family) > LARGEST:
        raise TypeError(
            f"Quadrature works up to {LARGEST} dimensions; {type(family).__name__} has {dimension(family)}. "
            "Use cavity.Importance(draws=10_000)."
        )
    if not can_integrate(family):
        raise TypeError(
            f"Quadrature integrates Gaussian (up to {LARGEST} dimensions), Beta, Gamma and two-component Dirichlet "
            f"sites, and products of two or three of these variables; found {family!r}. "
            "Use cavity.Enumeration() for discrete variables, else cavity.Importance(draws=10_000)."
        )


def constrained(
    log_factor: Callable[[jax.Array], jax.Array], family: Family, cavity: jax.Array, marks: jax.Array | None
) -> tuple[Tilted, Info]:
    """Expected statistics of a Beta, Gamma or two-component Dirichlet tilted by a factor, in the line's coordinate."""
    proper = family.is_proper(cavity)
    safe = jnp.where(proper, cavity, 1.0)
    coordinate = line(family, safe)
    rule = integrate(
        lambda u: log_factor(coordinate.value(u)),
        coordinate.log_density,
        lambda u: log_abs(coordinate.statistics(u)),
        None if marks is None else coordinate.position(marks),
        (coordinate.centre, coordinate.scale),
    )
    found = proper & (rule.log_z > -jnp.inf)
    if matches_squares(family):
        stats = jnp.exp(rule.log_weights) @ jax.vmap(coordinate.statistics)(rule.nodes)
        message = family.message(safe, stats)
    else:
        surprise = jax.vmap(lambda u: log_factor(coordinate.value(u)))(rule.nodes) - rule.log_z
        stats, message = match_line_moments(family, safe, coordinate, rule.nodes, rule.log_weights, surprise)
    stats = jnp.where(found, stats, cavity_statistics(family, safe))
    site = jnp.where(found, message, 0.0)
    return Tilted(jnp.where(found, rule.log_z, -jnp.inf), stats, site), {"error": jnp.where(found, rule.error, jnp.inf)}
