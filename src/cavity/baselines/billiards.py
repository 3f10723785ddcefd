"""Billiards: the Bayes point as the centre of mass of a ball that bounces among the separators (thesis 5.8).

The pool has a wall for each data point. There are three rules of how a ball moves from one collision to the next:

rujan       on the sphere; a ball that meets no wall starts again from its first place
herbrich    on the sphere; a ball that meets no wall stays and gets a new random velocity
inside      in the ball |w| ≤ 1, whose surface is one more wall; no ball can escape
"""

import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linprog

from cavity._core import checks
from cavity._core.precision import float64

__all__ = ["RULES", "Play", "Rule", "billiard", "separator", "walls"]

Rule = Literal["rujan", "herbrich", "inside"]
RULES: tuple[Rule, ...] = ("rujan", "herbrich", "inside")
#: a ball inside the sphere starts at this distance from the centre
INSIDE = 0.5
#: a margin of unit weights on unit rows below this is none, but rounding of the linear program
TOUCHING = 1e-10


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


class Ball(NamedTuple):
    """Position w, velocity v, Σ z·midpoint and Σ z over flights of length z, how many escaped, how many were made."""

    w: Any
    v: Any
    moment: Any
    length: Any
    escapes: Any
    flights: Any


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


def flight_times(normals: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
    """τᵢ = −dᵢ/vᵢ where the ball comes nearer to wall i, else infinite (5.100–5.102).

    A distance that rounding made negative counts as 0: the wall is hit at once and turns the ball back.
    """
    distance, speed = normals @ w, normals @ v
    return jnp.where(speed < 0, jnp.maximum(distance, 0.0) / jnp.where(speed < 0, -speed, 1.0), jnp.inf)


def reflected(v: jax.Array, normal: jax.Array) -> jax.Array:
    """The velocity after a wall with this unit normal, (5.109) and (5.110)."""
    return v - 2.0 * (normal @ v) * normal


def unit(vector: jax.Array) -> jax.Array:
    """The vector scaled to length 1."""
    return vector / jnp.linalg.norm(vector)


def recorded(ball: Ball, w: jax.Array, v: jax.Array, middle: jax.Array, z: jax.Array, escaped: jax.Array) -> Ball:
    """The ball after a flight (5.107, 5.108)."""
    return Ball(w, v, ball.moment + z * middle, ball.length + z, ball.escapes + escaped, ball.flights + 1)


def on_sphere(rule: Rule, normals: jax.Array, start: jax.Array, ball: Ball, noise: jax.Array) -> Ball:
    """A straight flight to the next wall, projected back onto the sphere; the rebound keeps its velocity (5-14a)."""
    times = flight_times(normals, ball.w, ball.v)
    hit = jnp.argmin(times)
    escaped = jnp.isinf(times[hit])
    w = unit(ball.w + ball.v * jnp.where(escaped, 0.0, times[hit]))
    place = jnp.where(escaped, start if rule == "rujan" else ball.w, w)
    v = jnp.where(escaped, unit(noise), reflected(ball.v, normals[hit]))
    z = jnp.where(escaped, 0.0, jnp.linalg.norm(w - ball.w))
    return recorded(ball, place, v, unit(ball.w + w), z, escaped)


def fly_inside_ball(normals: jax.Array, ball: Ball, noise: jax.Array, redraw: jax.Array) -> Ball:
    """A flight inside the ball |w| ≤ 1 (5-14b); with `redraw` a new velocity by Lambert's law follows the collision.

    Balls that fill the pool evenly arrive at a wall with cos θ dΩ, so only leaving with it as well keeps them even. A
    velocity drawn evenly from all directions, as the thesis reads, would favour what lies along the walls.
    """
    times = flight_times(normals, ball.w, ball.v)
    hit = jnp.argmin(times)
    along = ball.w @ ball.v
    # the time until |w + v τ| = 1 for |v| = 1 (5.104)
    surface = jnp.sqrt(jnp.maximum(along**2 + 1.0 - ball.w @ ball.w, 0.0)) - along
    w = ball.w + ball.v * jnp.minimum(times[hit], surface)
    normal = jnp.where(times[hit] <= surface, normals[hit], -unit(w))
    v = jnp.where(redraw, lambert(normal, noise), unit(reflected(ball.v, normal)))
    return recorded(ball, w, v, 0.5 * (w + ball.w), jnp.linalg.norm(w - ball.w), jnp.zeros((), bool))


def lambert(normal: jax.Array, noise: jax.Array) -> jax.Array:
    """A direction with density ∝ cos θ to the normal: its part along the wall is even on the disc of d − 1 dimensions.

    noise: d + 2 normal numbers; the last two make the radius.
    """
    d = normal.size
    along = noise[:d] - (noise[:d] @ normal) * normal
    squares = along @ along
    # The square of an even radius in d − 1 dimensions is Beta((d − 1)/2, 1), a ratio of sums of squares of normals.
    radius = squares / (squares + noise[d] ** 2 + noise[d + 1] ** 2)
    return unit(along) * jnp.sqrt(radius) + normal * jnp.sqrt(1.0 - radius)


class Walls(NamedTuple):
    """Weights w separate where normals @ w > 0.

    normals: (n, d), yᵢ xᵢ of unit length. basis: with a kernel matrix K = R Rᵀ, where w lives in the coordinates of R,
    the matrix that turns w into weights α of the points, f(x) = k(x, X) α; else None.
    """

    normals: np.ndarray
    basis: np.ndarray | None

    def alpha(self, w: np.ndarray) -> np.ndarray | None:
        """α of w = Rᵀ α."""
        return None if self.basis is None else self.basis @ w


def walls(X: Any, y: Any, kernel_matrix: Any) -> Walls:
    """Walls in input space (X) or in the span of the points in feature space (kernel_matrix).

    The part of w outside the span is not seen by any wall. Leaving it out does not change the direction of the mean:
    directions inside the span stay uniform.
    """
    y = np.asarray(checks.array("y", y, (1,)))
    if not np.isin(y, (-1.0, 1.0)).all():
        raise ValueError(f"y must hold labels −1 and +1; found {y[~np.isin(y, (-1.0, 1.0))][0]:g}.")
    if (X is None) == (kernel_matrix is None):
        raise ValueError("Give X or kernel_matrix, one of them.")
    basis = None
    if X is not None:
        rows = np.asarray(checks.array("X", X, (2,)))
    else:
        rows, basis = matrix_root(np.asarray(checks.array("kernel_matrix", kernel_matrix, (2,))))
    if len(rows) != len(y):
        raise ValueError(f"y must have one label for each of the {len(rows)} points; found {len(y)}.")
    lengths = np.linalg.norm(rows, axis=1)
    if not lengths.all():
        raise ValueError(f"Point {int(np.argmin(lengths))} has length 0: no weights separate it.")
    return Walls(rows * (y / lengths)[:, None], basis)


def matrix_root(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R with K = R Rᵀ, as many columns as K has eigenvalues beyond rounding, and B with Rᵀ B = I."""
    if K.shape[0] != K.shape[1] or not np.allclose(K, K.T, rtol=1e-10, atol=1e-12 * np.abs(K).max()):
        raise ValueError(f"kernel_matrix must be square and symmetric; found shape {K.shape}.")
    values, vectors = np.linalg.eigh(0.5 * (K + K.T))
    kept = values > len(K) * np.finfo(float).eps * values[-1]
    scale = np.sqrt(values[kept])
    return vectors[:, kept] * scale, vectors[:, kept] / scale


def separator(normals: np.ndarray) -> np.ndarray:
    """Weights of unit length that separate: those of the largest smallest product with a normal, |wⱼ| ≤ 1.

    It is a linear program, so what it does not find is not there.
    """
    n, d = normals.shape
    found = linprog(
        np.append(np.zeros(d), -1.0),
        A_ub=np.column_stack([-normals, np.ones(n)]),
        b_ub=np.zeros(n),
        bounds=[(-1.0, 1.0)] * d + [(None, None)],
    )
    w = found.x[:-1] if found.status == 0 else np.zeros(d)
    length = float(np.linalg.norm(w))
    if not np.min(normals @ w) > TOUCHING * length:
        raise ValueError("The data are not separable: no weights have all points on the right side.")
    return w / length


def starting_point(normals: np.ndarray, start: Any) -> np.ndarray:
    """The given separator at unit length, or the one that the linear program finds."""
    if start is None:
        return separator(normals)
    w = np.asarray(checks.array("start", start, (1,)))
    if w.shape != normals.shape[1:]:
        raise ValueError(f"start must have {normals.shape[1]} numbers; found {w.size}.")
    worst = int(np.argmin(normals @ w))
    if not normals[worst] @ w > 0:
        raise ValueError(f"start must separate the data; point {worst} is on the wrong side of it.")
    return w / np.linalg.norm(w)
