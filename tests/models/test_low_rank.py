"""Latent Gaussian models carried by a basis, against dense computations written out here."""

import jax
import numpy as np
import pytest
import rank_one_ep
from scipy import stats

import cavity as cv
from cavity.kernels import RBF, Constant, InducingInputs, Linear, Matern, RandomFeatures

N, M = 30, 8
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 2))
Y = np.where(X[:, 0] + np.sin(2 * X[:, 1]) + 0.4 * RNG.normal(size=N) > 0, 1.0, -1.0)
Z = RNG.normal(size=(M, 2))
NEW = RNG.normal(size=(4, 2))
KERNEL = Constant(2.0) * RBF([1.2, 0.8])


def gram(left, right):
    return 2.0 * np.exp(-0.5 * np.sum(((left[:, None] - right) / [1.2, 0.8]) ** 2, axis=2))


def nystrom(left, right):
    """Q = K_lz K_zz⁻¹ K_zr."""
    return gram(left, Z) @ np.linalg.solve(gram(Z, Z), gram(Z, right))


Q = nystrom(X, X)
RESIDUAL = np.diag(gram(X, X) - Q)


def problem(likelihood, y=Y, **changes):
    return cv.models.latent_gaussian(y, likelihood, **{"X": X, "kernel": KERNEL, "basis": InducingInputs(Z), **changes})


@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_ep_with_inducing_inputs_is_ep_under_the_dense_fitc_prior(noise):
    plain = rank_one_ep.rank_one_ep(Q + np.diag(RESIDUAL), rank_one_ep.step(Y, noise))
    found = cv.infer(problem(cv.factors.Step(noise)), cv.EP(tol=1e-11))
    assert plain.converged and found.status == "converged"
    assert float(found.log_evidence) == pytest.approx(plain.log_evidence, abs=1e-8)
    np.testing.assert_allclose(found.loo_log_predictive[0], plain.loo_log_z, atol=1e-8)
    # The latents at new points: covariances with the rows are those of the low-rank part.
    cross = nystrom(NEW, X)
    inner = np.linalg.inv(Q + np.diag(RESIDUAL) + np.diag(1 / plain.tau))
    said = found.predict(NEW)
    np.testing.assert_allclose(said["latent_mean"], cross @ inner @ (plain.nu / plain.tau), atol=1e-8)
    spread = np.diag(gram(NEW, NEW)) - np.sum(cross @ inner * cross, axis=1)
    np.testing.assert_allclose(said["latent_variance"], spread, atol=1e-8)


@pytest.mark.parametrize("power", [1.0, 0.5, 0.1])
def test_power_ep_projects_powered_terms_onto_the_inducing_values(power):
    """Bui, Yan & Turner: latents g = K_xz K_zz⁻¹ u of covariance Q, terms ∫ t(f)^p N(f; g, r) df."""
    term = rank_one_ep.powered_step(Y, 0.1, power)
    blurred = rank_one_ep.rank_one_ep(
        Q, lambda i, m, v: term(i, m, v + RESIDUAL[i]), power=power, tol=1e-11, max_sweeps=3000
    )
    found = cv.infer(problem(cv.factors.Step(0.1)), cv.PowerEP(power, tol=1e-11, max_sweeps=3000))
    assert blurred.converged and found.status == "converged"
    assert float(found.log_evidence) == pytest.approx(blurred.log_evidence, abs=1e-8)
    np.testing.assert_allclose(found.view("latent_mean"), blurred.mean, atol=1e-8)
    np.testing.assert_allclose(found.view("latent_variance"), blurred.variance, atol=1e-8)


@pytest.mark.parametrize("power", [1.0, 0.4, 1e-4])
def test_gaussian_observations_have_the_known_evidence(power):
    """log N(y; 0, Q + p diag r + s²) − (1 − p)/(2p) Σ log(1 + p r/s²), which for p → 0 is the variational bound."""
    y, noise = RNG.normal(size=N), 0.3
    wide = Q + np.diag(power * RESIDUAL + noise)
    exact = stats.multivariate_normal.logpdf(y, np.zeros(N), wide)
    exact -= (1 - power) / (2 * power) * np.sum(np.log1p(power * RESIDUAL / noise))
    found = cv.infer(problem(cv.factors.Gaussian(noise), y), cv.PowerEP(power, damping=1.0, tol=1e-9))
    assert found.status == "converged"
    assert float(found.log_evidence) == pytest.approx(exact, abs=1e-7)
    if power == 1e-4:
        bound = stats.multivariate_normal.logpdf(y, np.zeros(N), Q + noise * np.eye(N)) - np.sum(RESIDUAL) / (2 * noise)
        assert float(found.log_evidence) == pytest.approx(bound, rel=1e-3)


def test_inducing_inputs_at_the_rows_lose_nothing():
    exact = cv.infer(problem(cv.factors.Probit(0.05), basis=None), cv.EP(tol=1e-10))
    found = cv.infer(problem(cv.factors.Probit(0.05), basis=InducingInputs(X)), cv.EP(tol=1e-10))
    assert float(found.log_evidence) == pytest.approx(float(exact.log_evidence), abs=1e-6)
    np.testing.assert_allclose(found.view("latent_mean"), exact.mean, atol=1e-6)
    ours, theirs = found.predict(NEW), exact.predict(NEW)
    np.testing.assert_allclose(ours["latent_variance"], theirs["latent_variance"], atol=1e-6)


def test_random_features_are_the_process_of_their_gram_matrix():
    kernel = 1.5 * Matern(0.9, 2.5) + Linear(0.2)
    basis = RandomFeatures.draw(kernel, 2, 24, jax.random.key(0))
    rows = np.asarray(basis(kernel, X).rows)
    dense = cv.infer(cv.models.latent_gaussian(Y, cv.factors.Probit(), kernel_matrix=rows @ rows.T), cv.EP(tol=1e-11))
    found = cv.infer(problem(cv.factors.Probit(), kernel=kernel, basis=basis), cv.EP(tol=1e-11))
    assert float(found.log_evidence) == pytest.approx(float(dense.log_evidence), abs=1e-8)
    np.testing.assert_allclose(found.view("latent_mean"), dense.mean, atol=1e-8)
    new = np.asarray(basis(kernel, NEW).rows)
    said = dense.predict(new @ rows.T, np.sum(new**2, axis=1))
    np.testing.assert_allclose(found.predict(NEW)["latent_variance"], said["latent_variance"], atol=1e-8)


def test_outliers_with_negative_sites_agree_with_the_dense_form():
    y = np.sin(2 * X[:, 0])
    y[[3, 11]] += 6.0
    likelihood = cv.factors.StudentT(0.2, 3.0)
    dense = cv.infer(cv.models.latent_gaussian(y, likelihood, kernel_matrix=Q + np.diag(RESIDUAL)))
    found = cv.infer(problem(likelihood, y))
    assert dense.status == found.status == "converged" and int(dense.negative) > 0 and int(found.negative) > 0
    assert float(found.log_evidence) == pytest.approx(float(dense.log_evidence), abs=1e-6)


@pytest.mark.parametrize("method", [cv.RelaxedEP(0.01), cv.ConvergentEP()])
def test_other_methods_run(method):
    found = cv.infer(problem(cv.factors.Probit(0.05)), method)
    assert found.converged


def test_bad_input_is_refused_in_one_sentence():
    probit = cv.factors.Probit()
    with pytest.raises(TypeError, match=r"basis must be one of cavity.kernels, such as .* found ndarray"):
        problem(probit, basis=Z)
    with pytest.raises(ValueError, match="basis carries a process with a kernel"):
        problem(probit, kernel=None)
    with pytest.raises(ValueError, match="inputs must have 2 columns"):
        problem(probit, basis=InducingInputs(np.ones((3, 1))))
    with pytest.raises(ValueError, match="a latent of no variance observes nothing; found 0 at 4"):
        problem(probit, kernel=Linear(), X=np.where(np.arange(N)[:, None] == 4, 0.0, X))
    with pytest.raises(ValueError, match="finite and positive semi-definite at the points of the basis"):
        problem(probit, kernel=Linear(1e300), X=1e10 * X)
    own = cv.factors.from_log_density(lambda f, y: -((f - y) ** 4))
    with pytest.raises(TypeError, match=r"likelihood that is integrated in closed form; .* has Quadrature"):
        problem(own)
