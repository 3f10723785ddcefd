"""Billiards: the Bayes point as the centre of mass of a ball that bounces among the separators (thesis 5.8)."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64
from cavity.baselines.billiards.rules import RULES, Ball, Rule, fly_inside_ball, on_sphere
from cavity.baselines.billiards.walls import starting_point, walls

#: a ball inside the sphere starts at this distance from the centre
INSIDE = 0.5


class Play(NamedTuple):
    """The Bayes point as a direction, and how sure the trajectories are of it.

    Attributes:
        direction: of unit length; over the weights, or over an orthonormal basis of the points' span with a kernel
            matrix.
        alpha: with a kernel matrix the same as weights of the points, f(x) = k(x, X) alpha; else None.
        error: standard error of the direction, a length, from the spread of the trajectories; nan for a single one.
        bounces: after how many bounces of each ball the trace was written.
        trace: (written, trajectories, d), the direction each trajectory had found by then.
        trace_error: standard error of all together by then.
        escapes: share of flights that met no wall.

    Examples:
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> found = baselines.billiard([[1.0, 0.2], [0.1, 1.0]], [1, 1], bounces=200)
        >>> found.direction.shape, found.alpha
        ((2,), None)
    """

    direction: np.ndarray
    alpha: np.ndarray | None
    error: float
    bounces: np.ndarray
    trace: np.ndarray
    trace_error: np.ndarray
    escapes: float


@float64
def billiard(
    X: Any = None,
    y: Any = None,
    *,
    kernel_matrix: Any = None,
    rule: Rule = "inside",
    bounces: int = 10_000,
    trajectories: int = 8,
    randomise: int = 100,
    start: Any = None,
    seed: int = 0,
    written: int = 20,
) -> Play:
    """The centre of mass of all separators of (X, y), or of a kernel matrix and y.

    Args:
        X: (n, d), with a column of ones where a bias is wanted.
        y: labels −1 and +1.
        kernel_matrix: (n, n), in place of X.
        rule: "inside" the sphere, or "rujan" and "herbrich", which let balls escape.
        bounces: of every ball.
        trajectories: independent balls from the same start.
        randomise: "inside" gives the ball a new velocity after so many bounces.
        start: any separator, as weights, or as weights of the points with a kernel matrix; by default one found by
            linear programming, which also finds out that there is none.
        seed: of all velocities.
        written: how often the estimate is noted on the way, at equal steps of the logarithm.

    Returns:
        The direction of the centre of mass, with its error and trace.

    Raises:
        ValueError: if the data are not separable, or an argument is out of range.

    Examples:
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> found = baselines.billiard([[1.0, 0.2], [0.1, 1.0]], [1, 1], bounces=200)
        >>> bool(found.direction[0] > 0 and found.direction[1] > 0)
        True
    """
    checks.choice("rule", rule, RULES)
    for name, value in (("bounces", bounces), ("trajectories", trajectories), ("randomise", randomise)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1; found {value}.")
    pool = walls(X, y, kernel_matrix)
    if start is not None and pool.basis is not None:
        start = pool.basis.T @ (np.asarray(kernel_matrix, float) @ np.asarray(start, float))
    first = starting_point(pool.normals, start)
    keys = jax.random.split(jax.random.key(seed), trajectories)
    normals, place = jnp.asarray(pool.normals), jnp.asarray(first)
    balls = _launch(rule, place, keys)
    stops = np.unique(np.rint(np.geomspace(bounces, min(10, bounces), written)).astype(int))
    seen = []
    for stop in stops:
        balls = _play(rule, normals, place, keys, balls, stop, randomise)
        seen.append((np.asarray(balls.moment), np.asarray(balls.length)))
    trace = np.stack([moment / np.linalg.norm(moment, axis=1, keepdims=True) for moment, _ in seen])
    errors = np.array([pooled(*each)[1] for each in seen])
    direction, error = pooled(*seen[-1])
    escapes = float(np.sum(balls.escapes) / np.sum(balls.flights))
    return Play(direction, pool.alpha(direction), error, stops, trace, errors, escapes)


def pooled(moment: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, float]:
    """The direction of m = Σ moments / Σ lengths, and its standard error across the trajectories.

    To first order the error of the ratio is that of Σ (moment − m length); only what is across m turns the direction.
    """
    mean = moment.sum(axis=0) / length.sum()
    size = np.linalg.norm(mean)
    direction = mean / size
    if len(moment) == 1:
        return direction, float("nan")
    gaps = (moment - length[:, None] * mean) / length.mean()
    gaps -= np.outer(gaps @ direction, direction)
    return direction, float(np.sqrt(np.sum(gaps**2) / (len(gaps) * (len(gaps) - 1))) / size)


@functools.partial(jax.jit, static_argnums=0)
def _launch(rule: Rule, start: jax.Array, keys: jax.Array) -> Ball:
    """Balls at the start, with random velocities of length 1."""

    def one(key: jax.Array) -> Ball:
        v = jax.random.normal(jax.random.fold_in(key, 0), start.shape)
        w = INSIDE * start if rule == "inside" else start
        zero = jnp.zeros((), int)
        return Ball(w, v / jnp.linalg.norm(v), jnp.zeros_like(start), jnp.zeros(()), zero, zero)

    return jax.vmap(one)(keys)


@functools.partial(jax.jit, static_argnums=0)
def _play(
    rule: Rule, normals: jax.Array, start: jax.Array, keys: jax.Array, balls: Ball, stop: Any, randomise: Any
) -> Ball:
    """All balls moved on until each has made `stop` flights."""
    d = start.size

    def flight(key: jax.Array, ball: Ball) -> Ball:
        noise = jax.random.normal(jax.random.fold_in(key, ball.flights + 1), (d + 2,))
        if rule == "inside":
            return fly_inside_ball(normals, ball, noise, (ball.flights + 1) % randomise == 0)
        return on_sphere(rule, normals, start, ball, noise[:d])

    return jax.lax.while_loop(lambda state: state.flights[0] < stop, lambda state: jax.vmap(flight)(keys, state), balls)
