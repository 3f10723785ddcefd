"""The moment mismatch of EP's sites, recomputed with NumPy and SciPy alone: a referee for claims of convergence.

Takes nothing of a run but its sites, and of a problem its prior, data and likelihood. q is rebuilt from prior and
sites, a site is deleted, the tilted moments are integrated, and both are compared in the unit the library uses: the
larger of |mean − mean'| / sd and |log variance ratio|, over all sites.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, log_ndtr

import cavity as cv

#: breakpoints of the quadrature about a centre, in its widths: panels grow with the distance
MULTIPLES = np.concatenate([[0.0], 0.5 * 1.5 ** np.arange(24)])
BREAKS = np.concatenate([-MULTIPLES[:0:-1], MULTIPLES])
NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)

#: cavity standard deviations, from the cavity's mean and from the likelihood's centre, beyond which nothing is left
REACH = 16.0


class Term(NamedTuple):
    """log t(f; yᵢ) for an array of latents, one row per site, and a Gaussian about as wide as t: centres and widths."""

    log_density: Callable[[np.ndarray], np.ndarray]
    centres: np.ndarray
    width: float


def term_of(problem: cv.Problem) -> Term:
    """The likelihood of a problem of one group, written out again from its parameters and data."""
    factor, y = problem.groups[0].factor, np.asarray(problem.groups[0].data)[:, None]
    if isinstance(factor, cv.factors.Step):
        noise = float(factor.label_noise)
        return Term(lambda f: np.log(np.where(y * f > 0, 1 - noise, noise)), np.zeros(len(y)), 1.0)
    if isinstance(factor, cv.factors.Probit):
        return Term(lambda f: log_ndtr(y * f), np.zeros(len(y)), 1.0)
    if isinstance(factor, cv.factors.StudentT):
        df, scale = float(factor.df), float(factor.scale)
        constant = gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * np.log(df * np.pi * scale**2)
        return Term(lambda f: constant - (df + 1) / 2 * np.log1p((f - y) ** 2 / (df * scale**2)), y[:, 0], scale)
    assert isinstance(factor, cv.factors.Clutter)
    w, spread = float(factor.w), float(factor.clutter_variance)
    background = w * np.exp(-0.5 * y**2 / spread) / np.sqrt(2 * np.pi * spread)
    return Term(lambda f: np.log((1 - w) * np.exp(-0.5 * (f - y) ** 2) / np.sqrt(2 * np.pi) + background), y[:, 0], 1.0)


def marginals(problem: cv.Problem, sites: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of q's marginals, one a site; nan where q is improper.

    With K = L Lᵀ and T = diag tau, covariance = L (I + Lᵀ T L)⁻¹ Lᵀ: K may be singular and tau negative.
    """
    nu, tau = sites.T
    if isinstance(problem.groups[0].factor, cv.factors.Clutter):
        total = np.asarray(problem.prior) + sites.sum(axis=0)
        variance = 1 / total[1] if total[1] > 0 else np.nan
        return np.full(len(nu), total[0] * variance), np.full(len(nu), variance)
    values, vectors = np.linalg.eigh(np.asarray(problem.prior.covariance))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    try:
        lower = np.linalg.cholesky(np.eye(len(nu)) + root.T @ (tau[:, None] * root))
    except np.linalg.LinAlgError:
        return np.full(len(nu), np.nan), np.full(len(nu), np.nan)
    half = np.linalg.solve(lower, root.T)
    return half.T @ (half @ nu), np.sum(half**2, axis=0)


def tilted_moments(
    term: Term, mean: np.ndarray, variance: np.ndarray, power: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(log Z, mean, variance) of t^power N(mean, variance), one row per site, by Gauss–Legendre on panels.

    Panels follow the cavity, the likelihood, and the product of the cavity with the Gaussian as wide as the likelihood.
    """
    sd, narrow = np.sqrt(variance), term.width**2 / power
    product_variance = variance * narrow / (variance + narrow)
    centres = np.stack([mean, term.centres, product_variance * (mean / variance + term.centres / narrow)])
    widths = np.stack([sd, np.full_like(sd, term.width), np.sqrt(product_variance)])
    breaks = (centres[:, :, None] + widths[:, :, None] * BREAKS).transpose(1, 0, 2).reshape(len(mean), -1)
    ends = np.stack([mean, term.centres]), REACH * np.stack([sd, sd + term.width])
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


def mismatch(
    problem: cv.Problem,
    sites: np.ndarray,
    power: float = 1.0,
    restricted: bool = False,
    strengths: np.ndarray | None = None,
) -> float:
    """The largest mismatch over all sites; infinite where q or a cavity is improper.

    restricted: of restricted EP, whose message keeps the tilted mean where its precision would be negative.
    strengths: of relaxed EP: b ≥ 0 of every site. Cavity and q are multiplied by exp(b (m f − f²/2)), m the mean of
        the site.
    """
    sites = np.asarray(sites)
    mean, variance = marginals(problem, sites)
    q = np.stack([mean / variance, 1 / variance], axis=1)
    cavity = q - power * sites
    if strengths is not None:
        b = np.asarray(strengths)
        relaxation = np.stack([np.where(b > 0, b * sites[:, 0] / np.where(b > 0, sites[:, 1], 1.0), 0.0), b], axis=1)
        q, cavity = q + relaxation, cavity + relaxation
    if not (np.all(np.isfinite(q)) and np.all(q[:, 1] > 0) and np.all(cavity[:, 1] > 0)):
        return np.inf
    _, tilted_mean, tilted_variance = tilted_moments(
        term_of(problem), cavity[:, 0] / cavity[:, 1], 1 / cavity[:, 1], power
    )
    if restricted:
        tilted_variance = np.minimum(tilted_variance, 1 / cavity[:, 1])
    shift = np.abs(tilted_mean - q[:, 0] / q[:, 1]) * np.sqrt(q[:, 1])
    return float(np.max(np.maximum(shift, np.abs(np.log(tilted_variance * q[:, 1])))))
