"""Gaussian cavities in their own units: z = L⁻¹(x − m), so that the cavity is N(0, I).

In these units a tilted distribution has mean μ and covariance S, and with S − I called `change`

    d1 = L⁻ᵀ μ,    d2 = L⁻ᵀ (S − I) L⁻¹,    site precision = −L⁻ᵀ S⁻¹ (S − I) L⁻¹,

for the full Gaussian, and per coordinate (or averaged over coordinates that share a variance) for the others. A weak
site has S ≈ I: the caller may know `change` to more digits than the difference S − I has.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as linalg

from cavity.families.base import Family, Tilted
from cavity.families.full_gaussian import FullGaussian, symmetrise
from cavity.families.gaussian import Gaussian
from cavity.families.multivariate import AxisAligned
from cavity.numerics.quadrature import Integral

#: smallest tilted variance in units of the cavity's; a sharper tilted distribution is a point to double precision
SHARPEST = 1e-30

EPS = 2.0**-52


class Frame(NamedTuple):
    """x = mean + root z; `root` is a lower triangular d×d matrix. `proper`: whether the cavity was one."""

    mean: jax.Array
    root: jax.Array
    proper: jax.Array

    def value(self, z: jax.Array) -> jax.Array:
        """x for z of length d."""
        return self.mean + self.root @ z


def is_gaussian(family: Family) -> bool:
    """Whether `whiten` and `tilted` are defined for the family."""
    return isinstance(family, Gaussian | AxisAligned | FullGaussian)


def dimension(family: Family) -> int:
    """Length of x, 1 for a scalar."""
    return family.event_shape[0] if family.event_shape else 1


def whiten(family: Any, cavity: jax.Array) -> Frame:
    """The frame of a cavity; an improper cavity gets a unit one, flagged, so that later results are not NaN."""
    size = dimension(family)
    proper = family.is_proper(cavity)
    if isinstance(family, FullGaussian):
        precision = jnp.where(proper, family.precision(cavity), jnp.eye(size))
        mean, covariance = family.coordinates(family.pack(jnp.where(proper, family.nu(cavity), 0.0), precision))
        return Frame(mean, jnp.linalg.cholesky(covariance), proper)
    nu, tau = (cavity[:1], cavity[1:]) if isinstance(family, Gaussian) else (family.nu(cavity), family.tau(cavity))
    tau = jnp.broadcast_to(jnp.where(proper, tau, 1.0), (size,))
    mean = jnp.where(proper, nu, 0.0) / tau
    return Frame(mean, jnp.diag(1.0 / jnp.sqrt(tau)), proper)


def whitened_moments(rule: Integral, slopes: jax.Array, frame: Frame) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(mean μ, covariance S, S − I) in the cavity's units; μ and S − I by whichever of two routes keeps more digits.

    From moments: μ = E[z], S = E[(z − μ)(z − μ)ᵀ]; S − I cancels for a site weak against its cavity. From slopes
    g = ∇ log t^power, by parts: μ = E[g], S − I = Cov(z, g), which does not cancel but is wrong where t jumps. The
    slopes are used where both agree within the error of the first route, so a wrong one does no harm.
    """
    weights = jnp.exp(rule.log_weights)
    found = rule.log_z > -jnp.inf
    mean = weights @ rule.nodes
    deviation = rule.nodes - mean
    eye = jnp.eye(mean.size)
    spread = jnp.where(found, (weights[:, None] * deviation).T @ deviation, eye)
    slopes = jnp.where(weights[:, None] > 0, slopes, 0.0)
    mean_slope = weights @ slopes
    product = (weights[:, None] * deviation).T @ (slopes - mean_slope)

    # What x = mean + root z loses to rounding moves log t by its slope.
    position = EPS * jnp.sum((weights @ jnp.abs(slopes)) * jnp.abs(frame.mean) / jnp.diagonal(frame.root))
    sd = jnp.sqrt(jnp.diagonal(spread))
    bar = 4.0 * (rule.error * sd + EPS * jnp.abs(mean)) + position
    bars = 4.0 * (jnp.outer(sd, sd) * rule.error + EPS * (eye + jnp.outer(jnp.abs(mean), sd))) + position * jnp.max(sd)
    agreed = jnp.abs(mean_slope - mean) <= bar
    change = jnp.where(jnp.abs(product - (spread - eye)) <= bars, product, spread - eye)
    return jnp.where(agreed, mean_slope, mean), spread, jnp.where(found, 0.5 * (change + change.T), 0.0)


def tilted(
    family: Any, frame: Frame, log_z: jax.Array, mean: jax.Array, spread: jax.Array, change: jax.Array
) -> Tilted:
    """(log Z, (d1, d2), site) from the tilted mean (d,), covariance (d, d) and covariance − I, in the frame's units."""
    # An improper cavity has no tilted distribution: no mass, and a site that says nothing.
    log_z, mean, change = (
        jnp.where(frame.proper, known, silent) for known, silent in ((log_z, -jnp.inf), (mean, 0.0), (change, 0.0))
    )
    if isinstance(family, FullGaussian):
        return _full(family, frame, log_z, mean, spread, change)
    shared = family.shared if isinstance(family, AxisAligned) else 1
    scale = jnp.diagonal(frame.root)
    pooled = jnp.mean(jnp.diagonal(change).reshape(-1, shared), axis=-1)
    ratio = jnp.mean(jnp.diagonal(spread).reshape(-1, shared), axis=-1)
    variance = (scale**2)[::shared]
    d1 = mean / scale
    tau = -pooled / (variance * jnp.maximum(ratio, SHARPEST))
    nu = d1 + tau * (frame.mean + scale * mean)
    return Tilted(log_z, jnp.concatenate([d1, pooled / variance]), jnp.concatenate([nu, tau]))


def _full(
    family: FullGaussian, frame: Frame, log_z: jax.Array, mean: jax.Array, spread: jax.Array, change: jax.Array
) -> Tilted:
    def outside(matrix: jax.Array) -> jax.Array:
        """L⁻ᵀ matrix L⁻¹."""
        half = linalg.solve_triangular(frame.root, symmetrise(matrix), lower=True, trans="T")
        return linalg.solve_triangular(frame.root, half.T, lower=True, trans="T")

    slope = linalg.solve_triangular(frame.root, mean, lower=True, trans="T")
    kept = spread + SHARPEST * jnp.eye(spread.shape[-1])
    precision = symmetrise(outside(-jnp.linalg.solve(kept, change)))
    site = family.with_mean(slope, precision, frame.value(mean))
    return Tilted(log_z, family.pack(slope, outside(change)), site)
