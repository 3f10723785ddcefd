"""Relaxed EP: its cost and its fixed points against numerical integration, its limits, what it refuses."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from support import draw_clutter

import cavity as cv
from cavity.families.gaussian import Gaussian
from cavity.inference.relaxed import AROUND, FROM_ZERO, Relaxed, local_minimum
from cavity.inference.update_rule import Integrals
from cavity.moments import ClosedForm

FAMILY = Gaussian()


def flipped_labels(seed=3, n=40):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.where(X[:, 0] + 0.5 * X[:, 1] > 0, 1.0, -1.0)
    return X, np.where(rng.random(n) < 0.25, -y, y)


X, LABELS = flipped_labels()
CLASSIFIER = cv.models.latent_gaussian(LABELS, cv.factors.Step(0.2), X=X, kernel=cv.kernels.RBF(0.5))
FACTORS = {
    "step": (cv.factors.Step(0.2), 1.0, [0.0]),
    "probit": (cv.factors.Probit(0.1), -1.0, []),
    "student": (cv.factors.StudentT(0.5, 2.0), 1.5, [1.5]),
    "clutter": (cv.factors.Clutter(0.3, 10.0), -0.7, [-0.7]),
    "clean probit": (cv.factors.Probit(), 1.0, []),
    "logistic": (cv.factors.Logistic(), 1.0, []),
    "noisy logistic": (cv.factors.Logistic(0.05), 1.0, []),
    "counts": (cv.factors.Poisson(), 3.0, []),
    "no counts": (cv.factors.Poisson(), 0.0, []),
    "gaussian": (cv.factors.Gaussian(0.4), 0.3, []),
}


def brute(factor, data, cavity, breaks):
    """(Z, mean, variance, E[log t]) of t × N by adaptive integration of the factor's log density."""
    mean, sd = cavity[0] / cavity[1], cavity[1] ** -0.5
    log_t = jax.jit(lambda x: factor.log_density(x, data))

    def density(x):
        return np.exp(float(log_t(x)) - 0.5 * ((x - mean) / sd) ** 2) / np.sqrt(2 * np.pi) / sd

    ends = np.unique([mean - 12 * sd, *(b for b in breaks if abs(b - mean) < 12 * sd), mean + 12 * sd])

    def integral(f):
        options = {"epsabs": 1e-13, "epsrel": 1e-11, "limit": 200}
        return sum(quad(lambda x: f(x) * density(x), a, b, **options)[0] for a, b in pairwise(ends))

    z = integral(lambda x: 1.0)
    centre = integral(lambda x: x) / z
    spread = integral(lambda x: (x - centre) ** 2) / z
    return z, centre, spread, integral(lambda x: float(log_t(x))) / z


def integrals_of(factor, data):
    key, moments = jax.random.key(0), ClosedForm()
    return Integrals(
        jax.jit(lambda cavity: moments.tilt(None, factor, FAMILY, cavity, data, 1.0, key)),
        jax.jit(lambda cavity, tilted: moments.expected_log(None, factor, FAMILY, cavity, data, key, tilted)),
    )


@pytest.mark.parametrize("name", FACTORS)
def test_cost_of_a_strength_by_integration(name):
    """Q(b) = KL(t r cavity ‖ its moment match) + c · penalty, the KL integrated from its definition."""
    factor, data, breaks = FACTORS[name]
    integrals = integrals_of(factor, data)
    cavity, site = np.array([0.4, 0.7]), np.array([-0.3, 0.25])
    mean, variance = site[0] / site[1], 1 / cavity[1]
    for strength in (0.0, 0.3, 2.0):
        relaxed = cavity + strength * np.array([mean, 1.0])
        z, centre, spread, expected_log = brute(factor, data, relaxed, breaks)
        h, scale = relaxed[0] / relaxed[1], 1 / relaxed[1]
        # KL = E[log t + log N(x; h, scale) − log Z − log N(x; centre, spread)].
        kl = expected_log - np.log(z) - 0.5 * np.log(scale) - 0.5 * (spread + (centre - h) ** 2) / scale
        kl += 0.5 * np.log(spread) + 0.5
        sizes = {
            ("natural", True): strength * (abs(mean) * variance**0.5 + 0.5 * variance),
            ("natural", False): strength * (abs(mean) + 0.5),
            ("strength", True): strength * variance,
            ("strength", False): strength,
        }
        for (penalty, scale_free), size in sizes.items():
            rule = Relaxed(0.7, penalty, scale_free)
            found, _ = rule.cost(FAMILY, integrals, jnp.asarray(cavity), jnp.asarray(site), strength)
            assert float(found) == pytest.approx(kl + 0.7 * size, abs=2e-8)
        # First r, then q: the divergence from the q there is.
        old = relaxed + site
        one_by_one = (
            expected_log
            - np.log(z)
            + 0.5 * np.log(old[1] ** -1 / scale)
            + 0.5 * old[1] * (spread + (centre - old[0] / old[1]) ** 2)
            - 0.5 * (spread + (centre - h) ** 2) / scale
        )
        rule = Relaxed(0.0, sequential=True)
        found, _ = rule.cost(FAMILY, integrals, jnp.asarray(cavity), jnp.asarray(site), strength)
        assert float(found) == pytest.approx(one_by_one, abs=2e-8)


def test_the_search_is_local():
    points = jnp.asarray(AROUND)
    two_dips = jnp.asarray([0.0, 1.0, 2.0, 1.0001, 1.0, 1.0002, 3.0, -9.0])
    assert float(local_minimum(points, two_dips, jnp.asarray(1.0))) == pytest.approx(1.0, abs=1e-3)
    falling = jnp.asarray([0.0, 1.0, 2.0, 2.5, 2.6, 2.7, 3.0, -9.0])
    assert float(local_minimum(points, falling, jnp.asarray(1.0))) == 0.0
    rising = jnp.asarray([5.0, 4.0, 3.0, 2.1, 2.0, 1.9, 1.0, 2.0])
    assert 1.001 < float(local_minimum(points, rising, jnp.asarray(1.0))) < 4.0
    forbidden = jnp.asarray([1.0, 2.0, jnp.inf, jnp.inf, jnp.inf, jnp.inf, jnp.inf, jnp.inf])
    assert float(local_minimum(points, forbidden, jnp.asarray(1.0))) == 0.0
    start = jnp.asarray(FROM_ZERO)
    assert float(local_minimum(start, jnp.asarray([0.0, 1e-9, 1.0, 1.0, 1.0, -5.0, -5.0, -5.0]), jnp.zeros(()))) == 0.0
    assert float(local_minimum(start, -start, jnp.zeros(()))) == FROM_ZERO[-1]


@pytest.mark.parametrize("curvature", [0.3, 40.0])
def test_newton_steps_of_the_search_settle(curvature):
    strength = jnp.asarray(0.4)
    for _ in range(8):
        points = strength * jnp.asarray(AROUND)
        cost = curvature * (points - 1.3) ** 2 * (1 + 0.1 * points)
        strength = local_minimum(points, cost, strength)
    assert float(strength) == pytest.approx(1.3, abs=1e-7)


@pytest.mark.parametrize(
    "problem",
    [
        CLASSIFIER,
        cv.models.clutter(draw_clutter(1, 20)),
        cv.models.latent_gaussian(X[:, 0], cv.factors.StudentT(0.3, 4.0), X=X, kernel=cv.kernels.RBF(1.0)),
    ],
    ids=["step", "clutter", "student"],
)
def test_a_large_weight_is_ep(problem):
    plain, relaxed = cv.infer(problem, cv.EP()), cv.infer(problem, cv.RelaxedEP(1e6))
    assert plain.status == relaxed.status == "converged"
    assert np.all(relaxed.strengths[0] == 0)
    np.testing.assert_allclose(relaxed.sites[0], plain.sites[0], atol=1e-10, rtol=1e-10)
    assert relaxed.log_evidence == pytest.approx(plain.log_evidence, abs=1e-10)


@pytest.mark.parametrize("options", [{}, {"sequential": True}, {"form": "message", "c": 0.03}, {"penalty": "strength"}])
def test_fixed_points_satisfy_the_relaxed_moment_conditions(options):
    """(7): q r and t r cavity have the same moments, recomputed with NumPy from sites and strengths alone."""
    solution = cv.infer(CLASSIFIER, cv.RelaxedEP(**{"c": 0.02} | options))
    assert solution.status == "converged_relaxed"
    nu, tau, b = *solution.sites[0].T, solution.strengths[0]
    assert np.all(b >= 0) and np.all(np.isfinite(b)) and np.any(b > 0)
    K = np.asarray(CLASSIFIER.problem().prior.covariance)
    covariance = np.linalg.inv(np.linalg.inv(K + 1e-12 * np.eye(len(K))) + np.diag(tau))
    mean, variance = covariance @ nu, np.diag(covariance)
    for i in np.flatnonzero(b)[:4]:
        direction = np.array([nu[i], tau[i]]) if "form" in options else np.array([nu[i] / tau[i], 1.0])
        q = np.array([mean[i], 1.0]) / variance[i] + b[i] * direction
        cavity = q - solution.sites[0][i]
        _, centre, spread, _ = brute(cv.factors.Step(0.2), LABELS[i], cavity, [0.0])
        assert centre == pytest.approx(q[0] / q[1], abs=1e-6 * q[1] ** -0.5)
        assert spread == pytest.approx(1 / q[1], rel=1e-6)
        unrelaxed = brute(cv.factors.Step(0.2), LABELS[i], cavity - b[i] * direction, [0.0])
        assert abs(unrelaxed[1] - mean[i]) > 1e-4 * variance[i] ** 0.5


def test_a_small_weight_keeps_everything_finite():
    for c in (0.0, 1e-6):
        solution = cv.infer(CLASSIFIER, cv.RelaxedEP(c, max_sweeps=60))
        assert np.all(np.isfinite(solution.sites[0])) and np.all(np.isfinite(solution.strengths[0]))
        assert np.all(solution.strengths[0] >= 0) and np.isfinite(solution.log_evidence)


def test_a_warm_start_keeps_the_strengths():
    first = cv.infer(CLASSIFIER, cv.RelaxedEP(0.02))
    again = cv.infer(CLASSIFIER, cv.RelaxedEP(0.02), init=first)
    assert again.sweeps <= 2
    np.testing.assert_allclose(again.strengths[0], first.strengths[0], rtol=1e-6, atol=1e-12)


def test_what_it_refuses():
    term = cv.factors.from_log_density(lambda w, y: y * jnp.log(w))
    shares = cv.models.posterior(term, np.ones(3), prior=(cv.families.Beta(), np.ones(2)))
    with pytest.raises(TypeError, match=r"penalised KL of a relaxation factor, .* Beta has none"):
        cv.infer(shares, cv.RelaxedEP(1.0))
    with pytest.raises(TypeError, match="SphericalGaussian has none"):
        cv.infer(cv.models.clutter(np.ones((4, 2))), cv.RelaxedEP(1.0))
    for wrong in ({"c": -1.0}, {"c": 1.0, "penalty": "l2"}, {"c": 1.0, "form": "cavity"}):
        with pytest.raises(ValueError, match="must"):
            cv.RelaxedEP(**wrong)
