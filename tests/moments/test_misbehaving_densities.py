"""Densities that are NaN or +∞ somewhere, and functions that give no number: told, and never counted as zero."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from misbehaving import Misbehaviour, is_right, misbehaviours, problem_of, truth

import cavity as cv
from cavity.factors import FactorError, from_log_density, from_log_z


@given(misbehaviours())
@settings(max_examples=25, deadline=None)
def test_quadrature_is_right_or_says_that_the_factor_is_not_finite(case):
    found = cv.infer(problem_of(case, cv.Quadrature()), cv.EP())
    assert is_right(case, found, 1e-8) if found.converged else found.status == "nonfinite_factor"


@given(misbehaviours())
@settings(max_examples=15, deadline=None)
def test_a_product_rule_over_two_variables_too(case):
    """Jumps aside, which it integrates to a few digits only, and regions that lie between its points."""
    case = case._replace(high=max(case.high, case.low + 1.0))
    case = case._replace(kind="nothing") if case.kind == "impossible" else case
    found = cv.infer(problem_of(case, cv.Quadrature(), variables=2), cv.EP())
    assert is_right(case, found, 1e-7) if found.converged else found.status == "nonfinite_factor"


@given(misbehaviours())
@settings(max_examples=25, deadline=None)
def test_importance_sampling_too(case):
    """A region that no draw has met may count as it likes: here all of them hold some thousandth of the draws."""
    found = cv.infer(problem_of(case._replace(low=0.5, high=1.5), cv.Importance(draws=4000)), cv.EP())
    assert found.converged == case.is_known
    assert not found.converged or is_right(case._replace(low=0.5, high=1.5), found, 1e-8, draws=4000)


@pytest.mark.parametrize("kind", ["nan", "infinite"])
def test_a_check_by_draws_does_not_pass_where_it_met_such_a_region(kind):
    found = cv.infer(problem_of(Misbehaviour(kind, 0.5, 1.5, 0.0), cv.Quadrature()), cv.EP())
    checked = found.check()
    assert checked.verdict == "inconclusive" and "NaN or infinite at" in checked.sentence


@pytest.mark.parametrize("kind", ["nan", "infinite"])
def test_there_is_no_exact_answer_then(kind):
    case = Misbehaviour(kind, 0.5, 1.5, 0.0)
    with pytest.raises(FactorError, match="NaN or infinite at"):
        cv.exact(problem_of(case, cv.Quadrature()))
    far = case._replace(low=40.0, high=41.0)
    mean, _, log_evidence = truth(far)[0]
    found = cv.exact(problem_of(far, cv.Quadrature()))
    assert (found.mean, found.log_evidence) == pytest.approx((mean, log_evidence), abs=1e-8)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_state_of_which_nothing_is_known_matters_if_it_is_possible(value):
    """The sum over states: what is known to be impossible need not be known."""
    family = cv.families.Categorical(3)
    factor = from_log_density(lambda x, y: jnp.asarray([0.0, 1.0, value])[x] + y)

    def run(prior):
        group = cv.SiteGroup(factor, np.zeros(1), family, cv.Enumeration())
        return cv.infer(cv.Problem(family.from_probabilities(prior), (group,), cv.posteriors.Shared(family)), cv.EP())

    assert run([0.2, 0.3, 0.5]).status == "nonfinite_factor"
    found = run([0.4, 0.6, 0.0])
    assert found.converged
    assert found.log_evidence == pytest.approx(np.log(0.4 + 0.6 * np.e), abs=1e-12)


def raising(x, y):
    raise RuntimeError("no licence.\nAsk for one")


def branching(x, y):
    return -x if x > 0 else x


FAILURES = {
    "raises": (raising, "log_density of FromLogDensity raising raised RuntimeError: no licence"),
    "branches": (branching, "FromLogDensity branching raised TracerBoolConversionError"),
    "leaves JAX": (lambda x, y: float(np.sin(x)), "raised TracerArrayConversionError"),
    "vector": (lambda x, y: jnp.stack([x, y]), r"an array of shape \(2,\)"),
    "one-element vector": (lambda x, y: x[None], r"an array of shape \(1,\)"),
    "complex": (lambda x, y: x + 0j, "a value of type complex128"),
    "boolean": (lambda x, y: x > y, "a value of type bool"),
    "nothing": (lambda x, y: None, "must give|raised"),
    "text": (lambda x, y: "0", "raised TypeError"),
}


@pytest.mark.parametrize(("function", "words"), FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("moments", [cv.Quadrature(), cv.Importance(draws=100)], ids=str)
def test_a_density_that_is_no_number_is_named(function, words, moments):
    problem = cv.models.posterior(from_log_density(function), [0.3, -1.2], prior_variance=1.0).with_moments(moments)
    with pytest.raises(FactorError, match=words) as refusal:
        cv.infer(problem)
    assert isinstance(refusal.value.__cause__, RuntimeError) or function is not raising
    assert "\n" not in str(refusal.value)


def test_a_density_of_whole_numbers_is_one():
    """log t = −1 above 0 and −2 below: the evidence is their mean, e⁻¹/2 + e⁻²/2."""
    factor = from_log_density(lambda x, y: jnp.where(x > 0, -1, -2))
    problem = cv.models.posterior(factor, [0.0], prior_variance=1.0).with_moments(cv.Quadrature())
    assert cv.infer(problem).log_evidence == pytest.approx(np.log(0.5 * (np.exp(-1) + np.exp(-2))), abs=1e-9)


LOG_Z = {
    "raises": (lambda m, v, y: 1 / 0, "log_z of FromLogZ <lambda> raised ZeroDivisionError: division by zero"),
    "vector": (lambda m, v, y: jnp.stack([m, v]), r"an array of shape \(2,\)"),
    "complex": (lambda m, v, y: m + 0j, "complex128"),
    "whole numbers": (lambda m, v, y: jnp.where(m > 0, -1, -2), "int64"),
}


@pytest.mark.parametrize(("function", "words"), LOG_Z.values(), ids=LOG_Z)
def test_a_log_z_that_is_no_number_is_named(function, words):
    with pytest.raises(FactorError, match=words):
        cv.infer(cv.models.posterior(from_log_z(function), [0.3], prior_variance=1.0))


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
def test_a_log_z_that_is_not_finite_is_told(value):
    factor = from_log_z(lambda m, v, y: jnp.where(m > -5.0, value, m))
    assert cv.infer(cv.models.posterior(factor, [0.3], prior_variance=1.0)).status == "nonfinite_factor"
