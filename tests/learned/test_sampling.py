"""Programs as factors: answers against closed forms, and failures with the inputs that caused them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cavity.factors.linear import Linear, Relation
from cavity.families import Beta, Categorical, Gamma, Gaussian, GaussianWithUniform, Product
from cavity.learned.sampling import SamplerError, Simulated
from cavity.learned.simulation import Simulator

PAIR = Product((Gaussian(), Gaussian()))
CAVITIES = np.array([[0.5, 1.0, 1.2, 0.8], [-1.0, 2.0, 3.0, 4.0]])


def noisy(rng, x):
    """y = 2x + 0.3 + N(0, 0.5)."""
    return 2.0 * x + 0.3 + np.sqrt(0.5) * rng.normal(size=len(x))


LINE = Simulator(noisy, 1, 1)


def exact(cavities):
    data = Relation(jnp.array([2.0, -1.0]), jnp.array(0.3), jnp.array(0.5))
    return [Linear().tilted(PAIR, jnp.asarray(row), data, 1.0) for row in cavities]


def test_a_noisy_line_is_the_linear_factor():
    found = Simulated(2**14).answer(LINE, PAIR, CAVITIES, None, jax.random.key(0))
    for row, log_z, cavity, true in zip(found.projected, found.log_z, CAVITIES, exact(CAVITIES), strict=True):
        target = cavity + np.asarray(true.site)
        for mine, best in zip(np.split(row, 2), np.split(target, 2), strict=True):
            assert mine[0] / mine[1] == pytest.approx(best[0] / best[1], abs=0.03 / np.sqrt(best[1]))
            assert mine[1] == pytest.approx(best[1], rel=0.05)
        assert log_z == pytest.approx(float(true.log_z), abs=0.02)
    assert (found.spread < 1 / 200).all()


def test_far_cavities_are_found_by_further_tries():
    far = np.array([[0.0, 1.0, 12.0 * 4.0, 4.0]])  # the output is thought to be five deviations away from its forecast
    assert np.isnan(Simulated(2**14, tries=1).answer(LINE, PAIR, far, None, jax.random.key(1)).log_z).all()
    found = Simulated(2**14).answer(LINE, PAIR, far, None, jax.random.key(1))
    target = far[0] + np.asarray(exact(far)[0].site)
    assert found.projected[0, 0] / found.projected[0, 1] == pytest.approx(target[0] / target[1], abs=0.1)
    assert float(found.log_z[0]) == pytest.approx(float(exact(far)[0].log_z), abs=0.2)


def test_hopeless_questions_are_refused():
    hopeless = np.array([[0.0, 1.0, 4e8, 4.0]])
    found = Simulated(1024).answer(LINE, PAIR, hopeless, None, jax.random.key(1))
    assert np.isnan(found.projected).all() and np.isnan(found.log_z).all()


def test_an_output_of_which_nothing_is_known_hears_the_forecast():
    family = Product((Gaussian(), GaussianWithUniform()))
    found = Simulated(2**14).answer(LINE, family, np.array([[0.5, 1.0, 0.0, 0.0]]), None, jax.random.key(2))
    mean, variance = found.projected[0, 2] / found.projected[0, 3], 1 / found.projected[0, 3]
    assert mean == pytest.approx(2 * 0.5 + 0.3, abs=0.02) and variance == pytest.approx(4.0 + 0.5, rel=0.03)
    np.testing.assert_allclose(found.projected[0, :2], [0.5, 1.0], rtol=2e-3)
    assert found.log_z[0] == pytest.approx(0.0, abs=1e-12)


def test_other_families():
    """A switch that chooses between two rates of a count's mean: all statistics against sums and quadrature."""
    family = Product((Categorical(2), Gamma(), Beta()))

    def program(rng, switch, rate):
        return rate / (rate + 1.0 + switch)

    cavity = np.concatenate([[np.log(0.3), np.log(0.7), 0.0, 0.0], [3.0, 2.0], [2.0, 1.5]])
    found = Simulated(2**14).answer(Simulator(program, 2, 1), family, cavity[None], None, jax.random.key(3))
    from scipy import integrate, stats

    def mass(switch, test):
        def density(rate):
            p = rate / (rate + 1.0 + switch)
            return stats.gamma.pdf(rate, 3.0, scale=0.5) * stats.beta.pdf(p, 2.0, 1.5) * test(rate, p)

        return (0.3, 0.7)[switch] * integrate.quad(density, 0, 40)[0]

    total = mass(0, lambda r, p: 1.0) + mass(1, lambda r, p: 1.0)
    assert found.log_z[0] == pytest.approx(np.log(total), abs=5e-3)
    shares = np.asarray(family.families[0].moments(jnp.asarray(found.projected[0, :4])))
    assert shares[1] == pytest.approx(mass(1, lambda r, p: 1.0) / total, abs=5e-3)
    shape, rate = found.projected[0, 4:6]
    assert shape / rate == pytest.approx(sum(mass(k, lambda r, p: r) for k in (0, 1)) / total, rel=5e-3)
    a, b = found.projected[0, 6:]
    expected = sum(mass(k, lambda r, p: np.log(p)) for k in (0, 1)) / total
    assert float(Beta().moments(jnp.array([a, b]))[0]) == pytest.approx(expected, abs=5e-3)


def broken(rng, x):
    raise ZeroDivisionError("no susceptibles left")


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (broken, r"raised ZeroDivisionError: no susceptibles left.*first inputs"),
        (lambda rng, x: x[:-1], r"must give arrays of shapes \[\(64,\)\]; found \[\(63,\)\]"),
        (lambda rng, x: np.where(x > x.mean(), np.nan, x), r"gave nan in \d+ of 64 draws, as for [0-9.]+"),
    ],
)
def test_failures_name_the_inputs(program, sentence):
    with pytest.raises(SamplerError, match=sentence):
        Simulated(64).answer(Simulator(program, 1, 1), PAIR, CAVITIES, None, jax.random.key(0))
