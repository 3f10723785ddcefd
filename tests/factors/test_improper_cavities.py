"""Linear relations and Gaussian observations under cavities of which one is improper: messages, log Z, and refusals.

Everything is compared with the joint density of all variables of a relation, whose precision matrix is written down
directly. A relation without noise is compared in the variables that are left when one is eliminated.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cavity as cv
from cavity.factors.linear import Map, Relation
from cavity.families import FullGaussianWithUniform, GaussianWithUniform, Product

LOG_2PI = np.log(2 * np.pi)
NUMBER = GaussianWithUniform()


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def log_integral(precision, nu):
    """log ∫ exp(nu·x − ½ xᵀ Λ x) dx."""
    sign, log_det = np.linalg.slogdet(precision)
    assert sign > 0
    return 0.5 * (nu @ np.linalg.solve(precision, nu) - log_det + len(nu) * LOG_2PI)


def is_distribution(precision):
    return bool(np.linalg.eigvalsh(precision).min() > 0)


def normaliser(precision, nu):
    """log ∫ of a cavity that is proper; what is not counts as it is."""
    return log_integral(precision, nu) if is_distribution(precision) else 0.0


def random_numbers(rng, count):
    """Cavities (nu, tau) of numbers; about half of the time one of them is improper, now and then flat."""
    eta = np.column_stack([rng.normal(size=count), rng.gamma(1.0, size=count) + 0.05])
    if rng.random() < 0.7:
        k = rng.integers(count)
        eta[k, 1] = -rng.gamma(0.3)
        eta[k] *= rng.random() < 0.8
    return eta


def asked(factor, family, cavity, data):
    """What the factor accepts, and its log Z and messages."""
    accepted = bool(factor.accepts(family, jnp.asarray(cavity), data, 1.0))
    found = factor.tilted(family, jnp.asarray(cavity), data, 1.0)
    return accepted, float(found.log_z), np.asarray(found.site)


@pytest.mark.parametrize("seed", range(60))
def test_a_linear_relation_is_the_joint_density(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 5))
    eta, weights = random_numbers(rng, count), rng.normal(size=count)
    offset, variance = float(rng.normal()), float(rng.gamma(0.5) + 1e-3)
    joint = np.diag(eta[:, 1]) + np.outer(weights, weights) / variance
    nu = eta[:, 0] - weights * offset / variance
    family = Product((NUMBER,) * count) if count > 1 else NUMBER
    accepted, log_z, site = asked(cv.factors.Linear(), family, eta.ravel(), Relation(weights, offset, variance))
    assert accepted == is_distribution(joint)
    if accepted:
        mean, spread = np.linalg.solve(joint, nu), np.linalg.inv(joint).diagonal()
        right = np.column_stack([mean / spread, 1 / spread])
        np.testing.assert_allclose(eta + site.reshape(-1, 2), right, rtol=1e-8, atol=1e-10)
        constant = -0.5 * (offset**2 / variance + np.log(variance) + LOG_2PI)
        alone = sum(normaliser(np.array([[tau]]), np.array([own])) for own, tau in eta)
        assert log_z == pytest.approx(log_integral(joint, nu) + constant - alone, abs=1e-9, rel=1e-11)


@pytest.mark.parametrize("seed", range(60))
def test_a_relation_without_noise_is_the_density_of_the_variables_that_are_left(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))
    eta, weights, offset = random_numbers(rng, count), rng.normal(size=count), float(rng.normal())
    # The last variable is −(c + Σ a_i x_i)/a of the others.
    slope, shift = -weights[:-1] / weights[-1], -offset / weights[-1]
    (last_nu, last_tau), others = eta[-1], eta[:-1]
    joint = np.diag(others[:, 1]) + last_tau * np.outer(slope, slope)
    nu = others[:, 0] + slope * (last_nu - last_tau * shift)
    cavity, family = eta.ravel(), Product((NUMBER,) * count)
    accepted, log_z, site = asked(cv.factors.Linear(), family, cavity, Relation(weights, offset, 0.0))
    assert accepted == is_distribution(joint)
    if accepted:
        matrix = np.vstack([np.eye(count - 1), slope])
        mean = matrix @ np.linalg.solve(joint, nu) + np.append(np.zeros(count - 1), shift)
        spread = (matrix @ np.linalg.inv(joint) @ matrix.T).diagonal()
        right = np.column_stack([mean / spread, 1 / spread])
        np.testing.assert_allclose(eta + site.reshape(-1, 2), right, rtol=1e-7, atol=1e-9)
        constant = last_nu * shift - 0.5 * last_tau * shift**2 - np.log(abs(weights[-1]))
        alone = sum(normaliser(np.array([[tau]]), np.array([own])) for own, tau in eta)
        assert log_z == pytest.approx(log_integral(joint, nu) + constant - alone, abs=1e-9, rel=1e-11)


def random_vector(rng, size):
    """(nu, Λ) of a vector, proper or with one direction of negative precision."""
    root = rng.normal(size=(size, size))
    values = np.linalg.eigvalsh(root @ root.T) + 0.1
    axes = np.linalg.qr(root)[0]
    if rng.random() < 0.5:
        values[0] = -rng.gamma(0.3)
    return rng.normal(size=size), (axes * values) @ axes.T


@pytest.mark.parametrize("seed", range(60))
def test_an_inner_product_is_the_density_of_the_vector(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 4))
    nu_w, precision = random_vector(rng, size)
    z = random_numbers(rng, 1)[0]
    x, offset = rng.normal(size=size), float(rng.normal())
    family = Product((FullGaussianWithUniform(size), NUMBER))
    joint, nu = precision + z[1] * np.outer(x, x), nu_w + x * (z[0] - z[1] * offset)
    cavity = np.concatenate([nu_w, precision.ravel(), z])
    accepted, log_z, site = asked(cv.factors.InnerProduct(), family, cavity, (x, offset))
    # Two improper cavities are refused, though rarely their product would exist.
    assert accepted == (is_distribution(joint) and (is_distribution(precision) or z[1] > 0))
    if accepted:
        found = cavity + site
        np.testing.assert_allclose(found[:size], nu, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(found[size:-2].reshape(size, size), joint, rtol=1e-8, atol=1e-10)
        spread = x @ np.linalg.solve(joint, x)
        mean = x @ np.linalg.solve(joint, nu) + offset
        np.testing.assert_allclose(found[-2:], [mean / spread, 1 / spread], rtol=1e-7, atol=1e-9)
        constant = z[0] * offset - 0.5 * z[1] * offset**2
        alone = normaliser(precision, nu_w) + normaliser(np.array([[z[1]]]), z[:1])
        assert log_z == pytest.approx(log_integral(joint, nu) + constant - alone, abs=1e-8)


@pytest.mark.parametrize("seed", range(60))
def test_a_matrix_product_is_the_joint_density(seed):
    rng = np.random.default_rng(seed)
    size, rows = (int(own) for own in rng.integers(1, 4, 2))
    matrix, offset = rng.normal(size=(rows, size)), rng.normal(size=rows)
    root = rng.normal(size=(rows, rows))
    noise = root @ root.T + 0.1 * np.eye(rows)
    nu_x, x = random_vector(rng, size)
    nu_y, y = random_vector(rng, rows)
    if rng.random() < 0.2:
        nu_y, y = 0 * nu_y, 0 * y
    across = np.hstack([matrix, -np.eye(rows)])
    inverse = np.linalg.inv(noise)
    joint, nu = across.T @ inverse @ across, np.concatenate([nu_x, nu_y]) - across.T @ inverse @ offset
    joint[:size, :size] += x
    joint[size:, size:] += y
    family = Product((FullGaussianWithUniform(size), FullGaussianWithUniform(rows)))
    cavity = np.concatenate([nu_x, x.ravel(), nu_y, y.ravel()])
    accepted, log_z, site = asked(cv.factors.MatrixProduct(), family, cavity, Map(matrix, offset, noise))
    assert accepted == is_distribution(joint)
    if accepted:
        mean, covariance = np.linalg.solve(joint, nu), np.linalg.inv(joint)
        for start, own, found in zip((0, size), (size, rows), family.parts(cavity + site), strict=True):
            precision = np.linalg.inv(covariance[start : start + own, start : start + own])
            right = np.append(precision @ mean[start : start + own], precision)
            np.testing.assert_allclose(found, right, rtol=1e-6, atol=1e-7)
        constant = -0.5 * (offset @ inverse @ offset + np.linalg.slogdet(noise)[1] + rows * LOG_2PI)
        alone = normaliser(x, nu_x) + normaliser(y, nu_y)
        assert log_z == pytest.approx(log_integral(joint, nu) + constant - alone, abs=1e-7)


def test_a_vector_without_a_prior_says_what_its_product_cannot_be():
    """y = A x + noise with two rows and one column: y₁ − y₂ is known though x is not."""
    graph = cv.FactorGraph()
    x, y = graph.vector(dimension=1), graph.vector([0.0, 2.0], np.eye(2))
    graph.product([[1.0], [1.0]], x, covariance=0.5 * np.eye(2), out=y)
    found = cv.infer(graph, cv.EP())
    # Of y₁ − y₂ ~ N(−2, 2) the relation says N(0, 1); y₁ + y₂ stays as it was.
    np.testing.assert_allclose(found.marginals[y].mean, [2 / 3, 4 / 3], atol=1e-9)
    np.testing.assert_allclose(found.marginals[x].mean, [1.0], atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_an_equality_is_the_product(seed):
    rng = np.random.default_rng(seed)
    eta = random_numbers(rng, 3)
    accepted, log_z, site = asked(cv.factors.Equality(), Product((NUMBER,) * 3), eta.ravel(), None)
    nu, tau = eta.sum(axis=0)
    assert accepted == (tau > 0)
    if accepted:
        np.testing.assert_allclose(eta + site.reshape(-1, 2), np.tile([nu, tau], (3, 1)), rtol=1e-12)
        alone = sum(normaliser(np.array([[own]]), np.array([first])) for first, own in eta)
        assert log_z == pytest.approx(log_integral(np.array([[tau]]), np.array([nu])) - alone, abs=1e-10)


@pytest.mark.parametrize("seed", range(20))
def test_a_gaussian_observation_is_the_product(seed):
    rng = np.random.default_rng(seed)
    eta, y, variance, power = random_numbers(rng, 1)[0], float(rng.normal()), float(rng.gamma(1.0)), 0.5
    factor = cv.factors.Gaussian(variance)
    own = np.array([y, 1.0]) * power / variance
    assert bool(factor.accepts(NUMBER, eta, y, power)) == (eta[1] + own[1] > 0)
    if eta[1] + own[1] > 0:
        found = factor.tilted(NUMBER, jnp.asarray(eta), y, power)
        np.testing.assert_allclose(found.site, own, rtol=1e-12)
        constant = -0.5 * power * (y**2 / variance + np.log(variance) + LOG_2PI)
        right = log_integral(np.array([[eta[1] + own[1]]]), np.array([eta[0] + own[0]])) + constant
        assert float(found.log_z) == pytest.approx(right - normaliser(np.array([[eta[1]]]), eta[:1]), abs=1e-10)


def test_a_family_without_a_uniform_member_accepts_distributions_only():
    pair = Product((cv.families.Gaussian(),) * 2)
    cavity = np.array([0.0, 4.0, 0.0, -0.1])
    assert not bool(cv.factors.Linear().accepts(pair, cavity, Relation(np.ones(2), 0.0, 0.1), 1.0))
