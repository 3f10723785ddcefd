"""Factors that call themselves log-concave are, and those with two levels or heavy tails do not."""

import jax
import numpy as np
import pytest

from cavity import factors

CLAIMED = {
    "step": (factors.Step(), 1.0),
    "probit": (factors.Probit(), -1.0),
    "logistic": (factors.Logistic(), 1.0),
    "gaussian": (factors.Gaussian(0.5), 1.3),
    "poisson": (factors.Poisson(), 3.0),
    "ordinal": (factors.OrdinalProbit(np.array([-1.0, 0.5])), 1.0),
    "truncation": (factors.Truncation(), (-1.0, 2.0)),
    "tempered": (factors.Tempered(factors.Probit()), (1.0, 0.3)),
}
OTHERS = {
    "step": (factors.Step(0.1), 1.0),
    "probit": (factors.Probit(0.1), 1.0),
    "logistic": (factors.Logistic(0.1), 1.0),
    "student": (factors.StudentT(scale=1.0, df=3.0), 0.0),
    "clutter": (factors.Clutter(0.5, 10.0), 2.0),
    "tempered": (factors.Tempered(factors.Step(0.1)), (1.0, 0.5)),
}


def excess(factor, data):
    """log t at the middle of two points less the mean of log t at both, for many pairs."""
    a, b = np.random.default_rng(0).uniform(-8, 8, (2, 2000))
    low, middle, high = (jax.vmap(lambda x: factor.log_density(x, data))(x) for x in (a, 0.5 * (a + b), b))
    ends = 0.5 * (np.asarray(low) + np.asarray(high))
    seen = np.isfinite(ends)
    return np.asarray(middle)[seen] - ends[seen]


@pytest.mark.parametrize("name", CLAIMED)
def test_a_claim_holds(name):
    factor, data = CLAIMED[name]
    assert factor.is_log_concave()
    assert excess(factor, data).min() > -1e-9


@pytest.mark.parametrize("name", OTHERS)
def test_no_claim_where_it_does_not(name):
    factor, data = OTHERS[name]
    assert not factor.is_log_concave()
    assert excess(factor, data).min() < -0.01


def test_a_mixture_is_log_concave_in_its_weights():
    rng = np.random.default_rng(1)
    a, b = rng.dirichlet(np.ones(3), (2, 500))
    log_t = jax.vmap(lambda w: factors.Mixture().log_density(w, np.log([0.2, 1.0, 3.0])))
    assert factors.Mixture().is_log_concave()
    assert np.min(log_t(0.5 * (a + b)) - 0.5 * (log_t(a) + log_t(b))) > -1e-12
