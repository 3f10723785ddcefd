"""The moment mismatch of EP's sites, recomputed with NumPy and SciPy alone: a referee for claims of convergence.

Takes nothing of a run but its sites, and of a problem its prior, data and likelihood. q is rebuilt from prior and
sites, a site is deleted, the tilted moments are integrated, and both are compared in the unit the library uses: the
larger of |mean − mean'| / sd and |log variance ratio|, over all sites. Every site sees one number here, its latent;
`recompute_families.py` has the others.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, log_expit, log_ndtr

import cavity as cv

#: breakpoints of the quadrature about a centre, in its widths: panels grow with the distance
MULTIPLES = np.concatenate([[0.0], 0.5 * 1.5 ** np.arange(24)])
BREAKS = np.concatenate([-MULTIPLES[:0:-1], MULTIPLES])
NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)
LOG_2PI = np.log(2 * np.pi)

#: cavity standard deviations, from the cavity's mean and from the likelihood's centre, beyond which nothing is left
REACH = 16.0


class Term(NamedTuple):
    """log t(f; yᵢ) of latents, one row per site, and a Gaussian about as wide as t: centres and widths.

    log_density takes an array (sites, values) and gives one of that shape. edges: further places, (k, sites), where t
    is not smooth.
    """

    log_density: Callable[[np.ndarray], np.ndarray]
    centres: np.ndarray
    widths: np.ndarray
    edges: np.ndarray

    def row(self, number: int, copies: int) -> "Term":
        """The term of one site, as often as there are cavities to put it to."""

        def log_density(f: np.ndarray) -> np.ndarray:
            wide = np.zeros((len(self.centres), f.size))
            wide[number] = f.ravel()
            return self.log_density(wide)[number].reshape(f.shape)

        own = np.full(copies, number)
        return Term(log_density, self.centres[own], self.widths[own], self.edges[:, own])


class Latents(NamedTuple):
    """Latent i is offset + rowsᵢ·z + eᵢ with z ~ N(0, I), eᵢ ~ N(0, residualᵢ), and has so many copies of its term."""

    rows: np.ndarray
    offset: float
    residual: np.ndarray
    copies: np.ndarray


def term(
    log_density: Callable[[np.ndarray], np.ndarray], centres: Any, widths: Any, sites: int, edges: tuple[Any, ...] = ()
) -> Term:
    """A `Term`, its places filled to one number per site."""

    def filled(own: Any) -> np.ndarray:
        return np.broadcast_to(np.asarray(own, float), (sites,))

    rows = [filled(own) for own in edges]
    return Term(log_density, filled(centres), filled(widths), np.stack(rows) if rows else np.zeros((0, sites)))


def noisy(log_t: np.ndarray, noise: float) -> np.ndarray:
    """log (ε + (1 − 2ε) t)."""
    if noise == 0:
        return log_t
    return np.logaddexp(np.log(noise), np.log1p(-2 * noise) + log_t)


def term_of(factor: Any, data: Any) -> Term:
    """A likelihood of scalar latents, written out again from its parameters and data."""
    if isinstance(factor, cv.factors.Truncation):
        low, high = (np.asarray(own)[:, None] for own in data)
        ends = [np.where(np.isfinite(own), own, 0.0)[:, 0] for own in (low, high)]
        centres = np.where(np.isfinite(low[:, 0]), ends[0], ends[1])
        with np.errstate(invalid="ignore"):
            widths = np.where(np.isfinite(high - low), high - low, 1.0)[:, 0]

        def inside(f: np.ndarray) -> np.ndarray:
            return np.where((f > low) & (f < high), 0.0, -np.inf)

        return term(inside, centres, widths, len(low), tuple(ends))
    y = np.asarray(data)[:, None]
    n = len(y)
    if isinstance(factor, cv.factors.Step):
        noise = float(factor.label_noise)
        right, wrong = np.log1p(-noise), np.log(noise) if noise > 0 else -np.inf
        return term(lambda f: np.where(y * f > 0, right, wrong), 0.0, 1.0, n, (0.0,))
    if isinstance(factor, cv.factors.Probit):
        noise = float(factor.label_noise)
        return term(lambda f: noisy(log_ndtr(y * f), noise), 0.0, 1.0, n)
    if isinstance(factor, cv.factors.Logistic):
        noise = float(factor.label_noise)
        return term(lambda f: noisy(log_expit(y * f), noise), 0.0, 2.0, n)
    if isinstance(factor, cv.factors.Gaussian):
        variance = float(factor.variance)
        return term(lambda f: -0.5 * ((f - y) ** 2 / variance + np.log(variance) + LOG_2PI), y[:, 0], variance**0.5, n)
    if isinstance(factor, cv.factors.Poisson):

        def log_count(f: np.ndarray) -> np.ndarray:
            with np.errstate(over="ignore"):
                return y * f - np.exp(f) - gammaln(y + 1)

        return term(log_count, np.log(y[:, 0] + 0.5), (y[:, 0] + 0.5) ** -0.5, n)
    if isinstance(factor, cv.factors.OrdinalProbit):
        scale, thresholds = float(factor.scale), np.asarray(factor.thresholds, float)
        ends = np.concatenate([[-np.inf], thresholds, [np.inf]])
        low, high = ends[y.astype(int)], ends[y.astype(int) + 1]
        near = [np.clip(own[:, 0], thresholds[0], thresholds[-1]) for own in (low, high)]

        def log_interval(f: np.ndarray) -> np.ndarray:
            # On the side where both tails are small.
            a, b = (low - f) / scale, (high - f) / scale
            a, b = np.where(a > 0, -b, a), np.where(a > 0, -a, b)
            upper, lower = log_ndtr(b), log_ndtr(a)
            return upper + np.log1p(-np.exp(np.minimum(lower - upper, 0.0)))

        def careful(f: np.ndarray) -> np.ndarray:
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.nan_to_num(log_interval(f), nan=-np.inf, neginf=-np.inf)

        return term(careful, 0.5 * (near[0] + near[1]), scale, n, tuple(near))
    if isinstance(factor, cv.factors.StudentT):
        df, scale = float(factor.df), float(factor.scale)
        constant = gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * np.log(df * np.pi * scale**2)
        return term(lambda f: constant - (df + 1) / 2 * np.log1p((f - y) ** 2 / (df * scale**2)), y[:, 0], scale, n)
    assert isinstance(factor, cv.factors.Clutter)
    w, spread = float(factor.w), float(factor.clutter_variance)
    background = w * np.exp(-0.5 * y**2 / spread) / np.sqrt(2 * np.pi * spread)
    return term(
        lambda f: np.log((1 - w) * np.exp(-0.5 * (f - y) ** 2) / np.sqrt(2 * np.pi) + background), y[:, 0], 1.0, n
    )


def latents_of(problem: cv.Problem) -> Latents:
    """The latents of a problem of one group that has a kernel matrix, or one number that all sites see."""
    group = problem.groups[0]
    n, copies = group.size, np.ones(group.size) if group.multiplicity is None else np.asarray(group.multiplicity, float)
    if isinstance(problem.posterior, cv.posteriors.Shared):
        nu, tau = np.asarray(problem.prior)
        return Latents(np.full((n, 1), tau**-0.5), float(nu / tau), np.zeros(n), copies)
    return kernel_latents(np.asarray(problem.prior.covariance), copies)


def kernel_latents(K: np.ndarray, copies: np.ndarray) -> Latents:
    """Latents of a kernel matrix, which may be singular."""
    values, vectors = np.linalg.eigh(K)
    return Latents(vectors * np.sqrt(np.maximum(values, 0.0)), 0.0, np.zeros(len(K)), copies)


def log_normaliser(latents: Latents, sites: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """log ∫ prior × sites, and means and variances of q's latents; nan where q is improper.

    With z's precision I + Aᵀ T A for the rows A and T = diag tau: a kernel may be singular and tau negative.
    """
    nu, tau = np.asarray(sites).T * latents.copies
    try:
        lower = np.linalg.cholesky(np.eye(latents.rows.shape[1]) + latents.rows.T @ (tau[:, None] * latents.rows))
    except np.linalg.LinAlgError:
        return np.nan, np.full(len(nu), np.nan), np.full(len(nu), np.nan)
    half = np.linalg.solve(lower, latents.rows.T)
    shift = half @ (nu - tau * latents.offset)
    own = np.sum(nu * latents.offset - 0.5 * tau * latents.offset**2)
    log_z = own + 0.5 * shift @ shift - np.sum(np.log(np.diagonal(lower)))
    return float(log_z), latents.offset + half.T @ shift, np.sum(half**2, axis=0)


def tilted_moments(
    term: Term, mean: np.ndarray, variance: np.ndarray, power: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(log Z, mean, variance) of t^power N(mean, variance), one row per site, by Gauss–Legendre on panels.

    Panels follow the cavity, the likelihood, and the product of the cavity with the Gaussian as wide as the likelihood.
    """
    sd, narrow = np.sqrt(variance), term.widths**2 / power
    product_variance = variance * narrow / (variance + narrow)
    centres = np.stack([mean, term.centres, product_variance * (mean / variance + term.centres / narrow), *term.edges])
    widths = np.stack([sd, term.widths, np.sqrt(product_variance), *(np.minimum(sd, term.widths) for _ in term.edges)])
    breaks = (centres[:, :, None] + widths[:, :, None] * BREAKS).transpose(1, 0, 2).reshape(len(mean), -1)
    ends = np.stack([mean, term.centres, *term.edges]), REACH * np.stack([sd, *[sd + term.widths] * (len(centres) - 2)])
    low, high = np.min(ends[0] - ends[1], axis=0), np.max(ends[0] + ends[1], axis=0)
    breaks = np.sort(np.clip(breaks, low[:, None], high[:, None]), axis=1)
    half = 0.5 * np.diff(breaks, axis=1)[:, :, None]
    f = (breaks[:, :-1, None] + half * (1 + NODES)).reshape(len(mean), -1)
    logs = power * term.log_density(f) - 0.5 * (f - mean[:, None]) ** 2 / variance[:, None]
    top = np.max(logs, axis=1, keepdims=True)
    mass = np.exp(logs - top) * (half * WEIGHTS).reshape(len(mean), -1)
    total = np.sum(mass, axis=1)
    # About the highest node, so that a narrow distribution far from 0 keeps its digits.
    centre = np.take_along_axis(f, np.argmax(logs, axis=1)[:, None], axis=1)
    first = np.sum(mass * (f - centre), axis=1) / total
    second = np.sum(mass * (f - centre - first[:, None]) ** 2, axis=1) / total
    return np.log(total) + top[:, 0] - 0.5 * np.log(2 * np.pi * variance), centre[:, 0] + first, second


def tilted_latents(
    term: Term, residual: np.ndarray, mean: np.ndarray, variance: np.ndarray, power: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same where the term sees the latent plus noise N(0, residual), which is given up after the power is taken."""
    wide = variance + residual
    log_z, outer_mean, outer_variance = tilted_moments(term, mean, wide, power)
    share = variance / wide
    return log_z, mean + share * (outer_mean - mean), share**2 * outer_variance + share * residual


class Verdict(NamedTuple):
    """What the sites of a run make: the largest mismatch, whether q and every cavity are proper, and the evidence."""

    mismatch: float
    proper: bool
    cavities_proper: bool
    log_evidence: float


def judge(
    latents: Latents,
    term: Term,
    sites: np.ndarray,
    power: float = 1.0,
    restricted: bool = False,
    strengths: np.ndarray | None = None,
) -> Verdict:
    """The mismatch is infinite where q or a cavity is improper.

    restricted: of restricted EP, whose message keeps the tilted mean where its precision would be negative.
    strengths: of relaxed EP: b ≥ 0 of every site. Cavity and q are multiplied by exp(b (m f − f²/2)), m the mean of
        the site.
    """
    sites, there = np.asarray(sites), latents.copies > 0
    log_z, mean, variance = log_normaliser(latents, sites)
    q = np.stack([mean / variance, 1 / variance], axis=1)
    cavity = q - power * sites
    if strengths is not None:
        b = np.asarray(strengths)
        relaxation = np.stack([np.where(b > 0, b * sites[:, 0] / np.where(b > 0, sites[:, 1], 1.0), 0.0), b], axis=1)
        q, cavity = q + relaxation, cavity + relaxation
    proper = bool(np.all(np.isfinite(q)) and np.all(q[:, 1] > 0))
    if not (proper and np.all(cavity[there, 1] > 0)):
        return Verdict(np.inf, proper, False, np.nan)
    m, v = cavity[:, 0] / cavity[:, 1], 1 / cavity[:, 1]
    log_zs, tilted_mean, tilted_variance = tilted_latents(term, latents.residual, m, v, power)
    if restricted:
        tilted_variance = np.minimum(tilted_variance, v)
    shift = np.abs(tilted_mean - q[:, 0] / q[:, 1]) * np.sqrt(q[:, 1])
    gaps = np.maximum(shift, np.abs(np.log(tilted_variance * q[:, 1])))
    # log ∫ cavity × site^power, of which nothing cancels where the site is weak
    nu, tau = power * sites.T
    log_c = 0.5 * (2 * m * nu + v * nu**2 - m**2 * tau) / (1 + v * tau) - 0.5 * np.log1p(v * tau)
    evidence = log_z + np.sum((latents.copies * (log_zs - log_c))[there]) / power
    return Verdict(float(np.max(gaps[there])), True, True, float(evidence))


def mismatch(problem: cv.Problem, sites: np.ndarray, **kind: Any) -> float:
    """The largest mismatch of a problem of one group; `kind` as `judge` takes it."""
    group = problem.groups[0]
    return judge(latents_of(problem), term_of(group.factor, group.data), sites, **kind).mismatch
