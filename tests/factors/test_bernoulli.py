"""Coins and choices of unknown probability: sums over states, expected logarithms by quadrature, weak messages."""

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from scipy import integrate, stats

from cavity.factors import Bernoulli, CategoricalDraw
from cavity.families import Beta, Categorical, Dirichlet, Product

COIN = Product((Categorical(2), Beta()))


def coin(probability, a, b):
    eta = jnp.concatenate([Categorical(2).from_probabilities([1 - probability, probability]), jnp.array([a, b])])
    return eta, Bernoulli().tilted(COIN, eta, None, 1.0)


@pytest.mark.parametrize(
    ("probability", "a", "b"), [(0.9, 2.0, 3.0), (0.2, 0.4, 7.0), (1.0, 2.5, 1.0), (0.5, 3.0, 2.0)]
)
def test_a_coin_not_seen(probability, a, b):
    eta, found = coin(probability, a, b)

    def ask(g):
        density = lambda p: stats.beta.pdf(p, a, b) * (probability * p + (1 - probability) * (1 - p))  # noqa: E731
        return integrate.quad(lambda p: g(p) * density(p), 0, 1, epsabs=1e-13, limit=200)[0]

    total = ask(lambda p: 1.0)
    logs = ask(np.log) / total, ask(lambda p: np.log1p(-p)) / total
    ones = probability * a / (a + b) / total
    assert float(found.log_z) == pytest.approx(np.log(total), abs=1e-8)
    np.testing.assert_allclose(found.stats, [1 - ones, ones, *logs], rtol=1e-7, atol=1e-10)
    q = eta + found.site
    np.testing.assert_allclose(Beta().moments(q[4:]), logs, rtol=1e-7)
    np.testing.assert_allclose(Categorical(2).moments(q[:4]), [1 - ones, ones], rtol=1e-8, atol=1e-10)


def test_a_coin_seen_is_an_exact_message():
    for y in (0.0, 1.0):
        found = Bernoulli().tilted(Beta(), jnp.array([2.0, 5.0]), jnp.asarray(y), 1.0)
        np.testing.assert_array_equal(found.site, [y, 1 - y])
        assert float(found.log_z) == pytest.approx(np.log((2.0 if y else 5.0) / 7.0))
        np.testing.assert_allclose(found.stats, Beta().moments(jnp.array([2.0 + y, 6.0 - y])))


@pytest.mark.parametrize(("probability", "a", "b"), [(0.7, 1e6, 2e6), (0.5 + 1e-6, 2.0, 3.0), (0.9, 3e4, 5.0)])
def test_weak_messages_keep_their_digits(probability, a, b):
    _, found = coin(probability, a, b)
    with mp.workdps(50):
        x, y = mp.mpf(a), mp.mpf(b)
        one, zero = mp.mpf(probability), mp.mpf(1 - probability)
        mass = one * x + zero * y
        base = mp.digamma(x + y) + 1 / (x + y)
        logs = mp.digamma(x) + one / mass - base, mp.digamma(y) + zero / mass - base
        solve = lambda s, t: [  # noqa: E731
            mp.digamma(s) - mp.digamma(s + t) - logs[0],
            mp.digamma(t) - mp.digamma(s + t) - logs[1],
        ]
        start = [float(value) for value in found.site[4:]]
        s, t = mp.findroot(solve, (x + 1.0001 * mp.mpf(start[0]), y + 1.0001 * mp.mpf(start[1])))
    np.testing.assert_allclose(found.site[4:], [float(s - x), float(t - y)], rtol=1e-8, atol=1e-12)


def test_a_choice_is_the_coin_for_two_states():
    eta, found = coin(0.8, 2.0, 3.0)
    flipped = jnp.concatenate([eta[:4], eta[5:], eta[4:5]])
    same = CategoricalDraw().tilted(Product((Categorical(2), Dirichlet(2))), flipped, None, 1.0)
    np.testing.assert_allclose(same.site, [*found.site[:4], found.site[5], found.site[4]], rtol=1e-12)


def test_a_choice_of_three():
    """Expected logarithms under the mixture of the Dirichlets of each state."""
    shapes, probabilities = jnp.array([0.5, 2.0, 4.0]), jnp.array([0.2, 0.7, 0.1])
    eta = jnp.concatenate([Categorical(3).from_probabilities(probabilities), shapes])
    found = CategoricalDraw().tilted(Product((Categorical(3), Dirichlet(3))), eta, None, 1.0)
    mass = probabilities * shapes / shapes.sum()
    logs = sum(mass[k] * Dirichlet(3).moments(shapes + jnp.eye(3)[k]) for k in range(3)) / mass.sum()
    assert float(found.log_z) == pytest.approx(float(jnp.log(mass.sum())), abs=1e-14)
    np.testing.assert_allclose(found.stats, [*(mass / mass.sum()), *logs], rtol=1e-12)
    np.testing.assert_allclose(Dirichlet(3).moments(shapes + found.site[6:]), logs, rtol=1e-12)
    seen = CategoricalDraw().tilted(Dirichlet(3), shapes, jnp.asarray(1), 1.0)
    np.testing.assert_array_equal(seen.site, [0.0, 1.0, 0.0])


def test_nothing_known_of_the_state_is_nothing_said():
    _, found = coin(0.5, 2.3, 4.1)
    np.testing.assert_allclose(found.site[4:], 0.0, atol=1e-30)


def test_other_families_are_refused():
    assert Bernoulli().tilted(Product((Categorical(3), Beta())), jnp.ones(8), None, 1.0) is NotImplemented
    assert CategoricalDraw().tilted(Product((Categorical(2), Dirichlet(3))), jnp.ones(7), None, 1.0) is NotImplemented
    assert CategoricalDraw().tilted(Dirichlet(3, "mean_square"), jnp.ones(3), 0, 1.0) is NotImplemented
