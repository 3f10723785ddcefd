"""Just-in-time operators inside EP: as good as the oracle, asked rarely, never confident where it cannot be."""

import jax
import numpy as np
import pytest
from cavity_reproductions.learned.far_messages import far_messages, looked_at

import cavity as cv
from cavity.factors import Logistic, Probit
from cavity.families import Gaussian
from cavity.inference.problem import SiteGroup
from cavity.learned import just_in_time

DIMENSION, COUNT, TOLERANCE = 4, 60, 1e-6
METHOD = cv.EP(schedule=cv.Parallel())


def regression(seed):
    rng = np.random.default_rng(seed)
    w = np.random.default_rng(7).normal(size=DIMENSION)
    x = rng.normal(size=(COUNT, DIMENSION))
    return x, np.where(rng.random(COUNT) < 1 / (1 + np.exp(-x @ w)), 1.0, -1.0)


def solved(likelihood, seed, **kwargs):
    x, y = regression(seed)
    return cv.infer(cv.models.latent_gaussian(y, likelihood, X=x, **kwargs), METHOD)


@pytest.fixture(scope="module")
def learned():
    """The operator after three problems, and the solutions: its own and exact EP's."""
    with jax.enable_x64(True):
        factor = just_in_time(Logistic(), oracle=cv.Quadrature(), tol_kl=TOLERANCE)
        own, true, asked = [], [], []
        for seed in range(3):
            own.append(solved(factor, seed))
            true.append(solved(Logistic(), seed, moments=cv.Quadrature()))
            asked.append(factor.report().queries)
    return factor, own, true, asked


def test_posteriors_and_evidence_are_those_of_exact_moments(learned):
    _, own, true, _ = learned
    for found, exact in zip(own, true, strict=True):
        assert found.status == "converged"
        gap, precision = found.mean - exact.mean, np.linalg.inv(found.covariance)
        ratio = precision @ exact.covariance
        kl = 0.5 * (np.trace(ratio) - DIMENSION + gap @ precision @ gap - np.linalg.slogdet(ratio)[1])
        assert kl <= COUNT * TOLERANCE
        assert found.log_evidence == pytest.approx(float(exact.log_evidence), abs=COUNT * np.sqrt(2 * TOLERANCE))


def test_it_asks_less_and_less(learned):
    _, own, _, asked = learned
    messages = sum(int(found.sweeps) * COUNT for found in own)
    assert asked[0] > asked[1] - asked[0] >= asked[2] - asked[1]
    assert asked[-1] < 0.1 * messages


def test_unlike_messages_are_not_predicted_with_confidence(learned):
    """Variances from 1e-6 to 1e6 and means up to 1e3: a site is given no moments, or right ones."""
    confident, kl = looked_at(learned[0], *far_messages(3, 2000))
    assert confident.mean() < 0.1
    assert (kl[confident] <= 100 * TOLERANCE).all()


def test_new_labels_compile_nothing(learned, caplog):
    factor = learned[0]
    solved(factor, 2)  # whatever other tests have pushed out of JAX's caches
    before = factor.report().queries
    with jax.log_compiles():
        solved(factor, 11)
    assert factor.report().queries >= before
    assert not [line for line in caplog.messages if "compilation of jit(advance" in line]


def test_a_noisy_oracle_is_not_asked_for_ever():
    """A few hundred draws can never make a site as sure as this; the run ends, and says so."""
    factor = just_in_time(Logistic(), oracle=cv.Importance(draws=400), tol_kl=1e-12)
    x, y = regression(0)
    problem = cv.models.latent_gaussian(y, factor, X=x)
    found = cv.infer(problem, cv.EP(schedule=cv.Parallel(), max_sweeps=2))
    assert found.status == "unsure_factor"
    assert int(found.nonfinite) == 0 < int(found.unsure)
    assert 0 < factor.report().queries <= 2 * COUNT


def test_one_operator_is_for_one_kind_of_sites(learned):
    with pytest.raises(ValueError, match="make one for each kind"):
        learned[0].moments.init(SiteGroup(learned[0], np.zeros((3, 2)), Gaussian(), learned[0].moments))
    with pytest.raises(ValueError, match="messages of another factor"):
        learned[0].moments.init(SiteGroup(Probit(), np.zeros(3), Gaussian(), learned[0].moments))


def test_what_is_driven_from_the_host_is_not_run_inside_jit(learned):
    x, y = regression(0)
    with pytest.raises(TypeError, match=r"cannot run inside jax\.vmap or jax\.jit"), jax.enable_x64(True):
        jax.jit(lambda labels: cv.infer(cv.models.latent_gaussian(labels, learned[0], X=x), METHOD).mean)(y)
    with pytest.raises(TypeError, match="a learned factor changes its own between sweeps"):
        cv.infer(cv.models.latent_gaussian(y, learned[0], X=x), cv.ConvergentEP())
    with pytest.raises(TypeError, match="power 1"):
        cv.infer(cv.models.latent_gaussian(y, learned[0], X=x), cv.PowerEP(0.5))


def test_other_strategies_may_integrate_a_learned_factor(learned):
    """The factor that brings an operator is still the factor itself."""
    found, exact = (solved(own, 0, moments=cv.Quadrature()) for own in (learned[0], Logistic()))
    np.testing.assert_array_equal(found.mean, exact.mean)


def test_leave_one_out_uses_what_was_learned(learned):
    _, own, true, _ = learned
    np.testing.assert_allclose(own[-1].loo_log_predictive, true[-1].loo_log_predictive, atol=5e-3)
    assert float(own[-1].energy().value) == pytest.approx(-float(own[-1].log_evidence), abs=1e-9)


def test_bad_requests_are_refused():
    with pytest.raises(ValueError, match="tol_kl must be positive"):
        just_in_time(Logistic(), tol_kl=-1.0)
    with pytest.raises(TypeError, match="a factor or a sampler is needed"):
        just_in_time("logistic")  # type: ignore[arg-type]
