"""Integration of two or three variables by a product rule in log space, inside `jit` and `vmap`.

`integrate_product` takes a rule that moves to where the mass is. Coordinates z in which the mass is expected near 0
with spread about 1. Each axis carries the trapezoidal rule in t with z = sinh(s t)/s, which converges faster than any
power for analytic integrands and keeps points far out for heavy tails. A coarse grid first finds the mean and
covariance of the mass, round by round (`LOCATE`); then a fine one, centred there and shaped by the Cholesky factor of
that covariance, integrates. Every second and every fourth point of the fine grid give two coarser answers, and from
them the error.

What can be missed: mass, or a region where the factor is not known, that is narrow compared with the coarse grid and
not visible from its flanks. Kinks and jumps are integrated to about 1/order², 1/order only, which the reported error
shows.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._numerics.quadrature import Integral, LogDensity, Place, in_place, known_product, unmoved, with_unknown

#: rounds of the search; reach, in units of the current spread, and stretch s of its grid and of the final one
LOCATE = 16
LOCATE_REACH, LOCATE_STRETCH = 50.0, 1.0
REACH, STRETCH = 12.0, 0.6
#: points per axis of the search, by dimension
LOCATE_ORDER = {2: 17, 3: 13}


class Grid(NamedTuple):
    """A product grid: points (N, d), log weights (N,), squared spacing of points per axis (N, d), index per axis."""

    points: np.ndarray
    log_weights: np.ndarray
    spacing: np.ndarray
    axis_index: np.ndarray


def sinh_grid(dimension: int, order: int, reach: float, stretch: float) -> Grid:
    """z = sinh(stretch t)/stretch per axis, t equally spaced, |z| ≤ reach."""
    end = np.arcsinh(stretch * reach) / stretch
    t, step = np.linspace(-end, end, order, retstep=True)
    index = np.stack(np.meshgrid(*[np.arange(order)] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    gap = step * np.cosh(stretch * t)
    return Grid((np.sinh(stretch * t) / stretch)[index], np.sum(np.log(gap)[index], axis=-1), gap[index] ** 2, index)


def evaluations(dimension: int, order: int) -> int:
    """Evaluations of log_f by one `integrate_product`."""
    return LOCATE * LOCATE_ORDER[dimension] ** dimension + order**dimension


def normalise(log_terms: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(log of the sum, weights that sum to one); −inf and zeros where there is no mass."""
    log_z = jax.nn.logsumexp(log_terms)
    found = log_z > -jnp.inf
    return log_z, jnp.where(found, jnp.exp(log_terms - jnp.where(found, log_z, 0.0)), 0.0)


def integrate_product(
    log_t: LogDensity, log_p: LogDensity, dimension: int, order: int, place: Place, reach: float = REACH
) -> Integral:
    """∫ t(z) p(z) dz for z of length `dimension`; log Z is −inf where t is NaN or +∞ and it may matter.

    order: 4k + 1 points per axis.
    place: of t, a function of x = centre + scale z, scale a lower triangular matrix.
    reach: of the final grid's axes, in units of the mass's spread.
    """
    product = known_product(log_t, log_p)

    def search(_round: jax.Array, frame: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        centre, root, log_unknown = frame
        # The frame carries no derivative: any frame integrates the same function.
        values, unknown = jax.lax.stop_gradient(jax.vmap(product)(centre + jnp.asarray(coarse.points) @ root.T))
        log_unknown = jnp.maximum(log_unknown, jnp.max(unknown))
        _, weights = normalise(values + jnp.asarray(coarse.log_weights))
        mean = weights @ coarse.points
        deviation = coarse.points - mean
        # Mass that one point sees is spread over about a quarter of its spacing either way.
        blur = jnp.diag(weights @ coarse.spacing) / 16.0
        factor = jnp.linalg.cholesky((weights[:, None] * deviation).T @ deviation + blur)
        usable = jnp.all(jnp.isfinite(factor)) & (jnp.sum(weights) > 0)
        return jnp.where(usable, centre + root @ mean, centre), jnp.where(usable, root @ factor, root), log_unknown

    coarse = sinh_grid(dimension, LOCATE_ORDER[dimension], LOCATE_REACH, LOCATE_STRETCH)
    start = (jnp.zeros(dimension), jnp.eye(dimension), jnp.asarray(-jnp.inf))
    centre, root, log_unknown = jax.lax.fori_loop(0, LOCATE, search, start)
    fine = sinh_grid(dimension, order, reach, STRETCH)
    nodes = in_place(centre + jnp.asarray(fine.points) @ root.T, *place)
    log_f, unknown = jax.vmap(product)(nodes)
    values = log_f + jnp.asarray(fine.log_weights)
    # The grid keeps its volume in x.
    log_det = jnp.sum(jnp.log(jnp.diagonal(root))) - unmoved(jnp.sum(jnp.log(jnp.diagonal(place[1]))))

    answers = []
    for stride in (4, 2, 1):
        kept = np.all(fine.axis_index % stride == 0, axis=-1)
        log_z, weights = normalise(values[kept])
        mean = weights @ fine.points[kept]
        deviation = fine.points[kept] - mean
        second = (weights[:, None] * deviation).T @ deviation
        log_z = log_z + dimension * np.log(stride)
        answers.append(jnp.concatenate([jnp.nan_to_num(log_z)[None], mean, second.ravel()]))
    last, previous = jnp.max(jnp.abs(answers[2] - answers[1])), jnp.max(jnp.abs(answers[1] - answers[0]))
    # The error shrinks by at least the same factor once more: a quarter for a kink, its own square when analytic.
    border = jnp.sum(jnp.where(np.any((fine.axis_index == 0) | (fine.axis_index == order - 1), axis=-1), weights, 0.0))
    error = last * jnp.minimum(1.0, last / jnp.maximum(previous, jnp.finfo(float).tiny)) + border
    rounding = jnp.finfo(float).eps * (1.0 + jnp.sum(weights * jnp.where(weights > 0, jnp.abs(values), 0.0)))
    log_weights = jnp.log(weights)
    log_z = with_unknown(
        log_z + log_det, jax.vmap(log_t)(nodes), log_weights, jnp.maximum(log_unknown, jnp.max(unknown))
    )
    error = jnp.where(log_z > -jnp.inf, error + rounding, jnp.inf)
    return Integral(nodes, log_weights, log_z, error)
