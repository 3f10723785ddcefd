"""Gamma-type functions and their inverses against mpmath, over every scale a shape can take."""

import mpmath as mp
import numpy as np
import pytest

from cavity._numerics.gamma_functions import (
    binet,
    digamma_difference,
    dirichlet_expected_log,
    log_beta,
    log_minus_digamma,
    stirling_divergence,
    trigamma,
    trigamma_difference,
    trigamma_excess,
)
from cavity._numerics.inverses import dirichlet_shapes, gamma_shape, inverse_digamma

RNG = np.random.default_rng(0)
X = np.concatenate([10 ** RNG.uniform(-8, 16, 150), RNG.uniform(0.1, 25, 150)])
A, B = 10 ** RNG.uniform(-8, 10, (2, 300))


@pytest.fixture(autouse=True)
def _digits():
    with mp.workdps(90):
        yield


def worst(values, truth, floor=0.0):
    """Largest relative error, absolute below `floor`."""
    pairs = zip(np.asarray(values).tolist(), truth, strict=True)
    return max(float(abs(v - t) / max(abs(t), mp.mpf(floor))) for v, t in pairs)


def exact(function, *arrays):
    return [function(*map(mp.mpf, row)) for row in zip(*(a.tolist() for a in arrays), strict=True)]


def test_single_argument_functions():
    psi1 = exact(lambda x: mp.polygamma(1, x), X)
    assert worst(trigamma(X), psi1) < 2e-15
    assert worst(trigamma_excess(X), [p - 1 / mp.mpf(x) for p, x in zip(psi1, X.tolist(), strict=True)]) < 4e-15
    assert worst(log_minus_digamma(X), exact(lambda x: mp.log(x) - mp.digamma(x), X)) < 2e-14
    tail = exact(lambda x: mp.loggamma(x) - (x - 0.5) * mp.log(x) + x - mp.log(2 * mp.pi) / 2, X)
    assert worst(binet(X), tail, floor=0.1) < 1e-14


def test_differences_keep_relative_accuracy_when_one_argument_is_negligible():
    assert worst(digamma_difference(A, B), exact(lambda a, b: mp.digamma(a) - mp.digamma(a + b), A, B)) < 2e-15
    assert worst(trigamma_difference(A, B), exact(lambda a, b: mp.psi(1, a) - mp.psi(1, a + b), A, B)) < 2e-15
    truth = exact(lambda a, b: mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b), A, B)
    assert worst(log_beta(np.stack([A, B], axis=-1)), truth, floor=1.0) < 1e-14


@pytest.mark.parametrize("spread", ["far", "half", "tiny"])
def test_stirling_divergence(spread):
    x = 10 ** RNG.uniform(-6, 9, 200)
    factor = {"far": B / A, "half": 1 + RNG.uniform(-0.6, 0.6, 300), "tiny": 1 + 10 ** RNG.uniform(-12, -1, 300)}
    y = x * factor[spread][:200]
    rho = lambda v: mp.loggamma(v) - v * mp.log(v) + v  # noqa: E731
    truth = exact(lambda x, y: rho(y) - rho(x) - (y - x) * (mp.digamma(x) - mp.log(x)), x, y)
    assert worst(stirling_divergence(x, y, y - x), truth) < 1e-13


def test_inverse_digamma():
    y = np.concatenate([-(10 ** RNG.uniform(-3, 8, 150)), RNG.uniform(-3, 25, 150)])
    x = inverse_digamma(y)
    residual = exact(lambda x, y: (mp.digamma(x) - y) / (mp.polygamma(1, x) * x), np.asarray(x), y)
    assert max(abs(r) for r in residual) < 2e-14


def test_gamma_shape():
    s = 10 ** RNG.uniform(-17, 8, 300)
    residual = exact(lambda a, s: (mp.log(a) - mp.digamma(a)) / s - 1, np.asarray(gamma_shape(s)), s)
    assert max(abs(r) for r in residual) < 1e-14
    assert np.isnan(gamma_shape(np.array(-1.0)))


@pytest.mark.parametrize("components", [2, 1000])
def test_dirichlet_shapes_solve_their_equation_from_every_scale(components):
    rows = 6000 // components + 4
    shapes = 10 ** RNG.uniform(-6, 8, (rows, components))
    shapes[::3] = 10 ** RNG.uniform(-6, 8, (len(shapes[::3]), 1))
    shapes[1::3, 0] = 1e8
    mu = dirichlet_expected_log(shapes)
    found = dirichlet_expected_log(dirichlet_shapes(mu))
    np.testing.assert_allclose(found, mu, rtol=1e-13)
