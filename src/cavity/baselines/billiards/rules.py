"""How a ball moves from one collision to the next: three billiards (thesis 5.8).

rujan       on the sphere; a ball that meets no wall starts again from its first place
herbrich    on the sphere; a ball that meets no wall stays and gets a new random velocity
inside      in the ball |w| ≤ 1, whose surface is one more wall; no ball can escape
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

Rule = Literal["rujan", "herbrich", "inside"]
RULES: tuple[Rule, ...] = ("rujan", "herbrich", "inside")


class Ball(NamedTuple):
    """Position w, velocity v, Σ z·midpoint and Σ z over flights of length z, how many escaped, how many were made."""

    w: Any
    v: Any
    moment: Any
    length: Any
    escapes: Any
    flights: Any


def flight_times(normals: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
    """τᵢ = −dᵢ/vᵢ where the ball comes nearer to wall i, else infinite (5.100–5.102).

    A distance that rounding made negative counts as 0: the wall is hit at once and turns the ball back.
    """
    distance, speed = normals @ w, normals @ v
    return jnp.where(speed < 0, jnp.maximum(distance, 0.0) / jnp.where(speed < 0, -speed, 1.0), jnp.inf)


def surface_time(w: jax.Array, v: jax.Array) -> jax.Array:
    """Time until |w + v τ| = 1 for |v| = 1 (5.104)."""
    along = w @ v
    return jnp.sqrt(jnp.maximum(along**2 + 1.0 - w @ w, 0.0)) - along


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
    middle = unit(ball.w + w)
    place = start if rule == "rujan" else ball.w
    z = jnp.where(escaped, 0.0, jnp.linalg.norm(w - ball.w))
    return recorded(
        ball,
        jnp.where(escaped, place, w),
        jnp.where(escaped, unit(noise), reflected(ball.v, normals[hit])),
        middle,
        z,
        escaped,
    )


def fly_inside_ball(normals: jax.Array, ball: Ball, noise: jax.Array, redraw: jax.Array) -> Ball:
    """A flight inside the ball |w| ≤ 1 (5-14b); with `redraw` a new velocity by Lambert's law follows the collision.

    Balls that fill the pool evenly arrive at a wall with cos θ dΩ, so only leaving with it as well keeps them even. A
    velocity drawn evenly from all directions, as the thesis reads, would favour what lies along the walls.
    """
    times = flight_times(normals, ball.w, ball.v)
    hit = jnp.argmin(times)
    surface = surface_time(ball.w, ball.v)
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
