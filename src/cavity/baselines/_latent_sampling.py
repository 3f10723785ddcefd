"""Monte Carlo truth for latent Gaussian models f ~ N(0, K) with independent terms t_i(f_i), errors included.

Many chains run side by side. Each starts at a draw from a Gaussian r and is led to the posterior p along

    p_β ∝ r^{1−β} (N(f; 0, K) Π_i t_i(f_i))^β,      β from 0 to 1,

by elliptical slice moves (Murray, Adams & MacKay 2010), which have no step size. The weights collected on the way
estimate the evidence without bias (annealed importance sampling, Neal 2001); the moves made after it, at β = 1, the
moments. This is done twice: with r = prior as a pilot, then with a Gaussian that has the pilot's moments, from which
the way is short. The second run's numbers are handed back, the first run's check them.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity.baselines._latent_laplace import latent_model
from cavity.factors.base import Factor

#: share of the moves at β = 1 that is thrown away before the moments are taken
BURN_IN = 0.2
#: β_k = (k/steps)^POWER: log t varies most at the start, so the first steps are the smallest
POWER = 3.0
#: proposals for one move, at most; the bracket then spans 1e-15 of a turn and the chain stays where it is
MAX_SHRINKS = 60
#: share of the pilot in the precision of the second r; the rest is the prior's, so that no tail of p is out of reach
SHARE = 0.5
#: standard errors by which the evidence of the two runs may differ before the note says so
DISAGREEMENT = 5.0


class LatentSamples(NamedTuple):
    """Posterior moments and evidence, each with the standard error that the spread of the chains gives it.

    mean, variance: of every latent, (n,). log_evidence_error: √(var w / chains) / E w for the weights w of the chains.
    effective_chains: (Σ w)² / Σ w²; where it is small the error bar is not to be trusted. evaluations: terms at one
    value each. note: a sentence to read with the result, mostly empty.
    """

    log_evidence: float
    log_evidence_error: float
    mean: np.ndarray
    mean_error: np.ndarray
    variance: np.ndarray
    variance_error: np.ndarray
    effective_chains: float
    evaluations: int
    note: str = ""


class ChainAverages(NamedTuple):
    """Log weights (chains,), each chain's averages of f and f² (chains, n), moments of z over all, and proposals made.

    z are independent coordinates of the prior: f = root z.
    """

    log_weights: Any
    first: Any
    second: Any
    z_mean: Any
    z_second: Any
    proposals: Any


class GaussianReference(NamedTuple):
    """r = N(centre, scale scaleᵀ) over z, drawn as z = centre + scale u with u ~ N(0, I), and f = root z.

    A point is (u, z − centre, f − root centre) joined: all linear in u, so an ellipse in u is one in all of them.
    """

    centre: Any
    scale: Any
    root: Any

    def draw(self, key: jax.Array) -> jax.Array:
        """A point from r."""
        u = jax.random.normal(key, self.centre.shape, self.scale.dtype)
        z = self.scale @ u
        return jnp.concatenate([u, z, self.root @ z])

    def parts(self, points: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """u, z and f of points (…, rank + rank + n)."""
        rank = self.centre.shape[0]
        u, z, f = points[..., :rank], points[..., rank : 2 * rank], points[..., 2 * rank :]
        return u, self.centre + z, self.root @ self.centre + f


@float64
def latent_sampling(
    K: Any, y: Any, factor: Factor, key: jax.Array, chains: int = 256, steps: int = 200, moves: int = 500
) -> LatentSamples:
    """Moments and log evidence of f given y, for a `factor.log_density(f_i, y_i)` that is finite everywhere.

    Args:
        K: (n, n), prior covariance of the latents.
        y: data of the terms, with n as leading axis.
        factor: the terms.
        key: made by `jax.random.key`.
        chains: independent ones in each of the two runs.
        steps: values of β, one move at each.
        moves: those made at the posterior by every chain; the first fifth is thrown away.

    Returns:
        Moments and log evidence with their standard errors.

    Raises:
        ValueError: if there are too few chains, steps or moves, or a log density is infinite.

    Examples:
        >>> import jax
        >>> import numpy as np
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> K = cv.kernels.RBF()([[0.0], [1.0], [2.0]])
        >>> found = baselines.latent_sampling(
        ...     K, np.array([1, 1, -1]), cv.factors.Logistic(), jax.random.key(0), chains=16, steps=10, moves=10
        ... )
        >>> found.mean.shape
        (3,)
    """
    for name, value, least in (("chains", chains, 2), ("steps", steps, 1), ("moves", moves, 5)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}; found {value}.")
    K, y = latent_model(K, y, factor)
    eigenvalues, basis = np.linalg.eigh(K)
    kept = eigenvalues > len(K) * np.finfo(float).eps * eigenvalues[-1]
    root = basis[:, kept] * np.sqrt(eigenvalues[kept])

    def run(reference: GaussianReference, key: jax.Array) -> ChainAverages:
        return ChainAverages(*map(np.asarray, _sample(factor, y, reference, key, chains, steps, moves)))

    pilot_key, final_key = jax.random.split(key)
    pilot = run(GaussianReference(np.zeros(root.shape[1]), np.eye(root.shape[1]), root), pilot_key)
    if not np.all(np.isfinite(pilot.log_weights)):
        name = type(factor).__name__
        raise ValueError(f"latent_sampling needs a log density that is finite everywhere; that of {name} is not.")
    return summarise_chains(run(fit_reference(pilot, root), final_key), pilot, len(K))


def fit_reference(pilot: ChainAverages, root: np.ndarray) -> GaussianReference:
    """The Gaussian with the pilot's mean and a precision between the prior's, I, and the inverse of its covariance."""
    covariance = pilot.z_second - np.outer(pilot.z_mean, pilot.z_mean)
    eigenvalues, basis = np.linalg.eigh(covariance)
    precision = (1.0 - SHARE) + SHARE / np.maximum(eigenvalues, np.finfo(float).eps * eigenvalues[-1])
    return GaussianReference(pilot.z_mean, basis / np.sqrt(precision), root)


def summarise_chains(run: ChainAverages, pilot: ChainAverages, n: int) -> LatentSamples:
    """Estimates and their errors from the spread over chains."""
    chains = len(run.log_weights)
    log_evidence, error, effective = log_mean_weight(run.log_weights)
    other, other_error, _ = log_mean_weight(pilot.log_weights)
    note = ""
    if effective < 0.1 * chains:
        note = f"Only {effective:.1f} of {chains} chains carry the evidence: take more steps."
    elif abs(log_evidence - other) > DISAGREEMENT * math.hypot(error, other_error):
        note = f"The pilot's log evidence, {other:.3f} ± {other_error:.3f}, disagrees: take more steps and moves."
    mean = run.first.mean(axis=0)
    # Every chain's second moment about the common mean: their average is the variance, their spread its error.
    spreads = run.second - 2.0 * run.first * mean + mean**2
    variance = spreads.mean(axis=0)
    mean_error, variance_error = (part.std(axis=0, ddof=1) / math.sqrt(chains) for part in (run.first, spreads))
    cost = int(run.proposals + pilot.proposals) * n
    return LatentSamples(log_evidence, error, mean, mean_error, variance, variance_error, effective, cost, note)


def log_mean_weight(log_weights: np.ndarray) -> tuple[float, float, float]:
    """log of the mean weight, its standard error, and the effective number of weights."""
    weights = np.exp(log_weights - log_weights.max())
    mean = weights.mean()
    error = weights.std(ddof=1) / (mean * math.sqrt(weights.size))
    return float(log_weights.max() + np.log(mean)), float(error), float(weights.sum() ** 2 / np.sum(weights**2))


def slice_move(
    log_target: Any, draw: Any, beta: Any, state: tuple[jax.Array, jax.Array], key: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], Any]:
    """One elliptical slice move of one chain under r exp(β log_target); state = (point, its log_target), and its cost.

    With ν drawn as points are from r, the points x cos θ + ν sin θ form an ellipse through x that r is blind to. θ is
    drawn from a bracket that shrinks towards 0, where x is, until β log_target exceeds the slice's level.
    """
    x, value = state
    noise_key, level_key, angle_key = jax.random.split(key, 3)
    nu = draw(noise_key)
    level = beta * value + jnp.log1p(-jax.random.uniform(level_key, (), x.dtype))
    draws = jax.random.uniform(angle_key, (MAX_SHRINKS + 1,), x.dtype)

    def propose(angle: jax.Array) -> tuple[jax.Array, jax.Array]:
        candidate = x * jnp.cos(angle) + nu * jnp.sin(angle)
        return candidate, log_target(candidate)

    def rejected(carry: tuple) -> jax.Array:
        return ~(beta * carry[4] > level) & (carry[5] < MAX_SHRINKS)

    def shrink(carry: tuple) -> tuple:
        angle, low, high, _, _, count = carry
        low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
        angle = low + (high - low) * draws[count]
        return angle, low, high, *propose(angle), count + 1

    first = 2.0 * jnp.pi * draws[MAX_SHRINKS]
    start = (first, first - 2.0 * jnp.pi, first, *propose(first), 0)
    _, _, _, candidate, found, count = jax.lax.while_loop(rejected, shrink, start)
    kept = beta * found > level
    return (jnp.where(kept, candidate, x), jnp.where(kept, found, value)), count + 1


@functools.partial(jax.jit, static_argnames=("chains", "steps", "moves"))
def _sample(
    factor: Factor, y: Any, coordinates: GaussianReference, key: jax.Array, chains: int, steps: int, moves: int
) -> ChainAverages:
    """Chains from draws of r to the posterior, and moves there."""
    log_det = jnp.linalg.slogdet(coordinates.scale)[1]

    def log_target(point: jax.Array) -> jax.Array:
        """log N(z; 0, I) Π t_i(f_i) / r(z) = Σ log t_i(f_i) − ½ |z|² + ½ |u|² + log |scale|."""
        u, z, f = coordinates.parts(point)
        return jnp.sum(jax.vmap(factor.log_density)(f, y)) + 0.5 * (u @ u - z @ z) + log_det

    move = jax.vmap(functools.partial(slice_move, log_target, coordinates.draw), in_axes=(None, 0, 0))
    start_key, path_key, stay_key = jax.random.split(key, 3)
    points = jax.vmap(coordinates.draw)(jax.random.split(start_key, chains))
    state = points, jax.vmap(log_target)(points)
    betas = (jnp.arange(steps + 1) / steps) ** POWER

    def anneal(k: int, carry: tuple) -> tuple:
        state, log_weights, proposals = carry
        log_weights = log_weights + (betas[k + 1] - betas[k]) * state[1]
        state, count = move(betas[k + 1], state, jax.random.split(jax.random.fold_in(path_key, k), chains))
        return state, log_weights, proposals + jnp.sum(count)

    def stay(k: int, carry: tuple) -> tuple:
        state, sums, proposals = carry
        state, count = move(1.0, state, jax.random.split(jax.random.fold_in(stay_key, k), chains))
        share = jnp.where(k >= skipped, 1.0 / (moves - skipped), 0.0)
        _, z, f = coordinates.parts(state[0])
        new = f, f**2, jnp.mean(z, axis=0), z.T @ z / chains
        sums = jax.tree.map(lambda total, term: total + share * term, sums, new)
        return state, sums, proposals + jnp.sum(count)

    skipped = int(BURN_IN * moves)
    state, log_weights, proposals = jax.lax.fori_loop(0, steps, anneal, (state, jnp.zeros(chains), jnp.array(chains)))
    n, rank = coordinates.root.shape
    sums = jnp.zeros((chains, n)), jnp.zeros((chains, n)), jnp.zeros(rank), jnp.zeros((rank, rank))
    _, (first, second, z_mean, z_second), proposals = jax.lax.fori_loop(0, moves, stay, (state, sums, proposals))
    return ChainAverages(log_weights, first, second, z_mean, z_second, proposals)
