"""Digamma, trigamma and log-gamma in the combinations that Beta, Gamma and Dirichlet need, without cancellation.

JAX's own `digamma` and `gammaln` are good to a few units in the last place. What loses digits is their difference:
ψ(a) − ψ(a + b) for b ≪ a, lnΓ(a) + lnΓ(b) − lnΓ(a + b), or log a − ψ(a) for large a. Two tools avoid every one of them:

    the recurrence            ψ(x) = ψ(x + 1) − 1/x, applied to both sides of a difference before subtracting,
    Stirling's decomposition  lnΓ(x) = x log x − x − ½ log(x/2π) + ω(x), whose large parts cancel on paper.

Arguments are positive and elementwise unless a function says "last axis".
"""

import math

import jax
import jax.numpy as jnp

from cavity._numerics.sums import log_excess, power_series, sums_without_each

#: Arguments are moved up by this many steps before an asymptotic series is used.
SHIFT = 10
#: Bernoulli numbers B₂, B₄, …, B₁₆: at x ≥ SHIFT the first term left out is below 1e-17.
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
#: coefficients of log x − ψ(x) in 1/x², and of Binet's ω(x)
DIGAMMA = tuple(bernoulli / (2 * n) for n, bernoulli in enumerate(BERNOULLI, start=1))
BINET = tuple(bernoulli / (2 * n * (2 * n - 1)) for n, bernoulli in enumerate(BERNOULLI, start=1))
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def steps_up(x: jax.Array) -> jax.Array:
    """x, x + 1, …, x + SHIFT − 1 along a new last axis."""
    return jnp.asarray(x)[..., None] + jnp.arange(SHIFT)


def raise_argument(x: jax.Array) -> jax.Array:
    """x, or x + SHIFT where x is too small for the asymptotic series."""
    return jnp.where(x > SHIFT, x, x + SHIFT)


@jax.jit
def trigamma(x: jax.Array) -> jax.Array:
    """ψ'(x) = Σ_{j<N} 1/(x+j)² + 1/X + 1/(2X²) + Σ B₂ₙ/X²ⁿ⁺¹ at X = x + N."""
    return 1.0 / x + trigamma_excess(x)


@jax.jit
def trigamma_excess(x: jax.Array) -> jax.Array:
    """ψ'(x) − 1/x > 0, about 1/(2x²) for large x."""
    big = raise_argument(x)
    u = 1.0 / big
    series = power_series(u * u, BERNOULLI)
    ladder = steps_up(x)
    # 1/(x+j)² less the telescoping 1/(x+j) − 1/(x+j+1): every term is positive.
    lifted = jnp.sum(1.0 / (ladder**2 * (ladder + 1.0)), axis=-1)
    return jnp.where(x > SHIFT, 0.0, lifted) + u * u * (0.5 + u * series)


@jax.jit
def log_minus_digamma(x: jax.Array) -> jax.Array:
    """log x − ψ(x) > 0: about 1/(2x) for large x, 1/x for small."""
    big = raise_argument(x)
    u = 1.0 / big
    series = power_series(u * u, DIGAMMA)
    lifted = jnp.sum(1.0 / steps_up(x), axis=-1)
    return jnp.where(x > SHIFT, 0.0, lifted + jnp.log(x / big)) + u * (0.5 + u * series)


@jax.jit
def binet(x: jax.Array) -> jax.Array:
    """ω(x) = lnΓ(x) − (x − ½) log x + x − ½ log 2π > 0: about 1/(12x) for large x, −½ log(2πx) for small."""
    big = raise_argument(x)
    u = 1.0 / big
    series = power_series(u * u, BINET)
    ladder = steps_up(x)
    lifted = jnp.sum((ladder + 0.5) * jnp.log1p(1.0 / ladder) - 1.0, axis=-1)
    return jnp.where(x > SHIFT, 0.0, lifted) + u * series


def difference_series(u: jax.Array, v: jax.Array) -> jax.Array:
    """The series of log x − ψ(x) at 1/u less that at 1/v, divided by u² − v²."""
    p, q = u * u, v * v
    # u²ⁿ − v²ⁿ = (u² − v²) Σ_{i<n} p^i q^{n−1−i}
    quotient, power, series = jnp.zeros_like(p), jnp.ones_like(p), jnp.zeros_like(p)
    for coefficient in DIGAMMA:
        quotient, power = power + q * quotient, power * p
        series = series + coefficient * quotient
    return series


@jax.jit
def digamma_difference(a: jax.Array, b: jax.Array) -> jax.Array:
    """ψ(a) − ψ(a + b) ≤ 0 for b ≥ 0, to full relative accuracy: every term below has the same sign or is small."""
    total = b * jnp.sum(1.0 / steps_up(a) / steps_up(a + b), axis=-1)
    u, v = 1.0 / (a + SHIFT), 1.0 / (a + SHIFT + b)
    gap = b * u * v  # u − v
    return -(total + jnp.log1p(b * u) + gap * (0.5 + (u + v) * difference_series(u, v)))


@jax.jit
def trigamma_difference(a: jax.Array, b: jax.Array) -> jax.Array:
    """ψ'(a) − ψ'(a + b) ≥ 0 for b ≥ 0, to full relative accuracy: the variance of log x under Beta(a, b)."""
    low, high = 1.0 / steps_up(a), 1.0 / steps_up(a + b)
    total = b * jnp.sum(low * high * (low + high), axis=-1)
    u, v = 1.0 / (a + SHIFT), 1.0 / (a + SHIFT + b)
    gap = b * u * v
    # u^m − v^m = gap × quotient_m, quotient_{m+1} = u^m + v × quotient_m, wanted at odd m ≥ 3
    quotient, power, series = u + v, u * u, jnp.zeros_like(gap)
    for bernoulli in BERNOULLI:
        quotient, power = power + v * quotient, power * u
        series = series + bernoulli * quotient
        quotient, power = power + v * quotient, power * u
    return total + gap * (1.0 + 0.5 * (u + v) + series)


@jax.jit
def dirichlet_expected_log(a: jax.Array) -> jax.Array:
    """ψ(a_k) − ψ(Σ a) over the last axis: E[log w_k] under a Dirichlet (thesis 3.84)."""
    _, rest = sums_without_each(a)
    return digamma_difference(a, rest)


@jax.custom_jvp
@jax.jit
def log_beta(a: jax.Array) -> jax.Array:
    """Σ lnΓ(a_k) − lnΓ(Σ a) over the last axis.

    The terms x log x − x of Stirling's formula combine to Σ a_k log(a_k/S), which is all that can be large.
    """
    total, rest = sums_without_each(a)
    share = -a * jnp.where(rest < a, jnp.log1p(rest / a), -jnp.log(a / total[..., None]))
    small = share - 0.5 * jnp.log(a) + binet(a) + HALF_LOG_2PI
    return jnp.sum(small, axis=-1) + 0.5 * jnp.log(total) - binet(total) - HALF_LOG_2PI


@log_beta.defjvp
def log_beta_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """The gradient is `dirichlet_expected_log`; differentiating the sum above would cancel."""
    (a,), (direction,) = primals, tangents
    return log_beta(a), jnp.sum(dirichlet_expected_log(a) * direction, axis=-1)


@jax.jit
def stirling_divergence(x: jax.Array, y: jax.Array, delta: jax.Array) -> jax.Array:
    """ρ(y) − ρ(x) − (y − x) ρ'(x) ≥ 0 for ρ(x) = lnΓ(x) − x log x + x, the Bregman divergence of what Stirling leaves.

    Far apart: ½ log(x/y) + ω(y) − ω(x) + (y − x)(log x − ψ(x)). Close, with t = (y − x)/x: ½(t − log(1 + t)) plus
    the divergences of x^−m in the series of ω, each a sum of positive terms; small arguments are first moved up with
    lnΓ(x) = lnΓ(x + N) − Σ log(x + j), whose divergences are positive too. `delta` is y − x, given apart because x
    and y may be rounded sums.
    """
    far = jnp.abs(delta) > 0.5 * x
    apart = 0.5 * jnp.log(x / y) + binet(y) - binet(x) + delta * log_minus_digamma(x)
    near_y = jnp.where(far, x, y)
    step = jnp.where(far, 0.0, delta)
    low = x < 2 * SHIFT
    high_x, high_y = jnp.where(low, x + SHIFT, x), jnp.where(low, near_y + SHIFT, near_y)
    t, u, v = step / high_x, 1.0 / high_x, 1.0 / high_y
    # Divergence of x^−m: t² V_m with V_m = u V_{m−1} + q_m, q_m = u q_{m−1} + v^m.
    whole, part, power, series = v, v, v, jnp.zeros_like(v)
    for coefficient in BINET:
        series = series + coefficient * whole
        for _ in range(2):
            power = power * v
            part = u * part + power
            whole = u * whole + part
    close = 0.5 * log_excess(t, high_y * u) + t * t * series
    lifted = entropy_divergence(high_x, high_y, step) - entropy_divergence(x, near_y, step)
    ladder = steps_up(x)
    lifted = lifted + jnp.sum(log_excess(step[..., None] / ladder, steps_up(near_y) / ladder), axis=-1)
    return jnp.where(far, apart, close + jnp.where(low, lifted, 0.0))


def entropy_divergence(x: jax.Array, y: jax.Array, step: jax.Array) -> jax.Array:
    """y log(y/x) − y + x ≥ 0, the divergence generated by x log x − x; `step` is y − x before any rounding."""
    return y * log_excess(-step / y, x / y)


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
    ladder = steps_up(a)
    rungs = step * jnp.sum(1.0 / (ladder * (ladder + step[..., None])), axis=-1)
    lifted = jnp.log1p(step / a) - jnp.log1p(step * u) - rungs
    return jnp.where(low, lifted, 0.0) - gap * (0.5 + (u + v) * difference_series(u, v))
