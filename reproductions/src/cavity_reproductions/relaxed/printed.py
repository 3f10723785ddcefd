"""The algorithms of the paper's section 4 and appendix exactly as printed, errors included, in plain NumPy.

They are here to be held against the definitions: relaxed EP by equation (5), and Power EP. Labels are multiplied into
the kernel, yᵢ yⱼ K, so that every label is +1. Sites are kept as nu = m/v and tau = 1/v; v = ∞, m = 0 at the start.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

#: the line search looks at b = 0 and at these multiples of the cavity's precision, then between the neighbours
PLACES = np.geomspace(1e-4, 1e4, 41)


class Printed(NamedTuple):
    """q's sites, the strengths b, the sweeps made, whether the last changed nothing, and whether all stayed finite."""

    nu: np.ndarray
    tau: np.ndarray
    b: np.ndarray
    sweeps: int
    converged: bool
    finite: bool


class Site(NamedTuple):
    """Where a visit stands: the marginal a of q, the old site (m, 1/v), the cavity h, λ."""

    a: float
    m: float
    tau: float
    h: float
    lam: float


def normal(z: float) -> float:
    """The standard normal density."""
    return float(np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi))


def relaxed_cavity(site: Site, b: float) -> tuple[float, float]:
    """(13): the cavity times r."""
    lam = 1 / (1 / site.lam + b)
    return site.h - lam * b * (site.h - site.m), lam


def matched(h: float, lam: float, epsilon: float) -> tuple[float, float, float]:
    """(14)–(15): the new mean, and 1/v and m of the term that brings it about."""
    z = h / np.sqrt(lam)
    alpha = (1 - 2 * epsilon) * normal(z) / (epsilon + (1 - 2 * epsilon) * ndtr(z)) / np.sqrt(lam)
    mean = h + lam * alpha
    tau = alpha * mean / (lam * (1 - alpha * mean))
    return mean, tau, mean + alpha / tau


def cost(site: Site, b: float, epsilon: float, c: float, appendix: bool = False) -> float:
    """(36), with F of (37)–(40). appendix: (22) of the separate appendix, which has another mean in its sixth term."""
    h, lam = relaxed_cavity(site, b)
    mean, tau, m = matched(h, lam, epsilon)
    psi = float(ndtr(h / np.sqrt(lam)))
    total = epsilon + (1 - 2 * epsilon) * psi
    right, wrong = (1 - epsilon) * np.log1p(-epsilon), epsilon * np.log(epsilon)
    spread = 1 / (1 / site.a + tau - site.tau)  # (37), (38)
    second = spread * (1 - spread * b / (spread * b + 1)) + mean**2  # (39), (40)
    sixth = mean if appendix else h
    return float(
        ((right - wrong) * psi + wrong) / total
        + 0.5 * tau * (second - mean * m)
        - 0.5 * np.log(1 + (b + tau) * site.lam)
        + 0.5 * np.log(b * site.lam + 1)
        - 0.5 * b * (site.m**2 - 2 * site.m * mean + second)
        + 0.5 * (site.m - sixth) ** 2 * b / (site.lam * b + 1)
        - np.log(total)
        + c * abs(b)
    )


def line_search(site: Site, epsilon: float, c: float, appendix: bool) -> float:
    """The b ≥ 0 of the least cost: a coarse look at all scales, then a bounded search. No cost, no candidate."""

    def value(b: float) -> float:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            found = cost(site, b, epsilon, c, appendix)
        return found if np.isfinite(found) else np.inf

    places = np.concatenate([[0.0], PLACES / site.lam])
    best = int(np.argmin([value(b) for b in places]))
    if best == 0 or best == len(places) - 1:
        return float(places[best])
    fine = minimize_scalar(value, bounds=(places[best - 1], places[best + 1]), method="bounded")
    return float(fine.x) if fine.fun < value(places[best]) else float(places[best])


def run(
    kernel: np.ndarray, y: np.ndarray, update: Callable[[Site], tuple[float, float, float]], max_sweeps: int, tol: float
) -> Printed:
    """The loop of section 4: (12), an update (1/v, m/v, b) of the site, (17); until all three stand still."""
    signed = kernel * np.outer(y, y)
    n = len(y)
    nu, tau, b = np.zeros(n), np.zeros(n), np.zeros(n)
    A, h = signed.copy(), np.zeros(n)
    for sweep in range(1, max_sweeps + 1):
        before = np.concatenate([nu, tau, b])
        for i in range(n):
            lam = 1 / (1 / A[i, i] - tau[i])
            m = nu[i] / tau[i] if tau[i] != 0 else 0.0
            site = Site(A[i, i], m, tau[i], h[i] + lam * (tau[i] * h[i] - nu[i]), lam)
            if not (np.isfinite(site).all() and lam > 0):
                return Printed(nu, tau, b, sweep, converged=False, finite=False)
            old = tau[i]
            tau[i], nu[i], b[i] = update(site)
            change, column = tau[i] - old, A[:, i].copy()
            A = A - np.outer(column, column) * (change / (1 + change * column[i]))  # δ = 1/change
            h = A @ nu
        after = np.concatenate([nu, tau, b])
        if not np.isfinite(after).all():
            return Printed(nu, tau, b, sweep, converged=False, finite=False)
        if np.max(np.abs(after - before)) <= tol * (1 + np.max(np.abs(after))):
            return Printed(nu, tau, b, sweep, converged=True, finite=True)
    return Printed(nu, tau, b, max_sweeps, converged=False, finite=True)


def printed_rep(
    kernel: np.ndarray,
    y: np.ndarray,
    epsilon: float,
    c: float,
    *,
    appendix: bool = False,
    remove: bool = True,
    max_sweeps: int = 200,
    tol: float = 1e-6,
) -> Printed:
    """Relaxed EP, (12)–(17). remove: step (e), equation (16); without it the term of (15) is the new site."""

    def update(site: Site) -> tuple[float, float, float]:
        b = line_search(site, epsilon, c, appendix)
        _, tau, m = matched(*relaxed_cavity(site, b), epsilon)
        if not remove:
            return tau, tau * m, b
        return tau + b, tau * m + b * site.m, b  # (16)

    return run(kernel, y, update, max_sweeps, tol)


def printed_power(
    kernel: np.ndarray, y: np.ndarray, epsilon: float, power: float, *, max_sweeps: int = 200, tol: float = 1e-6
) -> Printed:
    """Power EP as in the appendix: the thesis's (5.64)–(5.74) with (41), and v scaled by the power, (42)."""
    low, high = epsilon**power, (1 - epsilon) ** power

    def update(site: Site) -> tuple[float, float, float]:
        z = site.h / np.sqrt(site.lam)
        alpha = (high - low) * normal(z) / (low + (high - low) * ndtr(z)) / np.sqrt(site.lam)  # (41)
        mean = site.h + site.lam * alpha
        tau = alpha * mean / (site.lam * (1 - alpha * mean))
        m = mean + alpha / tau
        return tau / power, m * tau / power, 0.0  # (42)

    return run(kernel, y, update, max_sweeps, tol)
