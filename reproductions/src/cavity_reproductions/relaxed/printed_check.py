"""The printed algorithms on the five points: do they end, where, and is the printed cost the one it stands for."""

from typing import Any

import numpy as np
from scipy.integrate import quad

from cavity.reports import Table
from cavity_reproductions.relaxed import five_points, printed
from cavity_reproductions.relaxed.five_points import LABELS, POINTS, Posterior

EPSILON = 0.2
COSTS = (0.001, 0.01, 0.1, 1.0, 20.0)
POWERS = (0.5, 0.8)

#: places where the printed cost is held against the integral, and strengths b
PLACES = (printed.Site(0.9, 2.1, 1 / 0.9 - 1 / 1.3, 0.7, 1.3), printed.Site(0.5, -3.0, 0.8, -1.0, 1 / 1.2))
STRENGTHS = (0.0, 0.3, 1.0)


def divergence(site: printed.Site, b: float, epsilon: float) -> float:
    """KL(t r cavity ‖ its moment match) by quadrature, split where the step is."""
    h, lam = printed.relaxed_cavity(site, b)
    reach = 12 * np.sqrt(lam)

    def mass(f: float) -> float:
        return (1 - epsilon if f > 0 else epsilon) * np.exp(-0.5 * (f - h) ** 2 / lam) / np.sqrt(2 * np.pi * lam)

    def integral(g: Any) -> float:
        places = [0.0] if abs(h) < reach else None
        return quad(g, h - reach, h + reach, points=places, limit=200, epsabs=1e-12, epsrel=1e-11)[0]

    total = integral(mass)
    mean = integral(lambda f: f * mass(f)) / total
    variance = integral(lambda f: (f - mean) ** 2 * mass(f)) / total

    def excess(f: float) -> float:
        log_match = -0.5 * (f - mean) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance)
        return mass(f) / total * (np.log(mass(f) / total) - log_match)

    return integral(excess)


def posterior(found: printed.Printed) -> Posterior:
    """q(w) from the sites of the signed latents yᵢ wᵀxᵢ."""
    rows = POINTS * LABELS[:, None]
    covariance = np.linalg.inv(np.eye(2) + (rows.T * found.tau) @ rows)
    return Posterior(covariance @ rows.T @ found.nu, covariance)


def examine() -> dict[str, Any]:
    """All numbers of this page."""
    kernel = POINTS @ POINTS.T
    truth = five_points.exact_posterior(POINTS * LABELS[:, None], EPSILON)
    runs = []
    for c in COSTS:
        with np.errstate(all="ignore"):
            found = printed.printed_rep(kernel, LABELS, EPSILON, c)
        error = five_points.squared_errors(posterior(found), truth)[0] if found.finite else np.nan
        runs.append([c, found.sweeps, found.converged, found.finite, float(np.max(found.b)), float(error)])
    gaps = [
        [site.h, site.lam, site.m, b, printed.cost(site, b, EPSILON, 0.0), divergence(site, b, EPSILON)]
        for site in PLACES
        for b in STRENGTHS
    ]
    powers = []
    for power in POWERS:
        found = printed.printed_power(kernel, LABELS, EPSILON, power)
        powers.append([power, found.converged, posterior(found).mean])
    return {"runs": runs, "costs": gaps, "powers": powers}


def tables(result: Any, power_means: dict[float, np.ndarray]) -> tuple[Table, ...]:
    """What was found, as it is told. power_means: Power EP's mean of w on the same points, by power."""
    powers = [
        (power, settled, vector(mean), vector(power_means[power]), float(np.max(np.abs(mean - power_means[power]))))
        for power, settled, mean in result["powers"]
        if power in power_means
    ]
    return (
        Table(
            "The algorithm as printed, (12)–(17) with the cost (36), on the five points",
            ("c", "sweeps", "settled", "finite", "largest b", "mean error"),
            result["runs"],
            "Line search over all b ≥ 0, since none is printed. With b = 0 everywhere it is EP.",
        ),
        Table(
            "The printed cost (36) without c|b|, and the KL it stands for, by quadrature",
            ("cavity mean", "cavity variance", "m", "b", "printed", "KL"),
            result["costs"],
            "A KL is never negative.",
        ),
        Table(
            "Power EP as printed, (41)–(42), and Power EP",
            ("power", "settled", "mean as printed", "mean of Power EP", "largest difference"),
            powers,
        ),
    )


def vector(values: Any) -> str:
    """Numbers in a cell."""
    return ", ".join(f"{value:.4f}" for value in values)
