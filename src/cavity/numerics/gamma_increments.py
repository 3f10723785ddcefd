"""Changes of Gamma and Dirichlet shapes from changes of expected logarithms, to all digits however small they are.

A weak factor moves a shape of 1e6 by one. Matching the moments and subtracting would leave of that step what the
moments' rounding leaves; here the equations are those of the changes themselves. Elementwise, or on the last axis.
"""

import jax
import jax.numpy as jnp

from cavity.numerics.gamma_functions import (
    BERNOULLI,
    SHIFT,
    binet,
    digamma_difference,
    steps_up,
    trigamma,
    trigamma_difference,
    trigamma_excess,
)
from cavity.numerics.sums import sums_without_each

#: Newton steps, from the solution of the equations of the moments
REFINEMENTS = 4


@jax.jit
def log_gamma_step(a: jax.Array, step: jax.Array) -> jax.Array:
    """lnΓ(a + step) − lnΓ(a) = step (log a − 1) + (a + step − ½) log(1 + step/a) + ω(a + step) − ω(a)."""
    moved = (a + step - 0.5) * jnp.log1p(step / a) - step
    return step * jnp.log(a) + moved + binet(a + step) - binet(a)


@jax.jit
def log_minus_digamma_step(a: jax.Array, step: jax.Array) -> jax.Array:
    """φ(a + step) − φ(a) of φ(a) = log a − ψ(a), by the differences of the terms of its series; a + step > 0."""
    low = jnp.minimum(a, a + step) <= SHIFT
    big = jnp.where(low, a + SHIFT, a)
    u, v = 1.0 / big, 1.0 / (big + step)
    gap = step * u * v  # u − v
    p, q = u * u, v * v
    # u²ⁿ − v²ⁿ = (u² − v²) Σ_{i<n} p^i q^{n−1−i}
    quotient, power, series = jnp.zeros_like(gap), jnp.ones_like(gap), jnp.zeros_like(gap)
    for n, bernoulli in enumerate(BERNOULLI, start=1):
        quotient, power = power + q * quotient, power * p
        series = series + bernoulli / (2 * n) * quotient
    ladder = steps_up(a)
    rungs = step * jnp.sum(1.0 / (ladder * (ladder + step[..., None])), axis=-1)
    lifted = jnp.log1p(step / a) - jnp.log1p(step * u) - rungs
    return jnp.where(low, lifted, 0.0) - gap * (0.5 + (u + v) * series)


@jax.jit
def gamma_shape_step(a: jax.Array, change: jax.Array, start: jax.Array) -> jax.Array:
    """The step of a shape with φ(a + step) − φ(a) = change, φ(a) = log a − ψ(a) = log E[x] − E[log x].

    By Newton's method from `start`, which must be near.
    """

    def refine(_round: jax.Array, step: jax.Array) -> jax.Array:
        residual = log_minus_digamma_step(a, step) - change
        return jnp.maximum(step + residual / trigamma_excess(a + step), 0.5 * (a + step) - a)

    return jax.lax.fori_loop(0, REFINEMENTS, refine, start)


@jax.jit
def dirichlet_shape_step(a: jax.Array, change: jax.Array, start: jax.Array) -> jax.Array:
    """The steps d with ψ(a_k + d_k) − ψ(Σ a + Σ d) larger than ψ(a_k) − ψ(Σ a) by change_k, on the last axis.

    By Newton's method from `start`, which must be near.
    """
    total = jnp.sum(a, axis=-1, keepdims=True)

    def refine(_round: jax.Array, step: jax.Array) -> jax.Array:
        moved = jnp.sum(step, axis=-1, keepdims=True)
        residual = change + digamma_difference(a, step) - digamma_difference(total, moved)
        return jnp.maximum(step + newton_direction(a + step, residual), 0.5 * (a + step) - a)

    return jax.lax.fori_loop(0, REFINEMENTS, refine, start)


def newton_direction(a: jax.Array, residual: jax.Array) -> jax.Array:
    """The d with ψ'(a_k) d_k − ψ'(Σ a) Σ d = residual_k: a diagonal and a matrix of rank one."""
    total, rest = sums_without_each(a)
    inverse, curve_total = 1.0 / trigamma(a), trigamma(total)[..., None]
    # 1 − ψ'(S) Σ 1/ψ'(a_k) cancels against the largest shape, whose part is (ψ'(a) − ψ'(S))/ψ'(a).
    largest = jax.nn.one_hot(jnp.argmax(a, axis=-1), a.shape[-1], dtype=bool)
    own = jnp.where(largest, trigamma_difference(a, rest), -curve_total) * inverse
    shift = jnp.sum(residual * inverse, axis=-1, keepdims=True) / jnp.sum(own, axis=-1, keepdims=True)
    return (residual + curve_total * shift) * inverse
