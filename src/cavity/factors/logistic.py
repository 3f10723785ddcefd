"""The logistic likelihood of a label: no closed form, one fixed rule for any power and label noise."""

import jax
import jax.numpy as jnp
from jax.nn import log_sigmoid, sigmoid

from cavity._core import checks
from cavity.factors.base import Numbers, factor, is_one
from cavity.factors.binary import BinaryLikelihood, binary_prediction, mixed, noise_levels, noisy_slopes, shares
from cavity.factors.recentred_rule import LogLikelihoodDerivatives, falling_root, follow
from cavity.families.base import Family, Tilted
from cavity.families.gaussian import Gaussian, as_tilted

# σ has its poles at ±iπ.
_SCALE = 1.5


@factor
class Logistic(BinaryLikelihood):
    """The logistic likelihood ε + (1 − 2ε) σ(y f) of a label y in {−1, +1}, the data of a site.

    Integrated by the fixed rule of `factors.recentred_rule`. The points that matter are the mode of σ(f)^p N(f; m, v),
    at p σ(−f) = (f − m)/v; the mode of its slope, at p − (p + 1) σ(f) = (f − m)/v, where the little that a right label
    has to say comes from; and 0.

    Args:
        label_noise: ε, the probability of a wrong label, in [0, ½).

    Raises:
        ValueError: in a run, if ε is outside [0, ½) or a label is not −1 or +1.

    Examples:
        >>> import cavity as cv
        >>> found = cv.factors.Logistic().predict(mean=1.0, variance=0.5)
        >>> round(float(found["probability"]), 4)
        0.7116
    """

    closed_forms = ("Gaussian sites, any power (by a fixed rule)",)

    def log_density(self, x: jax.Array, data: jax.Array) -> jax.Array:
        return shares(log_sigmoid(data * x), noise_levels(self.label_noise)).log_z

    def tilted(self, family: Family, cavity: jax.Array, data: jax.Array, power: float) -> Tilted:
        if not isinstance(family, Gaussian):
            return NotImplemented
        mean, variance = family.coordinates(cavity)
        mean = data * mean
        centres, scales = logistic_landmarks(mean, variance, power)
        if is_one(power):
            tilt = mixed(
                follow(log_sigmoid_derivatives, 1, mean, variance, centres, scales),
                variance,
                noise_levels(self.label_noise),
            )
        else:
            # The power of a noisy likelihood is no mixture. Its floor leaves mass at the cavity's own mean, and meets
            # the rise at σ(f) = ε / (1 − 2ε).
            noise = jnp.maximum(self.label_noise, 1e-30)
            corner = jnp.log(noise) - jnp.log1p(-2 * noise)
            centres = jnp.append(centres, jnp.stack([mean, corner]))
            scales = jnp.append(scales, jnp.stack([jnp.sqrt(variance), jnp.full_like(mean, _SCALE)]))
            tilt = follow(
                noisy_slopes(log_sigmoid_derivatives, self.label_noise), power, mean, variance, centres, scales
            )
        return as_tilted(tilt, data)

    def predict(self, mean: Numbers, variance: Numbers) -> dict[str, jax.Array]:
        """Probability of +1 and logarithms of both for a latent N(mean, variance), clean and with label noise."""
        mean, variance = checks.finite("mean", mean), checks.finite("variance", variance)
        mean, variance = jnp.broadcast_arrays(mean, variance)

        def log_probability(m: jax.Array, v: jax.Array) -> jax.Array:
            return follow(log_sigmoid_derivatives, 1, m, v, *logistic_landmarks(m, v, 1)).log_z

        sides = jnp.stack([-mean, mean], axis=-1)
        spread = jnp.broadcast_to(jnp.maximum(variance, jnp.finfo(float).tiny)[..., None], sides.shape)
        log_probabilities = jax.vmap(log_probability)(sides.ravel(), spread.ravel()).reshape(sides.shape)
        return binary_prediction(log_probabilities, self.label_noise)


def log_sigmoid_derivatives(f: jax.Array) -> LogLikelihoodDerivatives:
    """log σ and its derivatives σ(−f), −σ(f) σ(−f), from one exponential."""
    small = jnp.exp(-jnp.abs(f))
    large = 1 / (1 + small)
    value = jnp.minimum(f, 0.0) - jnp.log1p(small)
    return LogLikelihoodDerivatives(value, jnp.where(f > 0, small, 1.0) * large, -small * large * large)


def logistic_landmarks(mean: jax.Array, variance: jax.Array, power: float) -> tuple[jax.Array, jax.Array]:
    """The two modes and 0, with the scales of the integrand there."""
    # Which of the two slopes, p − p σ or p − (p + 1) σ.
    more = jnp.array([0.0, 1.0])
    low, high = mean - more * variance, (mean + power * variance) * jnp.ones(2)
    modes = falling_root(lambda f: power - (power + more) * sigmoid(f) - (f - mean) / variance, low, high)
    width = 1 / jnp.sqrt(1 / variance + power * sigmoid(modes) * sigmoid(-modes))
    return jnp.append(modes, 0.0), jnp.append(jnp.minimum(width, _SCALE), _SCALE)
