"""Quadrature over several variables of mixed families: against Gauss rules, scipy and the factors with closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

import cavity as cv
from cavity.factors import GammaRate, GaussianPrecision, from_log_density
from cavity.factors.gamma_variables import Draw
from cavity.families import Beta, Categorical, Gamma, Gaussian, GaussianWithUniform, Product
from cavity.moments import Quadrature
from cavity.moments.quadrature import can_integrate

KEY = jax.random.key(0)


def tilt(factor, family, cavity, data):
    run = jax.jit(lambda eta, own: Quadrature().tilt(None, factor, family, eta, own, 1.0, KEY))
    return run(jnp.asarray(cavity), data)


def slope(x, data):
    """A number seen with noise, that is the product of a Gaussian and a Beta, and a Gamma that dampens the Beta."""
    return -0.5 * (data - x[0] * x[1]) ** 2 - 0.3 * x[1] * x[2]


def test_three_variables_against_gauss_rules():
    """Hermite, Jacobi and Laguerre: the families' own rules, exact for this factor."""
    mean, variance, a, b, shape, rate, data = 0.5, 1.4, 2.0, 3.0, 3.0, 3.5, 1.7
    family = Product((Gaussian(), Beta(), Gamma()))
    cavity = np.array([mean / variance, 1 / variance, a, b, shape, rate])
    found, info = tilt(from_log_density(slope), family, cavity, data)
    z, wz = special.roots_hermitenorm(60)
    p, wp = special.roots_sh_jacobi(60, a + b - 1, a)
    r, wr = special.roots_genlaguerre(40, shape - 1)
    x, r = mean + variance**0.5 * z[:, None, None], r / rate
    p, r = p[None, :, None], r[None, None, :]
    share = np.einsum("i,j,k->ijk", wz / wz.sum(), wp / wp.sum(), wr / wr.sum())
    share = share * np.exp(-0.5 * (data - x * p) ** 2 - 0.3 * p * r)
    total = share.sum()
    share = share / total
    m = (share * x).sum()
    expected = [(m - mean) / variance, ((share * (x - m) ** 2).sum() - variance) / variance**2]
    assert float(found.log_z) == pytest.approx(np.log(total), abs=1e-8)
    np.testing.assert_allclose(found.stats[:2], expected, atol=1e-8)
    assert float(-found.stats[5]) == pytest.approx((share * r).sum(), rel=1e-7)
    assert float(info["error"]) < 1e-4
    q = cavity + np.asarray(found.site)
    np.testing.assert_allclose(Beta().moments(q[2:4]), found.stats[2:4], rtol=1e-10)
    np.testing.assert_allclose(Gamma().moments(q[4:]), found.stats[4:], rtol=1e-10)


def test_two_variables_against_scipy():
    mean, variance, a, b, data = 0.5, 1.4, 2.0, 3.0, 1.7
    family = Product((Gaussian(), Beta()))
    factor = from_log_density(lambda x, d: -0.5 * (d - x[0] * x[1]) ** 2)
    found, info = tilt(factor, family, [mean / variance, 1 / variance, a, b], data)

    def ask(g):
        def density(p):
            """x integrated given p."""
            total = 1.0 + variance * p**2
            return np.exp(-0.5 * (data - mean * p) ** 2 / total) / np.sqrt(total) * stats.beta.pdf(p, a, b)

        return integrate.quad(lambda p: g(p) * density(p), 0, 1, epsabs=1e-13)[0]

    total = ask(lambda p: 1.0)
    given = lambda p: (mean + variance * p * data) / (1 + variance * p**2)  # noqa: E731
    expected = [(ask(given) / total - mean) / variance, ask(np.log) / total, ask(lambda p: np.log1p(-p)) / total]
    assert float(found.log_z) == pytest.approx(np.log(total), abs=1e-8)
    np.testing.assert_allclose(np.asarray(found.stats)[[0, 2, 3]], expected, atol=1e-8)
    assert float(info["error"]) < 1e-7


@pytest.mark.parametrize(
    ("factor", "family", "cavity", "data", "accuracy"),
    [
        (GammaRate(), Product((Gamma(), Gamma())), [2.0, 1.0, 3.0, 2.0], Draw(2.5, 1.0), 1e-9),
        (GaussianPrecision(), Product((GaussianWithUniform(), Gamma())), [0.5, 0.5, 3.0, 3.5], 0.4, 1e-8),
        (GaussianPrecision(), Product((GaussianWithUniform(), Gamma())), [3.0, 0.5, 1e6, 1e6], 0.4, 1e-6),
        # x and its mean apart by 1/√τ is a funnel, the worst for a rule of fixed shape.
        (GaussianPrecision(), Product((Gaussian(), Gaussian(), Gamma())), [8.0, 2.0, -1.25, 1.25, 5.0, 5.0], 0.0, 1e-6),
    ],
)
def test_against_closed_forms(factor, family, cavity, data, accuracy):
    data = jax.tree.map(jnp.asarray, data)
    found, info = tilt(factor, family, cavity, data)
    exact = factor.tilted(family, jnp.asarray(cavity), data, 1.0)
    assert float(found.log_z) == pytest.approx(float(exact.log_z), abs=1e-2 * accuracy)
    np.testing.assert_allclose(found.site, exact.site, rtol=accuracy)
    np.testing.assert_allclose(found.stats, exact.stats, rtol=accuracy)
    assert float(info["error"]) >= float(jnp.abs(found.log_z - exact.log_z)) - 1e-13


def test_an_improper_cavity_has_no_mass():
    family = Product((GaussianWithUniform(), Gamma()))
    found, info = tilt(GaussianPrecision(), family, [0.0, 0.0, 3.0, 3.5], jnp.asarray(0.4))
    assert float(found.log_z) == -np.inf and float(info["error"]) == np.inf
    np.testing.assert_array_equal(found.site, 0.0)


def test_which_products_there_are_rules_for():
    assert can_integrate(Product((Gaussian(), Beta(), Gamma())))
    assert not can_integrate(Product((Gaussian(),) * 4))
    assert not can_integrate(Product((Gaussian(), Categorical(2))))
    with pytest.raises(TypeError, match="products of two or three"):
        Quadrature().evaluations(Product((Gaussian(), Categorical(2))))
    assert Quadrature(order=21).evaluations(Product((Gaussian(), Gamma()))) == 16 * 17**2 + 21**2


def test_a_graph_finds_the_rule_by_itself():
    """One factor of three variables: EP is exact in what it matches."""
    graph = cv.FactorGraph()
    x, p, r = graph.gaussian(0.5, 1.4), graph.beta(2.0, 3.0), graph.gamma(3.0, 3.5)
    graph.add(from_log_density(slope), x, p, r, data=1.7)
    found = cv.infer(graph, cv.EP())
    family = Product((Gaussian(), Beta(), Gamma()))
    exact, _ = tilt(from_log_density(slope), family, [0.5 / 1.4, 1 / 1.4, 2.0, 3.0, 3.0, 3.5], 1.7)
    assert found.log_evidence == pytest.approx(float(exact.log_z), abs=1e-9)
    assert found.marginals[x].mean == pytest.approx(0.5 + 1.4 * float(exact.stats[0]), abs=1e-9)
    np.testing.assert_allclose(found.marginals[r].moments, exact.stats[4:], rtol=1e-8)
