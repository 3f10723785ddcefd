"""What binary likelihoods share: labels, label noise ε + (1 − 2ε) t₀(f) (thesis 5.4), predictions, their checks."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import is_traced
from cavity.factors.base import Factor, is_one
from cavity.families.base import Family, Tilted
from cavity.families.gaussian import Gaussian
from cavity.numerics.expected_log_step import expected_log_of_step
from cavity.numerics.mixture_tails import Levels, Tilt, shares
from cavity.numerics.recentred_rule import LogLikelihoodDerivatives


def check_binary(name: str, label_noise: Any, data: Any) -> None:
    """Refuse a label noise outside [0, ½) and labels other than −1 and +1; traced values pass."""
    noise = checks.number("label_noise", label_noise)
    if not is_traced(noise) and not 0 <= noise < 0.5:
        raise ValueError(f"label_noise must lie in [0, 0.5); found {noise}.")
    if is_traced(data):
        return
    labels = np.asarray(data)
    wrong = np.abs(labels) != 1
    if wrong.any():
        raise ValueError(f"data of {name} must be labels −1 or +1; found {labels[wrong].ravel()[0]}.")


def noise_levels(label_noise: Any) -> Levels:
    """ε + (1 − 2ε) t₀."""
    noise = jnp.asarray(label_noise, float)
    return Levels(noise, 1 - 2 * noise, noise)


def powered_levels(label_noise: Any, power: Any) -> Levels:
    """ε^p + ((1 − ε)^p − ε^p) t₀, the power of a noisy indicator t₀; 0^p is 0 unless p is 0."""
    if is_one(power):
        return noise_levels(label_noise)
    noise = jnp.asarray(label_noise, float)
    noisy = noise > 0
    safe = jnp.where(noisy, noise, 0.25)
    log_upper = power * jnp.log1p(-noise)
    lower = jnp.where(noisy, jnp.exp(power * jnp.log(safe)), jnp.where(jnp.asarray(power) == 0, 1.0, 0.0))
    # As a multiple of the upper level, because for a small power the two levels agree in many digits.
    share = jnp.where(noisy, -jnp.expm1(power * (jnp.log(safe) - jnp.log1p(-safe))), 1.0 - lower)
    return Levels(lower, jnp.exp(log_upper) * share, -jnp.expm1(log_upper))


def noisy_log(log_t: jax.Array, label_noise: Any) -> jax.Array:
    """log(ε + (1 − 2ε) t₀) from log t₀."""
    return shares(log_t, noise_levels(label_noise)).log_z


def noisy_slopes(
    slopes: Callable[[jax.Array], LogLikelihoodDerivatives], label_noise: Any
) -> Callable[[jax.Array], LogLikelihoodDerivatives]:
    """log(ε + (1 − 2ε) t₀) and its derivatives r ℓ₀' and r (ℓ₀'' + (1 − r) ℓ₀'²), r the share of t₀."""

    def noisy(f: jax.Array) -> LogLikelihoodDerivatives:
        at = slopes(f)
        log_t, r, rest = shares(at.value, noise_levels(label_noise))
        return LogLikelihoodDerivatives(log_t, r * at.first, r * (at.second + rest * at.first**2))

    return noisy


def as_tilted(tilt: Tilt) -> Tilted:
    """log Z, (d1, d2) and the site of a scalar Gaussian."""
    stats = jnp.stack([tilt.d1, -tilt.bend], axis=-1)
    return Tilted(tilt.log_z, stats, jnp.stack([tilt.pull, tilt.bend], axis=-1) / tilt.ratio[..., None])


def expected_log_of_label(factor: Factor, family: Family, cavity: jax.Array, data: Any, tilted: Tilted) -> jax.Array:
    """E[log t] under t × cavity for a likelihood of a label with an edge of width 1 at 0."""
    if not isinstance(family, Gaussian):
        return NotImplemented
    mean, variance = family.coordinates(cavity)
    tilted_mean, tilted_variance = family.coordinates(cavity + tilted.site)
    return expected_log_of_step(
        lambda f: factor.log_density(data * f, data), data * mean, variance, data * tilted_mean, tilted_variance
    )


def binary_prediction(log_probabilities: jax.Array, label_noise: Any) -> dict[str, jax.Array]:
    """Probabilities of the label, clean and as observed, from (log P(−1), log P(+1)) of the clean label.

    Logarithms of both labels are given: the probability of the unlikely one keeps its digits.
    """
    noisy = noisy_log(log_probabilities, label_noise)
    return {
        "probability": jnp.exp(log_probabilities[..., 1]),
        "noisy_probability": jnp.exp(noisy[..., 1]),
        "log_probabilities": log_probabilities,
        "noisy_log_probabilities": noisy,
    }
