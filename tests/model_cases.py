"""Regressions whose log evidence and predictions are known in 60 digits, by every form, method and way of reading rows.

Each kind is as in `evidence_cases`, and returns the means and variances of what it predicts as well.
"""

import mpmath
import numpy as np
from evidence_cases import DIGITS, Found, log_normal, magnitude

import cavity as cv
from cavity.kernels.basis import JITTER
from cavity.models.streaming import stream_linear_models


def exactly(values):
    """A vector or matrix of doubles in high precision."""
    return mpmath.matrix(np.asarray(values, float).tolist())


@mpmath.workdps(DIGITS)
def process(K, cross, own, y, variance, weights):
    """(log evidence, means, variances) of latents with prior covariance K, and of new ones with `cross` and `own`."""
    n, noise = len(y), [mpmath.mpf(variance) / mpmath.mpf(float(w)) for w in weights]
    C = K + mpmath.diag(noise)
    inverse, z = C**-1, exactly(y)
    evidence = -(n * mpmath.log(2 * mpmath.pi) + mpmath.log(mpmath.det(C)) + (z.T * inverse * z)[0]) / 2
    for w in map(mpmath.mpf, map(float, weights)):
        evidence -= (w - 1) / 2 * mpmath.log(2 * mpmath.pi * variance) + mpmath.log(w) / 2
    mean, spread = cross * (inverse * z), cross * inverse * cross.T
    variances = np.array([float(own[i] - spread[i, i]) for i in range(len(own))])
    return float(evidence), np.array(list(map(float, mean))), variances


@mpmath.workdps(DIGITS)
def table(function, X, Z):
    """A kernel matrix in high precision."""
    found = mpmath.matrix(len(X), len(Z))
    for i, x in enumerate(X):
        for j, z in enumerate(Z):
            found[i, j] = function(list(map(mpmath.mpf, map(float, x))), list(map(mpmath.mpf, map(float, z))))
    return found


def inner(x, z):
    return mpmath.fsum(a * b for a, b in zip(x, z, strict=True))


def gauss(length):
    def value(x, z):
        return mpmath.exp(-mpmath.fsum((a - b) ** 2 for a, b in zip(x, z, strict=True)) / (2 * mpmath.mpf(length) ** 2))

    return value


def matern(length):
    def value(x, z):
        gap = mpmath.sqrt(3 * mpmath.fsum((a - b) ** 2 for a, b in zip(x, z, strict=True))) / mpmath.mpf(length)
        return (1 + gap) * mpmath.exp(-gap)

    return value


def columns(rng):
    """A regressor with a kernel of finite rank, on columns of any scale, of one for all or each of its own."""
    k, name = cv.kernels, rng.choice(["linear", "line", "polynomial", "scaled"])
    d = int(rng.integers(1, 4))
    n = int(rng.integers(max(1, d - 2), 9))
    scales = (
        [magnitude(rng, 1e-10, 1e10)] * d if rng.random() < 0.5 else [magnitude(rng, 1e-10, 1e10) for _ in range(d)]
    )
    if name == "polynomial":
        scales = [magnitude(rng, 1e-5, 1e5)] * d
    noise, variance = magnitude(rng, 1e-3, 1.0), magnitude(rng, 1e-2, 1e2)
    kernel, exact_kernel = {
        "linear": (k.Linear(variance), lambda x, z: variance * inner(x, z)),
        "line": (k.Linear(1.0) + k.Constant(variance), lambda x, z: inner(x, z) + variance),
        "polynomial": (k.Polynomial(2, offset=variance), lambda x, z: (inner(x, z) + variance) ** 2),
        "scaled": (variance * k.Linear(1.0), lambda x, z: variance * inner(x, z)),
    }[name]
    X, new = (rng.normal(size=(size, d)) * scales for size in (n, 2))
    new = np.concatenate([new, X[:2]])
    y = (X / scales) @ rng.normal(size=d) + noise * rng.normal(size=n)
    own = [table(exact_kernel, [x], [x])[0] for x in new]
    evidence, mean, spread = process(
        table(exact_kernel, X, X), table(exact_kernel, new, X), own, y, noise**2, np.ones(n)
    )

    def run():
        model = cv.GPRegressor(kernel, noise=noise, normalize_y=False, optimize=False, method=cv.EP()).fit(X, y)
        found, deviation = model.predict(new, return_std=True)
        return Found(model.log_evidence_, model.status_ == "converged", model.status_, [(found, deviation**2)])

    return f"columns, {name}", run, evidence, n, (mean, spread + noise**2)


def stationary(rng):
    """A stationary kernel on features of any scale, with noise down to 1e-10 of the signal and weights up to 1e9."""
    scale, noise, n = magnitude(rng, 1e-10, 1e10), magnitude(rng, 1e-10, 1.0), int(rng.integers(2, 8))
    length, d = scale * magnitude(rng, 0.1, 1.0), int(rng.integers(1, 3))
    kernel, exact_kernel = (
        (cv.kernels.RBF(length), gauss(length)) if rng.random() < 0.5 else (cv.kernels.Matern(length), matern(length))
    )
    X = scale * rng.uniform(0, n, size=(n, d))
    weights = np.rint(magnitude(rng, 1.0, 1e9) * rng.uniform(0.5, 1.0, n)).clip(1) if rng.random() < 0.5 else np.ones(n)
    y = np.sin(X[:, 0] / scale) + noise * rng.normal(size=n)
    K = table(exact_kernel, X, X)
    evidence, mean, spread = process(K, K, [K[i, i] for i in range(n)], y, noise**2, weights)

    def run():
        model = cv.models.latent_gaussian(y, cv.factors.Gaussian(noise**2), X=X, kernel=kernel, multiplicity=weights)
        found = cv.infer(model, cv.EP())
        return Found(found.log_evidence, found.converged, found.status, [(found.mean, found.variance)])

    return "stationary", run, evidence, weights.sum(), (mean, spread)


def inducing(rng):
    """Inducing inputs: EP is exact for f = aᵀv + e. Features of any scale, noise down to 1e-10, weights up to 1e9."""
    scale, noise, n = magnitude(rng, 1e-10, 1e10), magnitude(rng, 1e-10, 1.0), int(rng.integers(2, 8))
    length, m = scale * magnitude(rng, 0.3, 3.0), int(rng.integers(1, 4))
    X, Z = scale * rng.uniform(0, n, size=(n, 1)), scale * rng.uniform(0, n, size=(m, 1))
    weights = np.rint(magnitude(rng, 1.0, 1e9) * rng.uniform(0.5, 1.0, n)).clip(1) if rng.random() < 0.5 else np.ones(n)
    y = np.sin(X[:, 0] / scale) + noise * rng.normal(size=n)
    with mpmath.workdps(DIGITS):
        cross = table(gauss(length), X, Z)
        inside = table(gauss(length), Z, Z) + mpmath.mpf(JITTER) * mpmath.eye(m)
        Q = cross * inside**-1 * cross.T
        residual = [1 - Q[i, i] for i in range(n)]
        # Copies of a row have residuals of their own: each row has a noise of its own.
        variances = [mpmath.mpf(noise) ** 2 + left for left in residual]
        C = Q + mpmath.diag([v / mpmath.mpf(float(w)) for v, w in zip(variances, weights, strict=True)])
        inverse, z = C**-1, exactly(y)
        evidence = -(n * mpmath.log(2 * mpmath.pi) + mpmath.log(mpmath.det(C)) + (z.T * inverse * z)[0]) / 2
        for v, w in zip(variances, map(mpmath.mpf, map(float, weights)), strict=True):
            evidence -= (w - 1) / 2 * mpmath.log(2 * mpmath.pi * v) + mpmath.log(w) / 2
        found, spread = Q * (inverse * z), Q * inverse * Q
        mean = np.array(list(map(float, found)))
        variance = np.array([float(Q[i, i] - spread[i, i] + residual[i]) for i in range(n)])

    def run():
        basis = cv.kernels.InducingInputs(Z)
        model = cv.models.latent_gaussian(
            y, cv.factors.Gaussian(noise**2), X=X, kernel=cv.kernels.RBF(length), basis=basis, multiplicity=weights
        )
        found = cv.infer(model, cv.EP())
        # New latents at the same rows: where no input reaches, aᵀv is next to nothing and the rest is what there is.
        again = found.predict(X)
        pairs = [(again["latent_mean"], again["latent_variance"])]
        return Found(found.log_evidence, found.converged, found.status, pairs)

    return "inducing", run, float(evidence), weights.sum(), (mean, variance)


def linear_rows(rng):
    """Rows of a linear model: features 1e-10 to 1e10, noise to 1e-10, offsets to 1e9 and weights to 1e9."""
    n, d, axis = int(rng.integers(3, 9)), int(rng.integers(1, 4)), rng.integers(4)
    scale = magnitude(rng, 1e-10, 1e10) if axis == 0 else 1.0
    noise = magnitude(rng, 1e-10, 1.0) if axis == 1 else magnitude(rng, 1e-3, 1.0)
    far = magnitude(rng, 1.0, 1e9) if axis == 2 else 1.0
    weights = np.rint(magnitude(rng, 1.0, 1e9) * rng.uniform(0.5, 1.0, n)).clip(1) if axis == 3 else np.ones(n)
    X = scale * rng.normal(size=(n, d))
    y = far * (X @ rng.normal(size=d) / scale) + noise * rng.normal(size=n)
    with mpmath.workdps(DIGITS):
        rows = exactly(X)
        # The weights themselves are latents of unit prior variance.
        evidence, mean, variance = process(rows * rows.T, rows.T, [mpmath.mpf(1)] * d, y, noise**2, weights)
    return X, y, weights, noise, evidence, (mean, variance)


def weights_at_once(rng):
    """A linear model in one place."""
    X, y, weights, noise, evidence, moments = linear_rows(rng)

    def run():
        model = cv.models.latent_gaussian(y, cv.factors.Gaussian(noise**2), X=X, multiplicity=weights)
        found = cv.infer(model, cv.EP())
        return Found(found.log_evidence, found.converged, found.status, [(found.mean, found.variance)])

    return "weights at once", run, evidence, weights.sum(), moments


def weights_in_a_stream(rng):
    """A linear model whose rows are read in batches, to EP's fixed point or once."""
    X, y, weights, noise, evidence, moments = linear_rows(rng)
    method, half = cv.EP() if rng.random() < 0.7 else cv.ADF(), len(y) // 2

    def run():
        batches = [(X[:half], y[:half], weights[:half]), (X[half:], y[half:], weights[half:])]
        (found,), _ = stream_linear_models(batches, factor=cv.factors.Gaussian(noise**2), method=method)
        spread = np.diag(found.covariance)
        return Found(found.log_evidence, found.status == "converged", found.status, [(found.mean, spread)])

    return "weights in a stream", run, evidence, weights.sum(), moments


def one_pass(rng):
    """ADF on truncations of a Gaussian far from 0: Σ log Zᵢ with the moments of each, in high precision.

    Beyond 1e7 standard deviations a double, as the natural parameters are, holds no mean to 1e-8 of one.
    """
    centre, sd, n = magnitude(rng, 1.0, 1e7), 1.0, int(rng.integers(1, 5))
    centre = float(np.rint(centre))
    low = centre + rng.uniform(-3, 0, n)
    high = np.where(rng.random(n) < 0.5, centre + rng.uniform(0.5, 5, n), np.inf)
    with mpmath.workdps(DIGITS):
        mean, variance, exact = mpmath.mpf(0), mpmath.mpf(sd) ** 2, mpmath.mpf(0)
        for a, b in zip(low, high, strict=True):
            root = mpmath.sqrt(variance)
            first = (mpmath.mpf(float(a)) - mpmath.mpf(centre) - mean) / root
            last = (mpmath.mpf(float(b)) - mpmath.mpf(centre) - mean) / root if np.isfinite(b) else mpmath.inf
            mass = mpmath.ncdf(-first) - mpmath.ncdf(-last)
            top, bottom = mpmath.npdf(last) if np.isfinite(b) else mpmath.mpf(0), mpmath.npdf(first)
            shift = (bottom - top) / mass
            shrink = 1 + (first * bottom - (last * top if np.isfinite(b) else 0)) / mass - shift**2
            exact += mpmath.log(mass)
            mean, variance = mean + root * shift, variance * shrink
        moments = np.array([float(mean + centre)]), np.array([float(variance)])

    def run():
        found = cv.infer(cv.models.truncation(centre, sd**2, low, high), cv.ADF())
        pairs = [(np.atleast_1d(found.mean), np.atleast_1d(found.covariance))]
        return Found(found.log_evidence, True, found.status, pairs)

    return "one pass", run, float(exact), n, moments


def copies_of_one_unknown(rng):
    """One unknown under Gaussian observations of any multiplicity, up to 1e9 times their noise from 0."""
    noise, n = magnitude(rng, 1e-5, 1e2), int(rng.integers(1, 5))
    far, prior = noise * magnitude(rng, 1.0, 1e9), noise**2 * magnitude(rng, 1e-2, 1e16)
    weights = np.rint(magnitude(rng, 1.0, 1e9) * rng.uniform(0.1, 1.0, n)).clip(1)
    y = far + noise * rng.normal(size=n)
    with mpmath.workdps(DIGITS):
        exact, mean, variance = mpmath.mpf(0), mpmath.mpf(far), mpmath.mpf(prior)
        for value, w in zip(map(float, y), map(float, weights), strict=True):
            own = mpmath.mpf(noise) ** 2 / mpmath.mpf(w)
            gap = mpmath.mpf(value) - mean
            exact += log_normal(gap, variance + own) - mpmath.log(mpmath.mpf(w)) / 2
            exact -= (mpmath.mpf(w) - 1) / 2 * mpmath.log(2 * mpmath.pi * mpmath.mpf(noise) ** 2)
            mean, variance = mean + gap * variance / (variance + own), variance * own / (variance + own)
        exact = float(exact)

    def run():
        return cv.infer(
            cv.models.posterior(cv.factors.Gaussian(noise**2), y, far, prior, multiplicity=weights), cv.EP()
        )

    return "copies of one unknown", run, exact, weights.sum()


MODELS = (
    columns, stationary, inducing, weights_at_once, weights_in_a_stream, one_pass, copies_of_one_unknown
)  # fmt: skip
