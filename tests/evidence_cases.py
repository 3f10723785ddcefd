"""Models whose log evidence is known in 60 digits, with numbers as large, small and far from 0 as users have them.

Each kind is a function of a random generator that returns (name, a call that runs the library, the exact log evidence,
how many factors the evidence counts). EP is exact on all of them: likelihoods are Gaussian, or there is a single site.
"""

import warnings
from typing import NamedTuple

import mpmath
import numpy as np

import cavity as cv

DIGITS = 60


def magnitude(rng, low, high):
    """A number whose logarithm is uniform."""
    return float(10.0 ** rng.uniform(np.log10(low), np.log10(high)))


def log_normal(x, variance):
    """log N(x; 0, variance) in high precision."""
    return -(mpmath.log(2 * mpmath.pi * variance) + mpmath.mpf(x) ** 2 / variance) / 2


@mpmath.workdps(DIGITS)
def joint_evidence(K, y, variance, weights):
    """log ∫ ∏ N(yᵢ; fᵢ, variance)^wᵢ N(f; 0, K) df: wᵢ equal observations are their mean and a constant."""
    n = len(y)
    C = mpmath.matrix(n, n)
    for i in range(n):
        for j in range(n):
            C[i, j] = mpmath.mpf(float(K[i, j]))
        C[i, i] += mpmath.mpf(variance) / mpmath.mpf(float(weights[i]))
    z = mpmath.matrix([mpmath.mpf(float(v)) for v in y])
    found = -(n * mpmath.log(2 * mpmath.pi) + mpmath.log(mpmath.det(C)) + (z.T * mpmath.lu_solve(C, z))[0]) / 2
    for w in map(mpmath.mpf, map(float, weights)):
        found -= (w - 1) / 2 * mpmath.log(2 * mpmath.pi * variance) + mpmath.log(w) / 2
    return float(found)


def kernel_form(rng):
    """A Gaussian process with noise down to 1e-10 of the signal and weights up to 1e9."""
    n = int(rng.integers(2, 8))
    x = np.sort(rng.uniform(0, 3 * n, n))
    K = np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-3 * np.eye(n)
    scale, noise = magnitude(rng, 1e-6, 1e6), magnitude(rng, 1e-10, 1.0)
    weights = np.rint(magnitude(rng, 1.0, 1e9) * rng.uniform(0.5, 1.0, n)).clip(1) if rng.random() < 0.5 else np.ones(n)
    K, y = scale**2 * K, scale * (np.sin(x) + noise * rng.normal(size=n) / np.sqrt(weights))
    exact = joint_evidence(K, y, (scale * noise) ** 2, weights)

    def run():
        likelihood = cv.factors.Gaussian((scale * noise) ** 2)
        return cv.infer(cv.models.latent_gaussian(y, likelihood, kernel_matrix=K, multiplicity=weights), cv.EP())

    return "kernel form", run, exact, weights.sum()


def weight_form(rng):
    """A linear model with features of any scale."""
    n, d = int(rng.integers(3, 9)), int(rng.integers(1, 4))
    scale, noise = magnitude(rng, 1e-10, 1e10), magnitude(rng, 1e-3, 1.0)
    X = scale * rng.normal(size=(n, d))
    y = X @ rng.normal(size=d) / scale + noise * rng.normal(size=n)
    exact = joint_evidence(X / scale @ (X / scale).T, y, noise**2, np.ones(n))

    def run():
        likelihood = cv.factors.Gaussian(noise**2)
        model = cv.models.latent_gaussian(y, likelihood, X=X, prior_variance=scale**-2.0)
        return cv.infer(model, cv.EP())

    return "weight form", run, exact, n


def far_from_zero(rng):
    """Observations of a Gaussian up to 1e9 of the smaller standard deviation from 0, as time stamps are."""
    far, sd, noise = magnitude(rng, 1.0, 1e9), magnitude(rng, 1e-3, 1e3), magnitude(rng, 1e-2, 1e2)
    centre, count = far * sd * min(1.0, noise), int(rng.integers(1, 6))
    y = centre + sd * (rng.normal() + noise * rng.normal(size=count))
    with mpmath.workdps(DIGITS):
        gaps = [mpmath.mpf(float(v)) - mpmath.mpf(centre) for v in y]
        v0, v1 = mpmath.mpf(sd) ** 2, (mpmath.mpf(sd) * mpmath.mpf(noise)) ** 2
        exact, mean = mpmath.mpf(0), mpmath.mpf(0)
        for gap in gaps:  # one after another: the predictive density of each
            exact += log_normal(gap - mean, v0 + v1)
            mean, v0 = (mean * v1 + gap * v0) / (v0 + v1), v0 * v1 / (v0 + v1)
        exact = float(exact)

    def run():
        graph = cv.FactorGraph()
        x = graph.gaussian(centre, sd**2)
        for value in y:
            graph.add(cv.factors.Gaussian((sd * noise) ** 2), x, data=value)
        return cv.infer(graph, cv.EP())

    return "far from zero", run, exact, count


def truncation(rng):
    """The mass of a Gaussian in an interval, wherever it is and however far out."""
    centre, sd = magnitude(rng, 1e-3, 1e6) * rng.choice([-1, 1]), magnitude(rng, 1e-3, 1e3)
    low = float(centre + sd * rng.uniform(-30, 30))
    high = float(low + sd * magnitude(rng, 1e-2, 1e2)) if rng.random() < 0.5 else np.inf
    with mpmath.workdps(DIGITS):
        a = (mpmath.mpf(low) - mpmath.mpf(centre)) / mpmath.mpf(sd)
        b = (mpmath.mpf(high) - mpmath.mpf(centre)) / mpmath.mpf(sd) if np.isfinite(high) else mpmath.inf
        low_end, high_end = (a, b) if a > 0 else (-b, -a)  # the side on which tails are small
        exact = float(mpmath.log((mpmath.erfc(low_end / mpmath.sqrt(2)) - mpmath.erfc(high_end / mpmath.sqrt(2))) / 2))

    def run():
        bounds = (low,) if high == np.inf else (low, high)
        return cv.infer(cv.models.truncation(centre, sd**2, *bounds), cv.EP())

    return "truncation", run, exact, 1


@mpmath.workdps(40)
def count_evidence(mean, variance, y):
    """log ∫ Poisson(y; e^f) N(f; mean, variance) df: quadrature around the mode, in high precision."""
    m, v, k = mpmath.mpf(mean), mpmath.mpf(variance), mpmath.mpf(y)

    def log_integrand(f):
        return k * f - mpmath.exp(f) - mpmath.loggamma(k + 1) - (f - m) ** 2 / (2 * v)

    mode = mpmath.findroot(lambda f: k - mpmath.exp(f) - (f - m) / v, mpmath.log(k + 1))
    width = 1 / mpmath.sqrt(mpmath.exp(mode) + 1 / v)
    top = log_integrand(mode)
    edges = [mode + width * t for t in range(-40, 41, 4)]
    mass = mpmath.quad(lambda f: mpmath.exp(log_integrand(f) - top), edges)
    return float(top + mpmath.log(mass) - mpmath.log(2 * mpmath.pi * v) / 2)


def count(rng):
    """A Poisson count up to 1e9 whose log rate is Gaussian, in a graph or in any form of a latent model."""
    form, sd = rng.choice(["graph", "kernel", "weights", "basis"]), float(rng.uniform(0.1, 1.0))
    mean = float(rng.uniform(0, np.log(1e9)))
    if form != "graph":  # a latent of mean 0 is as far out as its count
        sd, mean = float(rng.uniform(1.0, 10.0)), 0.0
    y = float(rng.poisson(np.exp(np.clip(mean + sd * rng.normal(), None, np.log(1e9)))))
    exact = count_evidence(mean, sd**2, y)

    def run():
        if form == "graph":
            graph = cv.FactorGraph()
            graph.add(cv.factors.Poisson(), graph.gaussian(mean, sd**2), data=y)
            return cv.infer(graph, cv.EP())
        data, kernel = [y], sd**2 * cv.kernels.RBF(1.0)
        forms = {
            "kernel": {"kernel_matrix": np.array([[sd**2]])},
            "weights": {"X": np.array([[1e5]]), "prior_variance": (sd / 1e5) ** 2},
            "basis": {"X": np.array([[0.3]]), "kernel": kernel, "basis": cv.kernels.InducingInputs([[0.0]])},
        }
        return cv.infer(cv.models.latent_gaussian(data, cv.factors.Poisson(), **forms[form]), cv.EP())

    return f"count, {form}", run, exact, 1


def precision(rng):
    """Observations of unknown precision, whose Gamma prior has a shape up to 1e11: Student's t."""
    shape, spread, n = magnitude(rng, 0.5, 1e11), magnitude(rng, 1e-3, 1e3), int(rng.integers(1, 6))
    data = [float(spread * value) for value in rng.normal(size=n)]
    rate = shape * spread**2
    with mpmath.workdps(DIGITS):
        a, b, half = mpmath.mpf(shape), mpmath.mpf(rate), mpmath.mpf(n) / 2
        total = b + sum(mpmath.mpf(y) ** 2 for y in data) / 2
        exact = a * mpmath.log(b) - (a + half) * mpmath.log(total)
        exact += mpmath.loggamma(a + half) - mpmath.loggamma(a) - half * mpmath.log(2 * mpmath.pi)
        moments = np.array([float((a + half) / total)]), np.array([float((a + half) / total**2)])

    def run():
        graph = cv.FactorGraph()
        gain = graph.gamma(shape, rate)
        for y in data:
            graph.normal(0.0, gain, out=y)
        found = cv.infer(graph, cv.EP())
        own = found.marginals[gain]
        return Found(found.log_evidence, found.converged, found.status, [(own.mean, own.variance)])

    return "precision", run, float(exact), n, moments


KINDS = (kernel_form, weight_form, far_from_zero, truncation, count, precision)


def allowed(exact, factors):
    """1e-8 a factor and four units in the last place of the total."""
    return 1e-8 * factors + 4 * np.spacing(abs(exact))


class Found(NamedTuple):
    """What a run of the library gave: moments are pairs (means, variances)."""

    log_evidence: float
    converged: bool
    status: str
    moments: list


class Outcome(NamedTuple):
    """verdict: "right"; "said so" where a warning or the status claims no fixed point; "refused"; else "wrong".

    error: the largest one in units of what is allowed. note: what is needed to look into it.
    """

    verdict: str
    error: float
    note: str


def outcome(kind, seed):
    """What the library makes of the case of a kind that a seed gives."""
    name, run, exact, factors, *moments = kind(np.random.default_rng(seed))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            found = run()
        except ValueError as refusal:
            return Outcome("refused", 0.0, f"{name} {seed}: {refusal}")
    errors = [abs(float(found.log_evidence) - exact) / allowed(exact, factors)]
    for (mean, variance), (right, spread) in zip(getattr(found, "moments", ()), moments, strict=False):
        errors.append(np.max(np.abs(mean - right) / np.maximum(np.abs(right), np.sqrt(spread))) / 1e-8)
        errors.append(np.max(np.abs(variance / spread - 1)) / 1e-8)
    worst = float(np.max(np.where(np.isnan(errors), np.inf, errors)))
    said = any(issubclass(own.category, RuntimeWarning | UserWarning) for own in heard) or not found.converged
    verdict = "right" if worst <= 1 else "said so" if said else "wrong"
    return Outcome(verdict, worst, f"{name} {seed}: {[float(f'{error:.2g}') for error in errors]} {found.status}")
