"""Hard problems of all likelihoods, families and forms, with a referee and, where it can be had, the exact evidence.

A kind is a function of a generator of random numbers and `small`, which asks for a problem small enough that its
evidence is known. Problems of one kind have few shapes, so that little is compiled. Hard are length scales from far
below to far above the distances, latents of standard deviations 0.1 to 30, weights up to 50, vague priors, and what
`hard_likelihoods.py` and `hard_graphs.py` draw.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from exact_evidence import (
    clutter_evidence,
    line_evidence,
    mixture_evidence,
    pair_evidence,
    plane_evidence,
    rows_evidence,
    shapes_evidence,
    step_evidence,
)
from hard_graphs import mean_and_precision, robust_line, spins, state, tables
from hard_likelihoods import (
    LIKELIHOODS,
    Case,
    Draw,
    Likelihood,
    clutter,
    log_uniform,
    logistic,
    poisson,
    probit,
    step,
    student_t,
    truncation,
    two_bumps,
)
from recompute import Latents, Term, Verdict, judge, kernel_latents
from recompute_families import judge_mixture, judge_plane, judge_shapes
from scipy.special import log_expit

import cavity as cv

#: rows of a problem that is not small
ROWS = (6, 20, 30)


def scalar_case(problem: Any, latents: Latents, term: Term, exact: Callable[[], float | None] = lambda: None) -> Case:
    def referee(sites: Any, **kind: Any) -> Verdict:
        return judge(latents, term, sites[0], **kind)

    return Case(problem, referee, exact)


def copies_of(rng: np.random.Generator, likelihood: Likelihood, n: int) -> np.ndarray:
    return np.rint(np.exp(rng.uniform(0, np.log(50), n))) if likelihood.weighted else np.ones(n)


def inputs(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.standard_normal((n, 1)) * 2.0


def rbf(x: np.ndarray, z: np.ndarray, amplitude: float, length: float) -> np.ndarray:
    return amplitude**2 * np.exp(-0.5 * np.sum((x[:, None] - z[None]) ** 2, axis=2) / length**2)


def drawn(rng: np.random.Generator, latents: Latents) -> np.ndarray:
    """One draw of the latents."""
    own = latents.rows @ rng.standard_normal(latents.rows.shape[1])
    return latents.offset + own + np.sqrt(latents.residual) * rng.standard_normal(len(own))


def kernel_form(make: Callable[..., Likelihood]) -> Draw:
    def draw(rng: np.random.Generator, small: bool) -> Case:
        n = 2 if small else int(rng.choice(ROWS))
        x = inputs(rng, n)
        K = rbf(x, x, log_uniform(rng, 0.1, 30.0), log_uniform(rng, 0.05, 5.0))
        likelihood = make(rng, drawn(rng, kernel_latents(K, np.ones(n))))
        copies = copies_of(rng, likelihood, n)
        model = cv.models.latent_gaussian(
            likelihood.data, likelihood.factor, kernel_matrix=K, multiplicity=copies if likelihood.weighted else None
        )
        exact = (lambda: pair_evidence(K, copies, likelihood.term)) if small else lambda: None
        return scalar_case(model, kernel_latents(K, copies), likelihood.term, exact)

    return draw


def weight_form(make: Callable[..., Likelihood]) -> Draw:
    def draw(rng: np.random.Generator, small: bool) -> Case:
        n = 6 if small else int(rng.choice(ROWS))
        X = rng.standard_normal((n, 2)) * [log_uniform(rng, 0.1, 5.0), log_uniform(rng, 0.1, 5.0)]
        likelihood = make(rng, drawn(rng, Latents(X, 0.0, np.zeros(n), np.ones(n))))
        latents = Latents(X, 0.0, np.zeros(n), copies_of(rng, likelihood, n))
        multiplicity = latents.copies if likelihood.weighted else None
        model = cv.models.latent_gaussian(likelihood.data, likelihood.factor, X=X, multiplicity=multiplicity)

        def exact() -> float | None:
            if not small:
                return None
            if isinstance(likelihood.factor, cv.factors.Step):
                return step_evidence(np.asarray(likelihood.data)[:, None] * X, float(likelihood.factor.label_noise))
            return rows_evidence(latents, likelihood.term)

        return scalar_case(model, latents, likelihood.term, exact)

    return draw


def inducing_form(make: Callable[..., Likelihood]) -> Draw:
    """Two inducing inputs; a row sees aᵀv + e with a = L⁻¹ k(Z, x)."""

    def draw(rng: np.random.Generator, small: bool) -> Case:
        n = 6 if small else int(rng.choice(ROWS))
        x, Z = inputs(rng, n), np.array([[-1.0], [1.5]])
        amplitude, length = log_uniform(rng, 0.3, 10.0), log_uniform(rng, 0.3, 5.0)
        inner = rbf(Z, Z, amplitude, length)
        lower = np.linalg.cholesky(inner + 1e-10 * np.mean(np.diagonal(inner)) * np.eye(2))
        rows = np.linalg.solve(lower, rbf(Z, x, amplitude, length)).T
        reached = np.sum(rows**2, axis=1)
        lost = reached < 1e-20 * amplitude**2
        rows[lost, 0] = 1e-10 * amplitude
        residual = np.maximum(amplitude**2 - reached, 0.0)
        likelihood = make(rng, drawn(rng, Latents(rows, 0.0, residual, np.ones(n))))
        latents = Latents(rows, 0.0, residual, copies_of(rng, likelihood, n))
        model = cv.models.latent_gaussian(
            likelihood.data,
            likelihood.factor,
            X=x,
            kernel=amplitude**2 * cv.kernels.RBF(length),
            basis=cv.kernels.InducingInputs(Z),
            multiplicity=latents.copies if likelihood.weighted else None,
        )
        # copies of a row have residuals of their own, of which the tables of the exact answer know nothing
        known = small and not likelihood.weighted
        exact = (lambda: rows_evidence(latents, likelihood.term)) if known else lambda: None
        return scalar_case(model, latents, likelihood.term, exact)

    return draw


def feature_form(make: Callable[..., Likelihood]) -> Draw:
    """One random frequency ω: a row sees s (cos ωx/ℓ, sin ωx/ℓ)·v."""

    def draw(rng: np.random.Generator, small: bool) -> Case:
        n = 6 if small else int(rng.choice(ROWS))
        x, omega = inputs(rng, n), rng.standard_normal((1, 1))
        amplitude, length = log_uniform(rng, 0.3, 10.0), log_uniform(rng, 0.3, 5.0)
        phases = x * omega[0, 0] / length
        rows = amplitude * np.concatenate([np.cos(phases), np.sin(phases)], axis=1)
        likelihood = make(rng, drawn(rng, Latents(rows, 0.0, np.zeros(n), np.ones(n))))
        latents = Latents(rows, 0.0, np.zeros(n), copies_of(rng, likelihood, n))
        model = cv.models.latent_gaussian(
            likelihood.data,
            likelihood.factor,
            X=x,
            kernel=amplitude**2 * cv.kernels.RBF(length),
            basis=cv.kernels.RandomFeatures((omega,)),
            multiplicity=latents.copies if likelihood.weighted else None,
        )
        exact = (lambda: rows_evidence(latents, likelihood.term)) if small else lambda: None
        return scalar_case(model, latents, likelihood.term, exact)

    return draw


# ---------------------------------------------------------------- one unknown


def one_number(make: Callable[..., Likelihood]) -> Draw:
    """A number that eight sites see."""

    def draw(rng: np.random.Generator, small: bool) -> Case:
        n, mean, sd = 8, 3 * rng.standard_normal(), log_uniform(rng, 0.3, 100.0)
        prior = Latents(np.full((n, 1), sd), mean, np.zeros(n), np.ones(n))
        likelihood = make(rng, drawn(rng, prior))
        latents = prior._replace(copies=copies_of(rng, likelihood, n))
        problem = cv.models.posterior(
            likelihood.factor,
            likelihood.data,
            mean,
            sd**2,
            multiplicity=latents.copies if likelihood.weighted else None,
        )
        return scalar_case(problem, latents, likelihood.term, lambda: line_evidence(latents, likelihood.term))

    return draw


def clutter_vector(shape: str) -> Draw:
    def draw(rng: np.random.Generator, small: bool) -> Case:
        n, w = 10, rng.uniform(0.3, 0.8)
        spread, noise = log_uniform(rng, 1.0, 100.0), rng.standard_normal((10, 2))
        x = np.where(rng.random((n, 1)) < w, np.sqrt(10.0) * noise, 2.0 + noise)
        problem = cv.models.clutter(x, w, prior_variance=spread, covariance=shape)
        far = {"spherical": [1.0], "diagonal": [1.0, 1.0], "full": [1.0, 0.0, 0.0, 1.0]}[shape]

        def log_density(theta: np.ndarray, own: np.ndarray) -> np.ndarray:
            signal = np.log(1 - w) - 0.5 * np.sum((theta - own) ** 2, axis=1)
            return np.logaddexp(signal, np.log(w / 10.0) - 0.05 * own @ own) - np.log(2 * np.pi)

        terms = [lambda theta, own=own: log_density(theta, own) for own in x]
        prior = np.concatenate([np.zeros(2), np.asarray(far) / spread])

        def referee(sites: Any, strengths: Any = None, **kind: Any) -> Verdict:
            return judge_plane(shape, prior, terms, 1.0, sites[0], **kind)

        return Case(problem, referee, lambda: clutter_evidence(x, w, prior_variance=spread))

    return draw


def log_ring(x: Any, y: Any) -> Any:
    """A distance from the origin, on a floor."""
    return jnp.logaddexp(-0.5 * ((jnp.sqrt(jnp.sum(x**2) + 1e-12) - y) / 0.5) ** 2, jnp.log(1e-2))


RING = cv.factors.from_log_density(log_ring)


def ring(rng: np.random.Generator, small: bool) -> Case:
    n, mean, root = 4, rng.standard_normal(2), np.array([[1.0, 0.0], [rng.uniform(-0.9, 0.9), 0.6]])
    covariance = log_uniform(rng, 0.2, 3.0) * root @ root.T
    y = np.linalg.norm(rng.multivariate_normal(mean, covariance)) + rng.standard_normal(n) * rng.choice([0.3, 1.5])
    problem = cv.models.posterior(RING, y, mean, covariance)
    precision = np.linalg.inv(covariance)

    def log_density(x: np.ndarray, own: float) -> np.ndarray:
        radius = np.sqrt(np.sum(x**2, axis=1) + 1e-12)
        return np.logaddexp(-0.5 * ((radius - own) / 0.5) ** 2, np.log(1e-2))

    terms = [lambda x, own=own: log_density(x, own) for own in y]
    prior = np.concatenate([precision @ mean, precision.ravel()])

    def referee(sites: Any, strengths: Any = None, **kind: Any) -> Verdict:
        return judge_plane("full", prior, terms, 0.25, sites[0], **kind)

    return Case(
        problem, referee, lambda: plane_evidence(lambda x: sum(own(x) for own in terms), mean, covariance, 0.25)
    )


def mixture(rng: np.random.Generator, small: bool) -> Case:
    n, K = 12, 3
    densities = np.exp(rng.normal(0.0, log_uniform(rng, 0.3, 5.0), (n, K)))
    prior = np.exp(rng.uniform(np.log(0.05), np.log(5.0), K))
    problem = cv.models.mixture_weights(densities, prior)

    def referee(sites: Any, power: float = 1.0, strengths: Any = None, **kind: Any) -> Verdict:
        return judge_mixture(densities, prior, sites[0], **kind)

    return Case(problem, referee, lambda: mixture_evidence(densities, prior))


def log_noisy_coin(p: Any, data: Any) -> Any:
    """k heads of n, or with probability 0.2 any number."""
    k, n = data
    return jnp.logaddexp(jnp.log(0.8) + k * jnp.log(p) + (n - k) * jnp.log1p(-p), jnp.log(0.2) - 0.7 * n)


NOISY_COIN = cv.factors.from_log_density(log_noisy_coin)


def coin(rng: np.random.Generator, small: bool) -> Case:
    n = rng.integers(1, 12, 6).astype(float)
    k = np.array([float(rng.binomial(int(own), rng.choice([0.1, 0.9]))) for own in n])
    prior = np.exp(rng.uniform(np.log(0.3), np.log(5.0), 2))

    def log_density(u: np.ndarray, heads: float, throws: float) -> np.ndarray:
        own = np.log(0.8) + heads * log_expit(u) + (throws - heads) * log_expit(-u)
        return np.logaddexp(own, np.log(0.2) - 0.7 * throws)

    return shapes_case(NOISY_COIN, (k, n), "beta", cv.families.Beta(), prior, log_density)


def log_noisy_count(rate: Any, y: Any) -> Any:
    """A count of that rate, or with probability 0.2 one of rate 20."""
    own = y * jnp.log(rate) - rate
    return jnp.logaddexp(jnp.log(0.8) + own, jnp.log(0.2) + y * jnp.log(20.0) - 20.0)


NOISY_COUNT = cv.factors.from_log_density(log_noisy_count)


def rate(rng: np.random.Generator, small: bool) -> Case:
    y = rng.poisson(np.where(rng.random(6) < 0.3, 20.0, log_uniform(rng, 0.2, 10.0))).astype(float)
    prior = np.array([log_uniform(rng, 0.5, 5.0), log_uniform(rng, 0.05, 2.0)])

    def log_density(u: np.ndarray, count: float) -> np.ndarray:
        with np.errstate(over="ignore"):
            own = np.log(0.8) + count * u - np.exp(u)
        return np.logaddexp(own, np.log(0.2) + count * np.log(20.0) - 20.0)

    return shapes_case(NOISY_COUNT, (y,), "gamma", cv.families.Gamma(), prior, log_density)


def shapes_case(factor: Any, data: tuple[Any, ...], kind: str, family: Any, prior: Any, log_density: Any) -> Case:
    """Of a rate or a probability; `log_density` is a function of its logarithm or log odds and one site's data."""
    problem = cv.models.posterior(factor, data if len(data) > 1 else data[0], prior=(family, prior))
    terms = [lambda u, own=own: log_density(u, *own) for own in zip(*data, strict=True)]

    def referee(sites: Any, strengths: Any = None, **how: Any) -> Verdict:
        return judge_shapes(kind, prior, terms, sites[0], **how)

    return Case(problem, referee, lambda: shapes_evidence(kind, prior, lambda u: sum(own(u) for own in terms)))


#: name → kind; every likelihood, family and form is in one of them
KINDS: dict[str, Draw] = {
    **{f"kernel, {make.__name__}": kernel_form(make) for make in LIKELIHOODS},
    **{f"weights, {make.__name__}": weight_form(make) for make in (step, probit, student_t)},
    **{f"inducing, {make.__name__}": inducing_form(make) for make in (logistic, student_t)},
    **{f"features, {make.__name__}": feature_form(make) for make in (probit, poisson)},
    **{f"one number, {make.__name__}": one_number(make) for make in (clutter, truncation, two_bumps)},
    **{f"vector, {shape}": clutter_vector(shape) for shape in ("spherical", "diagonal", "full")},
    "vector, ring": ring,
    "Dirichlet": mixture,
    "Beta": coin,
    "Gamma": rate,
    "Categorical": state,
    "network, spins": spins,
    "network, tables": tables,
    "graph, robust line": robust_line,
    "graph, mean and precision": mean_and_precision,
}
