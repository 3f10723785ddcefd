"""The referee of `recompute.py` for sites that see a vector, a probability, a rate, a state or several variables.

NumPy and SciPy alone. A message is a row of natural parameters, as the library documents them. What is compared:
of Gaussians |mean − mean'|/sd and |log variance ratio|, of the others expected statistics in units of their spread.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from recompute import BREAKS, NODES, WEIGHTS, Term, Verdict, tilted_moments
from scipy.special import digamma, log_expit, polygamma

import cavity as cv

#: cavity standard deviations that a grid of two dimensions reaches, its step in them, and in the width of a term
GRID_REACH, GRID_STEP, GRID_WIDTH = 11.0, 0.2, 0.2

#: what a log density of two coordinates takes (k, 2) values to
Plane = Callable[[np.ndarray], np.ndarray]


# ---------------------------------------------------------------- vectors


def as_precision(shape: str, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(shift, precision matrix) of natural parameters of a Gaussian of two coordinates."""
    if shape == "full":
        return eta[:2], eta[2:].reshape(2, 2)
    return eta[:2], np.diag(np.broadcast_to(eta[2:], 2))


def plane_moments(log_density: Plane, mean: np.ndarray, covariance: np.ndarray, width: float) -> tuple[Any, Any, Any]:
    """(log Z, mean, covariance) of t N(mean, covariance) for a term as smooth as `width`, by the trapezoidal rule."""
    root = np.linalg.cholesky(covariance)
    step = min(GRID_STEP, GRID_WIDTH * width / np.sqrt(np.max(np.linalg.eigvalsh(covariance))))
    axis = np.arange(-GRID_REACH, GRID_REACH + step, step)
    z = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    x = mean + z @ root.T
    logs = log_density(x) - 0.5 * np.sum(z**2, axis=1)
    top = logs.max()
    mass = np.exp(logs - top)
    total = mass.sum()
    first = mass @ x / total
    gap = x - first
    return np.log(total * step**2 / (2 * np.pi)) + top, first, (mass[:, None] * gap).T @ gap / total


def judge_plane(
    shape: str,
    prior: np.ndarray,
    terms: list[Plane],
    width: float,
    sites: np.ndarray,
    power: float = 1.0,
    restricted: bool = False,
) -> Verdict:
    """Of a vector that all sites see, held as a Gaussian that is "spherical", "diagonal" or "full"."""
    q = prior + np.sum(sites, axis=0)
    own = as_precision(shape, q)
    if not (np.isfinite(q).all() and np.linalg.eigvalsh(own[1])[0] > 0):
        return Verdict(np.inf, False, False, np.nan)
    cavities = [as_precision(shape, q - power * site) for site in sites]
    if min(np.linalg.eigvalsh(precision)[0] for _, precision in cavities) <= 0:
        return Verdict(np.inf, True, False, np.nan)
    covariance = np.linalg.inv(own[1])
    mean, worst = covariance @ own[0], 0.0
    for (shift, precision), log_density, site in zip(cavities, terms, sites, strict=True):
        spread = np.linalg.inv(precision)

        def powered(x: np.ndarray, log_density: Plane = log_density) -> np.ndarray:
            return power * log_density(x)

        _, first, second = plane_moments(powered, spread @ shift, spread, width / power**0.5)
        white = np.linalg.solve(np.linalg.cholesky(covariance), first - mean)
        if shape == "full":
            ratios = np.log(np.linalg.eigvals(np.linalg.solve(covariance, second)).real)
        elif shape == "diagonal":
            ratios = np.log(np.diagonal(second) / np.diagonal(covariance))
        else:
            ratios = np.atleast_1d(np.log(np.trace(second) / np.trace(covariance)))
        if restricted and shape != "full":  # a precision that is held at 0 leaves the tilted variance larger
            ratios = np.where(site[2:] <= 0, np.minimum(ratios, 0.0), ratios)
        worst = max(worst, float(np.abs(white).max()), float(np.abs(ratios).max()))
    return Verdict(worst, True, True, np.nan)


# ---------------------------------------------------------------- positive numbers and probabilities


def line_nodes(centres: list[float], widths: list[float], reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss–Legendre on panels about some centres, up to `reach` from the outermost."""
    breaks = (np.asarray(centres)[:, None] + np.asarray(widths)[:, None] * BREAKS).ravel()
    breaks = np.unique(np.clip(breaks, min(centres) - reach, max(centres) + reach))
    half = 0.5 * np.diff(breaks)[:, None]
    return (breaks[:-1, None] + half * (1 + NODES)).ravel(), (half * WEIGHTS).ravel()


def judge_shapes(
    kind: str,
    prior: np.ndarray,
    terms: list[Callable[[np.ndarray], np.ndarray]],
    sites: np.ndarray,
    power: float = 1.0,
    restricted: bool = False,
) -> Verdict:
    """Of a rate under Gamma (shape, rate), T = (log x, −x), or a probability under Beta, T = (log p, log(1 − p)).

    Terms are functions of log x, or of the log odds of p.
    """
    q = prior + np.sum(sites, axis=0)
    if not (np.isfinite(q).all() and (q > 0).all()):
        return Verdict(np.inf, False, False, np.nan)
    if ((q - power * sites) <= 0).any():
        return Verdict(np.inf, True, False, np.nan)

    def statistics(u: np.ndarray) -> np.ndarray:
        return np.stack([u, -np.exp(u)] if kind == "gamma" else [log_expit(u), log_expit(-u)])

    def expected(eta: np.ndarray) -> np.ndarray:
        a, b = eta
        if kind == "gamma":
            return np.array([digamma(a) - np.log(b), -a / b])
        return digamma(eta) - digamma(a + b)

    a, b = q
    spread = np.sqrt([polygamma(1, a), a / b**2] if kind == "gamma" else polygamma(1, q) - polygamma(1, a + b))
    worst = 0.0
    for site, log_density in zip(sites, terms, strict=True):
        cavity = q - power * site
        mode = np.log(cavity[0] / cavity[1])
        width = cavity[0] ** -0.5 if kind == "gamma" else (1 / cavity[0] + 1 / cavity[1]) ** 0.5
        own_mode = np.log(a / b)
        own_width = a**-0.5 if kind == "gamma" else (1 / a + 1 / b) ** 0.5
        u, weight = line_nodes([mode, own_mode], [min(width, 1.0), min(own_width, 1.0)], 40 * max(1.0, width**2))
        with np.errstate(over="ignore"):
            T = statistics(u)
        logs = power * log_density(u) + cavity @ T
        mass = np.exp(logs - logs.max()) * weight
        gap = (T @ mass / mass.sum() - expected(q)) / spread
        if restricted:  # at the smallest value that is allowed the slope A'(q) − tilted must not be negative
            gap = np.where(site <= 0, np.maximum(gap, 0.0), gap)
        worst = max(worst, float(np.abs(gap).max()))
    return Verdict(worst, True, True, np.nan)


def judge_mixture(densities: np.ndarray, prior: np.ndarray, sites: np.ndarray, restricted: bool = False) -> Verdict:
    """Of the weights of a mixture under a Dirichlet, T = log w: Σ w_k p_k × Dirichlet is a mixture of Dirichlets."""
    q = prior + np.sum(sites, axis=0)
    if not (np.isfinite(q).all() and (q > 0).all()):
        return Verdict(np.inf, False, False, np.nan)
    cavities = q - sites
    if (cavities <= 0).any():
        return Verdict(np.inf, True, False, np.nan)
    total = cavities.sum(axis=1, keepdims=True)
    shares = densities * cavities
    shares = shares / shares.sum(axis=1, keepdims=True)
    # ψ(c + 1) = ψ(c) + 1/c, with the share of the component that gained one
    tilted = digamma(cavities) + shares / cavities - digamma(total + 1)
    spread = np.sqrt(polygamma(1, q) - polygamma(1, q.sum()))
    gap = (tilted - (digamma(q) - digamma(q.sum()))) / spread
    if restricted:
        gap = np.where(sites <= 0, np.maximum(gap, 0.0), gap)
    return Verdict(float(np.abs(gap).max()), True, True, np.nan)


# ---------------------------------------------------------------- discrete states


def as_weights(eta: np.ndarray) -> np.ndarray:
    """Weights of states from log weights and counts of zeros."""
    logs, zeros = np.split(eta, 2, axis=-1)
    logs = np.where(zeros > 0.5, -np.inf, logs)
    return np.exp(logs - np.max(logs, axis=-1, keepdims=True))


def probabilities(eta: np.ndarray) -> np.ndarray:
    """Normalised."""
    w = as_weights(eta)
    return w / w.sum(axis=-1, keepdims=True)


def judge_network(problem: cv.Problem, sites: tuple[np.ndarray, ...], power: float = 1.0) -> Verdict:
    """Of a network of discrete variables, each factor a table: sums over its own states."""
    q = [np.array(own, float) for own in problem.prior.etas]
    for group, own in zip(problem.groups, sites, strict=True):
        for messages, rows in zip(own, np.asarray(problem.prior.wires[group.scope.group]), strict=True):
            start = 0
            for slot, family in enumerate(group.scope.slots):
                size = q[family].shape[1]
                q[family][rows[slot]] += messages[start : start + size]
                start += size
    worst = 0.0
    for group, own in zip(problem.groups, sites, strict=True):
        tables = np.asarray(group.data)
        for table, messages, rows in zip(tables, own, np.asarray(problem.prior.wires[group.scope.group]), strict=True):
            joint, start, slots = np.where(np.isfinite(table), np.exp(power * table), 0.0), 0, group.scope.slots
            seen = [q[family][rows[slot]] for slot, family in enumerate(slots)]
            for slot, eta in enumerate(seen):
                cavity = as_weights(eta - power * messages[start : start + eta.size])
                joint = joint * np.expand_dims(cavity, [k for k in range(len(slots)) if k != slot])
                start += eta.size
            for slot, eta in enumerate(seen):
                found = joint.sum(axis=tuple(k for k in range(len(slots)) if k != slot))
                p, right = found / found.sum(), probabilities(eta)
                gap = np.abs(p - right)
                spread = np.sqrt(np.maximum(right * (1 - right), 1e-300))
                worst = max(worst, float(np.max(np.where(gap > 1e-13, gap / spread, 0.0))))
    return Verdict(worst if np.isfinite(worst) else np.inf, bool(np.isfinite(worst)), True, np.nan)


# ---------------------------------------------------------------- graphs of real and positive variables


def linear_tilted(data: Any, number: int, cavity: np.ndarray) -> np.ndarray | None:
    """Means and variances of the variables of Σ w x + offset = N(0, variance) under Gaussian cavities, (2, slots)."""
    w, offset, variance = (np.asarray(own)[number] for own in data)
    J = np.diag(cavity[:, 1]) + np.outer(w, w) / variance
    if np.linalg.eigvalsh(J)[0] <= 0:
        return None
    covariance = np.linalg.inv(J)
    return np.stack([covariance @ (cavity[:, 0] - w * offset / variance), np.diagonal(covariance)])


def precision_tilted(value: float, x: np.ndarray, gamma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """N(value; x, 1/λ) under x ~ N and λ ~ Gamma: (mean, variance) of x and (E log λ, −E λ)."""
    m, v = x[0] / x[1], 1 / x[1]
    u, weight = line_nodes(
        [np.log(gamma[0] / gamma[1]), -np.log(v + (value - m) ** 2)], [min(1.0, gamma[0] ** -0.5), 1.0], 60.0
    )
    noise = np.exp(-u)
    logs = gamma[0] * u - gamma[1] * np.exp(u) - 0.5 * ((value - m) ** 2 / (v + noise) + np.log(v + noise))
    mass = np.exp(logs - logs.max()) * weight
    mass /= mass.sum()
    share = v / (v + noise)
    means, variance = m + share * (value - m), share * noise
    mean = mass @ means
    return np.array([mean, mass @ (variance + (means - mean) ** 2)]), np.array([mass @ u, -(mass @ np.exp(u))])


def gaussian_gap(eta: np.ndarray, cavity: np.ndarray, mean: float, variance: float, restricted: bool) -> float:
    """Between q and tilted moments of a real variable; a message held at 0 leaves the variance of its cavity."""
    if restricted and cavity[1] > 0:
        variance = min(variance, 1 / cavity[1])
    return max(abs(mean - eta[0] / eta[1]) * eta[1] ** 0.5, abs(np.log(variance * eta[1])))


def judge_graph(
    problem: cv.Problem,
    terms: dict[int, Term],
    sites: tuple[np.ndarray, ...],
    power: float = 1.0,
    restricted: bool = False,
) -> Verdict:
    """Of a graph of real and positive variables; `terms` has those that see one real variable, by group."""
    q = [np.array(own, float) for own in problem.prior.etas]
    wires = [np.asarray(problem.prior.wires[group.scope.group]) for group in problem.groups]
    for group, own, rows in zip(problem.groups, sites, wires, strict=True):
        for slot, family in enumerate(group.scope.slots):  # every family here has two parameters
            np.add.at(q[family], rows[:, slot], own[:, 2 * slot : 2 * slot + 2])
    if not all(np.isfinite(own).all() and (own[:, 1] > 0).all() for own in q):
        return Verdict(np.inf, False, False, np.nan)
    worst = 0.0
    for number, (group, own, rows) in enumerate(zip(problem.groups, sites, wires, strict=True)):
        for place, messages in enumerate(own):
            seen = np.stack([q[family][rows[place, slot]] for slot, family in enumerate(group.scope.slots)])
            cavity = seen - power * messages.reshape(-1, 2)
            if isinstance(group.factor, cv.factors.Linear):
                found = linear_tilted(group.data, place, cavity)
                if found is None:
                    return Verdict(np.inf, True, False, np.nan)
                gaps = [
                    gaussian_gap(eta, own_cavity, *moments, restricted)
                    for eta, own_cavity, moments in zip(seen, cavity, found.T, strict=True)
                ]
            elif not (cavity[:, 1] > 0).all():
                return Verdict(np.inf, True, False, np.nan)
            elif isinstance(group.factor, cv.factors.GaussianPrecision):
                x, rate = precision_tilted(float(np.asarray(group.data)[place]), *cavity)
                a, b = seen[1]
                expected, spread = np.array([digamma(a) - np.log(b), -a / b]), np.sqrt([polygamma(1, a), a / b**2])
                gap = (rate - expected) / spread
                if restricted:
                    gap = np.where(messages[2:] <= 0, np.maximum(gap, 0.0), gap)
                gaps = [gaussian_gap(seen[0], cavity[0], *x, restricted), float(np.abs(gap).max())]
            else:
                m, v = cavity[:, 0] / cavity[:, 1], 1 / cavity[:, 1]
                _, mean, variance = tilted_moments(terms[number].row(place, 1), m, v, power)
                gaps = [gaussian_gap(seen[0], cavity[0], mean[0], variance[0], restricted)]
            worst = max(worst, *gaps)
    return Verdict(float(worst), True, True, np.nan)
