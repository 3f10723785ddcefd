"""The log evidence of what is a probability, of labels, counts, classes and truncations, is never above 0."""

import numpy as np
import pytest

import cavity as cv

F = cv.factors
#: likelihoods with observations of them; the last ones are all but certain, so that the evidence is all but 1
LIKELIHOODS = {
    "step": (F.Step(0.0), [1.0, 1.0]),  # both labels of one unknown would be impossible
    "step with wrong labels": (F.Step(0.2), [1.0, -1.0]),
    "probit": (F.Probit(), [1.0, -1.0]),
    "logistic": (F.Logistic(), [1.0, -1.0]),
    "ordinal": (F.OrdinalProbit(np.array([-1e3, 1e3])), [0.0, 1.0, 2.0]),
    "poisson": (F.Poisson(), [0.0, 1.0, 30.0]),
}
ROUNDS = 12


def prior_of(rng):
    """A Gaussian anywhere, narrow or wide; half of the time far on one side of what is observed."""
    far = 10.0 ** rng.uniform(-3, 6) if rng.random() < 0.5 else rng.uniform(0, 50)
    return rng.choice([-1.0, 1.0]) * far, 10.0 ** rng.uniform(-8, 4)


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("method", [cv.EP(), cv.ADF()], ids=["EP", "ADF"])
def test_log_evidence_of_discrete_observations_is_not_above_zero(name, method):
    factor, values = LIKELIHOODS[name]
    rng, answered = np.random.default_rng(list(LIKELIHOODS).index(name)), 0
    for _ in range(ROUNDS):
        mean, variance = prior_of(rng)
        data, copies = rng.choice(values, 3), rng.choice([1.0, 1.0, 1e6], 3)
        found = cv.infer(cv.models.posterior(factor, data, mean, variance, multiplicity=copies), method)
        if found.converged or found.status == "single_pass":
            answered += 1
            assert found.log_evidence <= 0.0, (mean, variance, data, copies, found.log_evidence)
    assert answered >= ROUNDS // 3


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_log_evidence_of_labels_behind_a_process_is_not_above_zero(name):
    factor, values = LIKELIHOODS[name]
    rng, answered = np.random.default_rng(list(LIKELIHOODS).index(name)), 0
    for _ in range(ROUNDS):
        x, scale = np.sort(rng.uniform(0, 9, 6)), 10.0 ** rng.uniform(-8, 2)
        kernel = scale * (np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-3 * np.eye(6))
        data = np.full(6, values[1]) if rng.random() < 0.5 else rng.choice(values, 6)
        found = cv.infer(cv.models.latent_gaussian(data, factor, kernel_matrix=kernel), cv.EP())
        if found.converged:
            answered += 1
            assert found.log_evidence <= 0.0, (scale, data, found.log_evidence)
    assert answered >= ROUNDS // 3


def test_log_evidence_of_truncations_is_not_above_zero():
    rng, largest = np.random.default_rng(0), -np.inf
    for _ in range(80):
        mean, variance = prior_of(rng)
        low = mean - np.sqrt(variance) * 10.0 ** rng.uniform(0, 2, 3)
        high = np.where(rng.random(3) < 0.5, mean + np.sqrt(variance) * 10.0 ** rng.uniform(0, 2, 3), np.inf)
        found = cv.infer(cv.models.truncation(mean, variance, low, high), cv.EP())
        if found.converged:
            largest = max(largest, float(found.log_evidence))
            assert found.log_evidence <= 0.0, (mean, variance, low, high, found.log_evidence)
    assert largest > -1e-12  # some are all but certain
