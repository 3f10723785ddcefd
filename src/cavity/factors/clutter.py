"""The clutter term: an observation that is either θ plus unit noise or unrelated clutter (thesis 3.1).

t(θ) = (1 − w) N(x; θ, I) + w N(x; 0, c I). The clutter part does not depend on θ, so against a Gaussian cavity the
tilted distribution is a mixture of two Gaussians and its moments are known.
"""

from typing import Any

import jax
import jax.numpy as jnp

from cavity._core import checks
from cavity.factors.base import Factor, factor, is_one
from cavity.factors.powered_clutter import powered_stats, radial_moments
from cavity.families.base import Family, Tilted
from cavity.families.full_gaussian import FullGaussian
from cavity.families.gaussian import LOG_2PI, Gaussian
from cavity.families.multivariate import AxisAligned, SphericalGaussian


@factor
class Clutter(Factor):
    """The clutter term t(θ) = (1 − w) N(x; θ, I) + w N(x; 0, c I) (thesis 3.1). data: x, a number or a vector.

    Args:
        w: share of clutter, in [0, 1].
        clutter_variance: c, variance of the clutter per coordinate.

    Raises:
        ValueError: in a run, if w is outside [0, 1] or the variance is not positive.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> clutter = cv.factors.Clutter(w=0.5, clutter_variance=10.0)
        >>> round(float(clutter.log_density(1.5, 2.0)), 4)
        -1.4798
    """

    w: Any
    clutter_variance: Any

    closed_forms = (
        "Gaussian, SphericalGaussian, DiagonalGaussian, FullGaussian with power 1",
        "Gaussian and SphericalGaussian with any power (by a one-dimensional integral)",
    )

    def check(self, data: Any) -> None:
        checks.fraction("w", self.w)
        checks.positive("clutter_variance", self.clutter_variance)
        super().check(data)

    def log_background(self, x: jax.Array) -> jax.Array:
        """log w N(x; 0, c I)."""
        x = jnp.atleast_1d(x)
        normaliser = x.shape[-1] * (LOG_2PI + jnp.log(self.clutter_variance))
        return jnp.log(self.w) - 0.5 * (jnp.sum(x**2, axis=-1) / self.clutter_variance + normaliser)

    def log_density(self, x: jax.Array, data: Any) -> jax.Array:
        gap = jnp.atleast_1d(data - x)
        signal = jnp.log1p(-self.w) - 0.5 * (jnp.sum(gap**2, axis=-1) + gap.shape[-1] * LOG_2PI)
        return jnp.logaddexp(signal, self.log_background(data))

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        if not is_one(power):
            if not isinstance(family, Gaussian | SphericalGaussian):
                return NotImplemented
            mean, variance = family.coordinates(cavity)
            log_z, d1, d2 = powered_stats(self, jnp.atleast_1d(mean), variance, jnp.atleast_1d(data), power)
            stats = jnp.append(d1, d2)
            return Tilted(log_z, stats, family.message(cavity, stats))
        if isinstance(family, Gaussian):
            log_z, d1, d2, tau = self.axis_aligned(cavity[:1] / cavity[1], 1.0 / cavity[1:], jnp.atleast_1d(data), 1)
            mean = (cavity[0] + d1[0]) / cavity[1]
            return Tilted(log_z, jnp.concatenate([d1, d2]), jnp.stack([d1[0] + tau[0] * mean, tau[0]]))
        if isinstance(family, AxisAligned):
            variance = 1.0 / family.tau(cavity)
            log_z, d1, d2, tau = self.axis_aligned(family.mean(cavity), variance, data, family.shared)
            site = jnp.concatenate([d1 + tau * (family.mean(cavity) + variance * d1), tau])
            return Tilted(log_z, jnp.concatenate([d1, d2]), site)
        if isinstance(family, FullGaussian):
            return self.full(family, cavity, data)
        return NotImplemented

    def expected_log(self, family: Family, cavity: jax.Array, data: Any, tilted: Tilted) -> jax.Array:
        """By the same one-dimensional integral as the moments of powers."""
        if not isinstance(family, Gaussian | SphericalGaussian):
            return NotImplemented
        mean, variance = family.coordinates(cavity)
        return radial_moments(self, jnp.atleast_1d(mean), variance, jnp.atleast_1d(data), 1.0).expected_log

    def responsibility(
        self, log_signal: jax.Array, log_background: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """(log Z, r, 1 − r) of (3.20)–(3.21); both probabilities keep their digits when tiny."""
        odds = log_signal - log_background
        ratio = jnp.exp(-jnp.abs(odds))  # one exponential serves all three
        large = 1.0 / (1.0 + ratio)
        small = ratio * large
        log_z = jnp.maximum(log_signal, log_background) + jnp.log1p(ratio)
        return log_z, jnp.where(odds > 0, large, small), jnp.where(odds > 0, small, large)

    def axis_aligned(
        self, mean: jax.Array, variance: jax.Array, x: jax.Array, shared: int
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """(log Z, d1, d2, tau) for independent coordinates, `shared` of them with one variance (3.20–3.24, 3.56).

        d2 = −r/S + r(1−r) mean(y²), y = (x − m)/S, S = v + 1; tau = −d2/(1 + v d2), with the denominator written as a
        sum of positive terms, (1−r) + r/S + r(1−r) v mean(y²): nothing cancels however wide the cavity is.
        """
        total = variance + 1.0
        scaled = (x - mean) / total
        wide = jnp.broadcast_to(total, x.shape)
        log_signal = jnp.log1p(-self.w) - 0.5 * jnp.sum((x - mean) * scaled + jnp.log(wide) + LOG_2PI)
        log_z, r, rest = self.responsibility(log_signal, self.log_background(x))
        square = jnp.mean(scaled.reshape(-1, shared) ** 2, axis=-1)
        curvature = r * rest * square
        d2 = curvature - r / total
        return log_z, r * scaled, d2, -d2 / (rest + r / total + variance * curvature)

    def full(self, family: FullGaussian, cavity: jax.Array, x: jax.Array) -> Tilted:
        """The same with matrices: S = V + I, y = S⁻¹(x − m), H = −r S⁻¹ + r(1−r) y yᵀ.

        Lambda = −(I + H V)⁻¹ H with I + H V = (1−r) I + r S⁻¹ + r(1−r) y (V y)ᵀ.
        """
        mean, covariance = family.coordinates(cavity)
        eye = jnp.eye(family.dimension)
        chol = jnp.linalg.cholesky(covariance + eye)
        scaled = jax.scipy.linalg.cho_solve((chol, True), x - mean)
        inverse = jax.scipy.linalg.cho_solve((chol, True), eye)
        half_log_det = jnp.sum(jnp.log(jnp.diagonal(chol)))
        quadratic = jnp.dot(x - mean, scaled)
        log_signal = jnp.log1p(-self.w) - 0.5 * (quadratic + family.dimension * LOG_2PI) - half_log_det
        log_z, r, rest = self.responsibility(log_signal, self.log_background(x))
        hessian = r * rest * jnp.outer(scaled, scaled) - r * inverse
        denominator = rest * eye + r * inverse + r * rest * jnp.outer(scaled, covariance @ scaled)
        precision = -jnp.linalg.solve(denominator, hessian)
        slope = r * scaled
        site = family.with_mean(slope, precision, mean + covariance @ slope)
        return Tilted(log_z, family.pack(slope, hessian), site)
