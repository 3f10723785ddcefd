"""Inverses of digamma-type maps: from expected logarithms back to the shapes of Gamma, Beta and Dirichlet.

Every solver is elementwise or acts on the last axis, has a bounded number of steps and starts where Newton's method is
known to converge, so that it needs no tuning. Input that no distribution has (E[log x] ≥ log E[x], Σ exp E[log w] ≥ 1)
gives NaN, which `is_proper` refuses.

A weak factor moves a shape of 1e6 by one. Matching the moments and subtracting would leave of that step what the
moments' rounding leaves; `gamma_shape_step` and `dirichlet_shape_step` solve the equations of the changes themselves,
to all digits however small they are.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma

from cavity._numerics.gamma_functions import (
    digamma_difference,
    dirichlet_expected_log,
    log_minus_digamma,
    log_minus_digamma_step,
    trigamma,
    trigamma_difference,
    trigamma_excess,
)
from cavity._numerics.sums import sums_without_each

NEWTON_STEPS = 5
#: Newton steps for changes of shapes, from the solution of the equations of the moments
REFINEMENTS = 4
POLISH_STEPS = 8  # two or three converge; the rest are for components that first meet their bound here
BRACKET_STEPS = 100


@jax.jit
def inverse_digamma(y: jax.Array) -> jax.Array:
    """The x > 0 with ψ(x) = y.

    Newton from e^y + ½ (y ≥ −2.22) or −1/(y − ψ(1)); both starts lie just above the root. ψ is concave, so the first
    step may land below the root and all later ones approach it from there.
    """
    x = jnp.where(y >= -2.22, jnp.exp(y) + 0.5, -1.0 / (jnp.minimum(y, -2.22) + jnp.euler_gamma))
    return jax.lax.fori_loop(0, NEWTON_STEPS, lambda _, x: x - (digamma(x) - y) / trigamma(x), x)


@jax.jit
def gamma_shape(s: jax.Array) -> jax.Array:
    """The shape a with log a − ψ(a) = s > 0, where s = log E[x] − E[log x] under a Gamma distribution.

    Newton for log(log a − ψ(a)) as a function of log a, which is nearly a straight line of slope −1, from
    a ≈ (3 − s + √((s − 3)² + 24 s))/(12 s), good to 1.5 %.
    """
    root = jnp.sqrt((s - 3.0) ** 2 + 24.0 * s)
    a = jnp.where(s < 3.0, (3.0 - s + root) / (12.0 * s), 2.0 / (root + s - 3.0))

    def refine(_round: jax.Array, a: jax.Array) -> jax.Array:
        value = log_minus_digamma(a)
        return a * jnp.exp(jnp.log(value / s) * value / (a * trigamma_excess(a)))

    return jnp.where(s > 0, jax.lax.fori_loop(0, NEWTON_STEPS, refine, a), jnp.nan)


class Bracket(NamedTuple):
    """State of the search for log Σ a: the point, what encloses it, the last step, the shapes before it, the round."""

    point: jax.Array
    low: jax.Array
    high: jax.Array
    step: jax.Array
    shapes: jax.Array
    rounds: jax.Array


class ShapesAtSum(NamedTuple):
    """The shapes that go with one value of S = Σ a, and the mismatch (positive where S is too small) with its slope."""

    shapes: jax.Array
    mismatch: jax.Array
    slope: jax.Array


@jax.jit
def dirichlet_shapes(mu: jax.Array, lower: jax.Array | float = 0.0) -> jax.Array:
    """The shapes a ≥ `lower` that minimise ln B(a) − a·mu; without bounds: ψ(a_k) − ψ(Σ a) = mu_k (thesis 3.85).

    Given S = Σ a the stationary point is a_k = max(lower_k, ψ⁻¹(mu_k + ψ(S))), so everything hangs on one number. S is
    found by Newton's method on log S inside a bracket, and the shapes are polished by Newton steps in all of them
    (Hessian diagonal + rank one, O(K)) with residuals that keep their relative accuracy.
    """
    lower = jnp.maximum(jnp.broadcast_to(lower, mu.shape), 0.0)
    components = mu.shape[-1]
    largest = jax.nn.one_hot(jnp.argmax(mu, axis=-1), components, dtype=bool)
    gap = log_gap(mu, largest)
    feasible = (gap > 0) & jnp.all(jnp.isfinite(mu) & (mu < 0), axis=-1)
    # A harmless stand-in keeps an impossible row from holding up the rest of the batch.
    mu = jnp.where(feasible[..., None], mu, dirichlet_expected_log(jnp.ones(components)))
    gap = log_gap(mu, largest)

    # ψ⁻¹(y) ≤ e^y + ½ gives Σ a ≤ (½(K − 1) + 1 + Σ lower)/gap; ψ⁻¹(y) ≈ −1/y for small shapes gives the other end.
    bound = jnp.sum(lower, axis=-1)
    high = jnp.log((0.5 * (components + 1) + bound) / gap) + 1.0
    low = jnp.log(jnp.maximum(0.1 / (1.0 - jnp.min(mu, axis=-1)), 0.5 * bound))
    start = jnp.clip(jnp.log(0.5 * (components - 1) / gap + bound), low, high)

    def unfinished(state: Bracket) -> jax.Array:
        return (state.rounds < BRACKET_STEPS) & jnp.any(jnp.abs(state.step) > 1e-5)

    def advance(state: Bracket) -> Bracket:
        guess = shapes_given_total(mu, lower, gap, largest, state.point)
        short = guess.mismatch > 0
        low = jnp.where(short, state.point, state.low)
        high = jnp.where(short, state.high, state.point)
        newton = -guess.mismatch / guess.slope
        inside = (state.point + newton > low) & (state.point + newton < high)
        # Newton while it stays inside and at least halves the step, else bisection.
        use = inside & (jnp.abs(newton) <= 0.5 * jnp.abs(state.step))
        step = jnp.where(use, newton, 0.5 * (low + high) - state.point)
        done = jnp.abs(state.step) <= 1e-5
        shapes = jnp.where(done[..., None], state.shapes, guess.shapes)
        point, step = jnp.where(done, state.point, state.point + step), jnp.where(done, state.step, step)
        return Bracket(point, low, high, step, shapes, state.rounds + 1)

    first = Bracket(start, low, high, 2.0 * (high - low), mu, jnp.zeros((), int))
    final = jax.lax.while_loop(unfinished, advance, first)
    shapes = jax.lax.fori_loop(0, POLISH_STEPS, lambda _, a: projected_newton_step(a, mu, lower), final.shapes)
    return jnp.where(feasible[..., None], shapes, jnp.nan)


def log_gap(mu: jax.Array, largest: jax.Array) -> jax.Array:
    """1 − Σ exp(mu_k), positive for the expected logarithms of any distribution on the simplex (Jensen)."""
    return -jnp.sum(jnp.where(largest, jnp.expm1(mu), jnp.exp(mu)), axis=-1)


def shapes_given_total(
    mu: jax.Array, lower: jax.Array, gap: jax.Array, largest: jax.Array, point: jax.Array
) -> ShapesAtSum:
    """The shapes for S = exp(point), and how far their sum is from S, on a scale where Newton's method is nearly exact.

    In general the mismatch is log Σ (a_k/S − exp mu_k) − log gap, close to linear in log S. Where one component holds
    most of S that sum cancels; then that component is S − (the others) and its own equation is the mismatch.
    """
    total = jnp.exp(point)
    free = inverse_digamma(mu + digamma(total)[..., None])
    shapes = jnp.maximum(free, lower)
    curve_total = trigamma(total)
    slopes = jnp.where(free > lower, (total * curve_total)[..., None] / trigamma(shapes), 0.0)

    excess = jnp.sum(shapes / total[..., None] - jnp.exp(mu), axis=-1)
    general = jnp.log(excess / gap)
    general_slope = jnp.sum(slopes - shapes, axis=-1) / (total * excess)

    others = jnp.sum(jnp.where(largest, 0.0, shapes), axis=-1)
    others_slope = jnp.sum(jnp.where(largest, 0.0, slopes), axis=-1)
    remainder = total - others
    dominated = remainder > jnp.maximum(0.5 * total, jnp.max(jnp.where(largest, lower, 0.0), axis=-1))
    remainder = jnp.where(dominated, remainder, total)
    value = -digamma_difference(remainder, others)
    own = jnp.log(value / -jnp.max(mu, axis=-1))
    own_slope = (trigamma(remainder) * others_slope - total * trigamma_difference(remainder, others)) / value
    return ShapesAtSum(
        jnp.where(largest & dominated[..., None], remainder[..., None], shapes),
        jnp.where(dominated, own, general),
        jnp.where(dominated, own_slope, general_slope),
    )


def projected_newton_step(a: jax.Array, mu: jax.Array, lower: jax.Array) -> jax.Array:
    """One projected Newton step: components at their bound that are pushed outwards stay, the others move."""
    total, rest = sums_without_each(a)
    residual = mu - digamma_difference(a, rest)
    curve, curve_total = trigamma(a), trigamma(total)[..., None]
    inverse = jnp.where((a <= lower) & (residual < 0), 0.0, 1.0 / curve)
    # 1 − ψ'(S) Σ 1/ψ'(a_k) cancels against the largest shape, whose part is (ψ'(a) − ψ'(S))/ψ'(a).
    largest = jax.nn.one_hot(jnp.argmax(a, axis=-1), a.shape[-1], dtype=bool)
    own = jnp.where(inverse > 0, trigamma_difference(a, rest) * inverse, 1.0)
    scale = jnp.sum(jnp.where(largest, own, -curve_total * inverse), axis=-1, keepdims=True)
    shift = jnp.sum(residual * inverse, axis=-1, keepdims=True) / scale
    change = (residual + curve_total * shift) * inverse / a
    return jnp.maximum(a * (1.0 + jnp.clip(change, -0.5, 1.0)), lower)


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
