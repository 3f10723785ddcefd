"""Exact log evidence of small problems, sharing nothing with the library: sums, arcs of a circle, quadrature.

clutter   all 2ⁿ assignments of points to signal or clutter
step      depends on the direction of w alone: arcs of a circle, exactly; in three dimensions of circles of
          latitude, by the midpoint rule over their height
others    Gauss–Legendre on panels along a line, one line inside another, or the trapezoidal rule on a plane
"""

from collections.abc import Callable

import numpy as np
from recompute import BREAKS, LOG_2PI, NODES, WEIGHTS, Latents, Term, tilted_moments
from scipy.interpolate import CubicSpline
from scipy.special import gammaln, log_expit, logsumexp

#: circles of latitude on the sphere
CIRCLES = 40_000

# ---------------------------------------------------------------- clutter


def subset_sums(terms: np.ndarray) -> np.ndarray:
    """Sums of the rows of `terms` over all subsets, one row a subset."""
    sums = np.zeros((1, terms.shape[1]))
    for row in terms:
        sums = np.concatenate([sums, sums + row])
    return sums


def clutter_evidence(x: np.ndarray, w: float, clutter_variance: float = 10.0, prior_variance: float = 100.0) -> float:
    """Σ over sets S of signal points of their joint density under θ ~ N(0, v I), times the clutter density of the rest.

    log |S points| = Σ_S (log (1−w) − d/2 log 2π − ½|x|²) + ½ |Σ_S x|² / (|S| + 1/v) − d/2 log(1 + |S| v).
    """
    d = x.shape[1]
    squares = np.sum(x**2, axis=1)
    background = np.log(w) - 0.5 * (squares / clutter_variance + d * (LOG_2PI + np.log(clutter_variance)))
    signal = np.log(1 - w) - 0.5 * (squares + d * LOG_2PI)
    # Per point: one, its coordinates, and what choosing it as signal changes.
    sums = subset_sums(np.column_stack([np.ones(len(x)), x, signal - background]))
    count, total, change = sums[:, 0], sums[:, 1:-1], sums[:, -1]
    joint = 0.5 * np.sum(total**2, axis=1) / (count + 1 / prior_variance) - 0.5 * d * np.log1p(count * prior_variance)
    return float(logsumexp(change + joint) + background.sum())


# ---------------------------------------------------------------- step


def circle_average(a: np.ndarray, b: np.ndarray, c: np.ndarray, noise: float) -> np.ndarray:
    """Average over φ of ∏_i t(a_i cos φ + b_i sin φ + c_i), t(f) = 1 − ε where f > 0 and ε elsewhere; a, b, c: (m, n).

    Between the angles where one of the sites changes its sign the product is constant, and those angles are known.
    """
    radius, centre = np.hypot(a, b), np.arctan2(b, a)
    crossing = np.abs(c) < radius
    half = np.arccos(np.clip(-c / radius, -1.0, 1.0))  # positive for |φ − centre| < half
    edges = np.concatenate([centre - half, centre + half], axis=1) % (2 * np.pi)
    edges = np.where(np.concatenate([crossing, crossing], axis=1), edges, 0.0)
    edges = np.sort(np.concatenate([np.zeros((len(a), 1)), edges, np.full((len(a), 1), 2 * np.pi)], axis=1), axis=1)
    middle = 0.5 * (edges[:, 1:] + edges[:, :-1])
    wrong = np.zeros(middle.shape, int)
    for i in range(a.shape[1]):
        wrong += a[:, i, None] * np.cos(middle) + b[:, i, None] * np.sin(middle) + c[:, i, None] <= 0
    levels = noise ** np.arange(a.shape[1] + 1) * (1 - noise) ** np.arange(a.shape[1], -1, -1)
    return np.sum(np.diff(edges, axis=1) * levels[wrong], axis=1) / (2 * np.pi)


def step_evidence(rows: np.ndarray, noise: float, circles: int = CIRCLES) -> float:
    """log E ∏ t(rows_i · w) for w ~ N(0, I), of which only the direction counts; rows are y_i x_i."""
    n, d = rows.shape
    if d == 1:
        right = np.array([np.sum(rows > 0), np.sum(rows < 0)])
        return float(np.log(np.mean((1 - noise) ** right * noise ** (n - right))))
    if d == 2:
        return float(np.log(circle_average(rows[None, :, 0], rows[None, :, 1], np.zeros((1, n)), noise)[0]))
    found = []
    for height in np.array_split((np.arange(circles) + 0.5) / circles * 2 - 1, max(1, circles // 500)):
        radius = np.sqrt(1 - height**2)[:, None]
        found.append(circle_average(radius * rows[:, 0], radius * rows[:, 1], height[:, None] * rows[:, 2], noise))
    return float(np.log(np.mean(np.concatenate(found))))


# ---------------------------------------------------------------- any likelihood, one or two numbers


def copied(term: Term, copies: np.ndarray) -> Term:
    """The term of a row that stands for several, each site's own power."""
    return term._replace(
        log_density=lambda f: copies[:, None] * term.log_density(f), widths=term.widths / np.sqrt(copies)
    )


def log_sum(logs: np.ndarray, weights: np.ndarray) -> float:
    """log Σ weights exp(logs)."""
    return float(logsumexp(logs, b=weights))


def line_evidence(latents: Latents, term: Term) -> float:
    """log ∫ N(z; 0, 1) ∏ t(offset + aᵢ z)^copies dz, for rows of one number and no residual."""
    a, own = latents.rows[:, 0], copied(term, latents.copies)
    places = np.concatenate([own.centres, *own.edges]) - latents.offset
    slopes = np.tile(a, 1 + len(own.edges))
    seen = np.abs(slopes) > 1e-12
    centres = np.concatenate([[0.0], places[seen] / slopes[seen]])
    widths = np.concatenate([[1.0], (np.tile(own.widths, 1 + len(own.edges)) / np.abs(slopes))[seen]])
    breaks = np.unique(np.clip(centres[:, None] + widths[:, None] * BREAKS, -40.0, 40.0))
    half = 0.5 * np.diff(breaks)[:, None]
    z = (breaks[:-1, None] + half * (1 + NODES)).ravel()
    logs = np.sum(own.log_density(latents.offset + a[:, None] * z), axis=0) - 0.5 * (z**2 + LOG_2PI)
    return log_sum(logs, (half * WEIGHTS).ravel())


def pair_evidence(K: np.ndarray, copies: np.ndarray, term: Term) -> float:
    """log ∫ N(f; 0, K) t(f₁) t(f₂) df of two latents, the second integrated given the first."""
    own = copied(term, copies)
    slope = K[0, 1] / K[0, 0]
    spread = max(K[1, 1] - slope * K[0, 1], 1e-13 * K[1, 1])
    sd, centres, widths = np.sqrt(K[0, 0]), [0.0, own.centres[0]], [np.sqrt(K[0, 0]), own.widths[0]]
    centres += [edge[0] for edge in own.edges]
    widths += [np.sqrt(spread)] * len(own.edges)
    if abs(slope) > 1e-12:  # where the second term lies, seen from the first latent
        places = [own.centres[1], *(edge[1] for edge in own.edges)]
        centres += [place / slope for place in places]
        widths += [np.sqrt(spread + own.widths[1] ** 2) / abs(slope)] + [np.sqrt(spread) / abs(slope)] * len(own.edges)
    reach = 40 * sd
    breaks = np.unique(np.clip(np.asarray(centres)[:, None] + np.asarray(widths)[:, None] * BREAKS, -reach, reach))
    half = 0.5 * np.diff(breaks)[:, None]
    f = (breaks[:-1, None] + half * (1 + NODES)).ravel()
    logs = own.row(0, 1).log_density(f[None])[0] - 0.5 * (f**2 / K[0, 0] + np.log(K[0, 0]) + LOG_2PI)
    weights = (half * WEIGHTS).ravel()
    keep = logs > logs.max() - 800
    f, logs, weights = f[keep], logs[keep], weights[keep]
    inner = [
        tilted_moments(own.row(1, len(piece)), slope * piece, np.full(len(piece), spread), 1.0)[0]
        for piece in np.array_split(f, max(1, len(f) // 200))
    ]
    return log_sum(logs + np.concatenate(inner), weights)


#: nodes along one axis of a plane beyond which no answer is given
MOST_NODES = 3000


def plane_evidence(
    log_likelihood: Callable[[np.ndarray], np.ndarray], mean: np.ndarray, covariance: np.ndarray, width: float
) -> float | None:
    """log ∫ N(x; mean, covariance) L(x) dx of two numbers by the trapezoidal rule, for L as smooth as `width`.

    None where that takes too many nodes. log_likelihood takes (k, 2) values.
    """
    root = np.linalg.cholesky(covariance)
    step = min(0.2, 0.25 * width / np.sqrt(np.max(np.linalg.eigvalsh(covariance))))
    axis = np.arange(-10.0, 10.0 + step, step)
    if axis.size > MOST_NODES:
        return None
    found = []
    for piece in np.array_split(axis, max(1, axis.size**2 // 100_000)):
        z = np.stack(np.meshgrid(piece, axis, indexing="ij"), axis=-1).reshape(-1, 2)
        found.append(logsumexp(log_likelihood(mean + z @ root.T) - 0.5 * np.sum(z**2, axis=1)))
    return float(logsumexp(found) + 2 * np.log(step) - LOG_2PI)


def rows_evidence(latents: Latents, term: Term) -> float | None:
    """log ∫ N(z; 0, I) ∏ t(aᵢ·z + eᵢ)^copies of rows of two numbers; None where a grid takes too many nodes."""
    own, noisy = copied(term, latents.copies), np.any(latents.residual > 0)

    def log_likelihood(z: np.ndarray) -> np.ndarray:
        f = latents.offset + latents.rows @ z.T
        if not noisy:
            return np.sum(own.log_density(f), axis=0)
        return np.sum(table(f), axis=0)

    widths = np.sqrt(own.widths**2 + latents.residual)
    width = float(np.min(widths / np.maximum(np.linalg.norm(latents.rows, axis=1), 1e-12)))
    if noisy:
        table = smoothed(own, latents)
    return plane_evidence(log_likelihood, np.zeros(2), np.eye(2), width)


def smoothed(own: Term, latents: Latents) -> Callable[[np.ndarray], np.ndarray]:
    """log ∫ t(f + e) N(e; 0, residual) de of every site, from a fine table."""
    reach = 15 * np.linalg.norm(latents.rows, axis=1)
    grids = reach[:, None] * np.linspace(-1, 1, 2001)
    values = []
    for number, grid in enumerate(grids):
        residual = np.full(grid.size, max(latents.residual[number], 1e-12))
        values.append(tilted_moments(own.row(number, grid.size), grid, residual, 1.0)[0])
    curves = [CubicSpline(grid, own) for grid, own in zip(grids, values, strict=True)]
    return lambda f: np.stack([curve(row) for curve, row in zip(curves, f, strict=True)])


# ---------------------------------------------------------------- other families


def mixture_evidence(densities: np.ndarray, prior: np.ndarray) -> float:
    """log E ∏ Σ_k w_k p_k(xᵢ) under Dirichlet weights: the sum over all assignments, by how many each component has."""
    counts = {(0,) * len(prior): 0.0}
    for row in np.log(densities):
        grown: dict[tuple[int, ...], float] = {}
        for count, log_p in counts.items():
            for k, own in enumerate(row):
                key = (*count[:k], count[k] + 1, *count[k + 1 :])
                grown[key] = float(np.logaddexp(grown.get(key, -np.inf), log_p + own))
        counts = grown
    n, total = len(densities), prior.sum()
    terms = [
        log_p + np.sum(gammaln(prior + count) - gammaln(prior)) - gammaln(total + n) + gammaln(total)
        for count, log_p in counts.items()
    ]
    return float(logsumexp(terms))


def shapes_evidence(kind: str, prior: np.ndarray, log_likelihood: Callable[[np.ndarray], np.ndarray]) -> float:
    """log ∫ Gamma or Beta × likelihood, a function of log x or of the log odds, by the trapezoidal rule."""
    u = np.linspace(-60, 60, 240_001)
    a, b = prior
    if kind == "gamma":
        with np.errstate(over="ignore"):
            log_prior = a * np.log(b) - gammaln(a) + a * u - b * np.exp(u)
    else:
        log_prior = gammaln(a + b) - gammaln(a) - gammaln(b) + a * log_expit(u) + b * log_expit(-u)
    return float(logsumexp(log_prior + log_likelihood(u)) + np.log(u[1] - u[0]))
