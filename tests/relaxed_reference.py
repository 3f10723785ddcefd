"""Relaxed EP for Gaussian process classification by the step likelihood, for tests to compare with.

NumPy and SciPy only: nothing of the library is used. A stack of problems of equal size is run together, site by site,
each visit followed by a rank-one update of the covariance. A site is exp(nu f − ½ tau f²) with the strength b of its
relaxation beside it; a relaxation factor is exp(b (m f − ½ f²)) with m the mean of the old site, or the old site to the
power b.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr

#: a strength is sought up to this many times the cavity's precision
LARGEST = 1e6

SQRT_2PI = np.sqrt(2 * np.pi)


class RelaxedRun(NamedTuple):
    """q(f) = N(mean, covariance), its sites, their strengths b, the sweeps made, whether the last changed nothing."""

    mean: np.ndarray
    covariance: np.ndarray
    nu: np.ndarray
    tau: np.ndarray
    b: np.ndarray
    sweeps: np.ndarray
    converged: np.ndarray


class Shape(NamedTuple):
    """A tilted step, z = y mean/sd of the cavity: log Z, r = d log Z/dz, variance ratio 1 − r (r + z), KL, dKL/dz."""

    log_z: np.ndarray
    slope: np.ndarray
    ratio: np.ndarray
    divergence: np.ndarray
    divergence_slope: np.ndarray


def shape(z: Any, epsilon: Any) -> Shape:
    """KL(tilted ‖ its moment match) = E[log t] − log Z + ½ r z + ½ log(1 − r (r + z)): a function of z alone.

    E[log t] = π log(1 − ε) + (1 − π) log ε with π = (1 − ε) Φ(z)/Z; derivatives from r' = −r (r + z).
    """
    z = np.asarray(z, float)
    log_z = np.logaddexp(np.log(epsilon), np.log1p(-2 * epsilon) + log_ndtr(z))
    r = (1 - 2 * epsilon) * np.exp(-0.5 * z**2 - log_z) / SQRT_2PI
    right = (1 - epsilon) * np.exp(log_ndtr(z) - log_z)
    ratio = 1 - r * (r + z)
    odds = np.log1p(-epsilon) - np.log(epsilon)
    divergence = np.log(epsilon) + right * odds - log_z + 0.5 * r * z + 0.5 * np.log(ratio)
    right_slope = r * ((1 - epsilon) / (1 - 2 * epsilon) - right)
    r_slope = -r * (r + z)
    ratio_slope = -r_slope * (2 * r + z) - r
    slope = right_slope * odds - r + 0.5 * (r_slope * z + r) + 0.5 * ratio_slope / ratio
    return Shape(log_z, r, ratio, divergence, slope)


class Visit(NamedTuple):
    """What a visit knows before it relaxes: label y, ε, the cavity's precision × mean s and precision p.

    With strength b the relaxed cavity is (s + b·push, p + b·pinch), and the penalty is b·price.
    """

    y: np.ndarray
    epsilon: np.ndarray
    s: np.ndarray
    p: np.ndarray
    push: np.ndarray
    pinch: np.ndarray
    price: np.ndarray

    def cost(self, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Q(b) and dQ/db; infinite where the relaxed cavity is improper."""
        precision = self.p + b * self.pinch
        proper = precision > 0
        precision = np.where(proper, precision, 1.0)
        natural = self.s + b * self.push
        z = self.y * natural / np.sqrt(precision)
        dz = self.y * (self.push / np.sqrt(precision) - 0.5 * natural * self.pinch / precision**1.5)
        found = shape(z, self.epsilon)
        return (
            np.where(proper, found.divergence + b * self.price, np.inf),
            np.where(proper, found.divergence_slope * dz + self.price, np.inf),
        )


def prepare(
    y: Any, epsilon: Any, s: Any, p: Any, nu: Any, tau: Any, c: Any, penalty: str, scale_free: bool, form: str
) -> Visit:
    """A visit to a site (nu, tau). Units: λ = 1/p the cavity's variance, 1 where the penalty is not scale-free.

    "natural": c (|b|/2 λ + |b m| √λ) for a factor of precision b and mean m; for form "message" the factor has the
    natural parameters b·(nu, tau). "strength": c b λ; as an exponent b has no units, and c b is the penalty. A site
    that says nothing has the mean 0.
    """
    unit = 1 / p if scale_free else np.ones_like(p)
    if form == "message":
        push, pinch, strength = nu, tau, np.ones_like(p)
    else:
        push, pinch, strength = nu / np.where(tau == 0, 1.0, tau), np.ones_like(p), unit
    natural = 0.5 * np.abs(pinch) * unit + np.abs(push) * np.sqrt(unit)
    return Visit(y, epsilon, s, p, push, pinch, c * (natural if penalty == "natural" else strength))


def local_minimum(visit: Visit, start: np.ndarray, step: np.ndarray, halvings: int = 48) -> np.ndarray:
    """The first minimum of Q over b ≥ 0 on the way downhill from `start`: doubled steps, then bisection of dQ/db."""
    direction = -np.sign(visit.cost(start)[1])
    here, ahead, stride = start.copy(), start.copy(), step.copy()
    walking = (direction != 0) & ~((start == 0) & (direction < 0))
    while walking.any():
        ahead = np.where(walking, np.maximum(here + direction * stride, 0.0), ahead)
        slope = visit.cost(ahead)[1]
        onwards = walking & (slope * direction < 0) & (ahead > 0) & (ahead < LARGEST * step)
        here = np.where(onwards, ahead, here)
        stride = np.where(onwards, 2 * stride, stride)
        walking = onwards
    low, high = np.minimum(here, ahead), np.maximum(here, ahead)
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        rising = visit.cost(middle)[1] > 0
        low, high = np.where(rising, low, middle), np.where(rising, middle, high)
    return np.where((low == 0) & (visit.cost(np.zeros_like(low))[1] >= 0), 0.0, 0.5 * (low + high))


def matched(y: np.ndarray, epsilon: np.ndarray, s: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The site that turns the cavity (s, p) into the Gaussian of the tilted moments."""
    sd = 1 / np.sqrt(p)
    z = y * s * sd
    found = shape(z, epsilon)
    d1, d2 = y * found.slope / sd, -found.slope * (found.slope + z) * p
    tau = -d2 / found.ratio
    return d1 + tau * (s / p + d1 / p), tau


def relaxed_ep(
    K: Any,
    y: Any,
    epsilon: Any,
    c: Any,
    *,
    penalty: str = "natural",
    scale_free: bool = True,
    form: str = "mean",
    start: tuple[Any, Any, Any] | None = None,
    max_sweeps: int = 1000,
    tol: float = 1e-10,
) -> RelaxedRun:
    """A stack of problems: K (…, n, n), y (…, n), ε and c one each.

    start: nu, tau and b to start from; flat sites and no relaxation by default.
    tol: the largest change in a sweep of a mean in standard deviations, of a log variance, and of b in units of 1/λ.
    """
    K, y = np.asarray(K, float), np.asarray(y, float)
    lead, n = K.shape[:-2], K.shape[-1]
    epsilon, c = (np.broadcast_to(np.asarray(each, float), lead) for each in (epsilon, c))
    nu, tau, b = (np.array(part, float) for part in (start or np.zeros((3, *lead, n))))
    A, h = from_sites(K, nu, tau)
    running, sweeps = np.ones(lead, bool), np.zeros(lead, int)
    for _ in range(max_sweeps):
        before = h.copy(), diagonal(A).copy(), b.copy()
        sweeps = sweeps + running
        for i in range(n):
            p, s = 1 / A[..., i, i] - tau[..., i], h[..., i] / A[..., i, i] - nu[..., i]
            usable = running & (p > 0)
            p, s = np.where(usable, p, 1.0), np.where(usable, s, 0.0)
            visit = prepare(y[..., i], epsilon, s, p, nu[..., i], tau[..., i], c, penalty, scale_free, form)
            first = 1e-3 * (p if form == "mean" else np.ones_like(p))
            strength = local_minimum(visit, b[..., i], first)
            relaxed = np.where(usable, p + strength * visit.pinch, 1.0)
            new_nu, new_tau = matched(y[..., i], epsilon, s + strength * visit.push, relaxed)
            # Against a relaxed cavity the message may be too negative for the cavity itself: then the site stays.
            usable = usable & (p + new_tau > 0)
            change_nu, change_tau = (
                np.where(usable, new - old[..., i], 0.0) for new, old in ((new_nu, nu), (new_tau, tau))
            )
            nu[..., i] += change_nu
            tau[..., i] += change_tau
            b[..., i] = np.where(usable, strength, b[..., i])
            column = A[..., :, i].copy()
            shrink = 1 + change_tau * column[..., i]
            h = h + column * ((change_nu - change_tau * h[..., i]) / shrink)[..., None]
            A = A - column[..., :, None] * column[..., None, :] * (change_tau / shrink)[..., None, None]
        A, h = from_sites(K, nu, tau)
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = diagonal(A)
            moved = np.abs(h - before[0]) / np.sqrt(spread) + np.abs(np.log(spread / before[1]))
            moved = np.max(moved + np.abs(b - before[2]) * (spread if form == "mean" else 1.0), axis=-1)
        running = running & ~(moved <= tol)
        if not running.any():
            break
    return RelaxedRun(h, A, nu, tau, b, sweeps, ~running)


def diagonal(matrix: np.ndarray) -> np.ndarray:
    """The diagonals of a stack of matrices."""
    return np.diagonal(matrix, axis1=-2, axis2=-1)


def from_sites(K: np.ndarray, nu: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A = (K⁻¹ + T)⁻¹ (5.72) and h = A nu (5.73)."""
    A = np.linalg.solve(np.eye(K.shape[-1]) + K * tau[..., None, :], K)
    A = 0.5 * (A + np.swapaxes(A, -1, -2))
    return A, np.einsum("...ij,...j->...i", A, nu)
