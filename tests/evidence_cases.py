"""Models whose log evidence is known in 60 digits, with numbers as large, small and far from 0 as users have them.

Each kind is a function of a random generator that returns (name, a call that runs the library, the exact log evidence,
how many factors the evidence counts). EP is exact on all of them: likelihoods are Gaussian, or there is a single site.
"""

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
    """Observations of a Gaussian up to 1e9 standard deviations from 0, as time stamps are."""
    far, sd, noise = magnitude(rng, 1.0, 1e9), magnitude(rng, 1e-3, 1e3), magnitude(rng, 1e-2, 1e2)
    centre, count = float(np.rint(far)) * sd, int(rng.integers(1, 6))
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


def count(rng):
    """A Poisson count up to 1e9 whose log rate is Gaussian; Gauss–Hermite around the mode in high precision."""
    mean, sd = rng.uniform(0, np.log(1e9)), rng.uniform(0.1, 1.0)
    y = float(rng.poisson(np.exp(mean + sd * rng.normal())))
    with mpmath.workdps(40):
        m, s, k = mpmath.mpf(float(mean)), mpmath.mpf(float(sd)), mpmath.mpf(y)

        def log_integrand(f):
            return k * f - mpmath.exp(f) - mpmath.loggamma(k + 1) - (f - m) ** 2 / (2 * s**2)

        mode = mpmath.findroot(lambda f: k - mpmath.exp(f) - (f - m) / s**2, mpmath.log(k + 1))
        width = 1 / mpmath.sqrt(mpmath.exp(mode) + 1 / s**2)
        top = log_integrand(mode)
        edges = [mode + width * t for t in range(-40, 41, 4)]
        mass = mpmath.quad(lambda f: mpmath.exp(log_integrand(f) - top), edges)
        exact = float(top + mpmath.log(mass) - mpmath.log(2 * mpmath.pi * s**2) / 2)

    def run():
        graph = cv.FactorGraph()
        graph.add(cv.factors.Poisson(), graph.gaussian(float(mean), float(sd) ** 2), data=y)
        return cv.infer(graph, cv.EP())

    return "count", run, exact, 1


def precision(rng):
    """An observation of unknown precision, whose Gamma prior has a shape up to 1e11: Student's t."""
    shape, spread = magnitude(rng, 0.5, 1e11), magnitude(rng, 1e-3, 1e3)
    y = float(spread * rng.normal())
    rate = shape * spread**2
    with mpmath.workdps(DIGITS):
        a, b, half = mpmath.mpf(shape), mpmath.mpf(rate), mpmath.mpf("0.5")
        exact = a * mpmath.log(b) - (a + half) * mpmath.log(b + mpmath.mpf(y) ** 2 / 2)
        exact += mpmath.loggamma(a + half) - mpmath.loggamma(a) - mpmath.log(2 * mpmath.pi) / 2
        exact = float(exact)

    def run():
        graph = cv.FactorGraph()
        graph.normal(0.0, graph.gamma(shape, rate), out=y)
        return cv.infer(graph, cv.EP())

    return "precision", run, exact, 1


KINDS = (kernel_form, weight_form, far_from_zero, truncation, count, precision)


def allowed(exact, factors):
    """1e-8 a factor and four units in the last place of the total."""
    return 1e-8 * factors + 4 * np.spacing(abs(exact))


def verdict(solution, exact, factors):
    """ "right"; "said so" where the status does not claim a fixed point; else "wrong"."""
    if abs(float(solution.log_evidence) - exact) <= allowed(exact, factors):
        return "right"
    return "wrong" if solution.converged else "said so"
