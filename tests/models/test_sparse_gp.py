"""The low-rank machine: evidence gradients, weights, latents it cannot reach, storage of state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import cavity as cv
from cavity.inference import _loop
from cavity.kernels import RBF, Constant, InducingInputs, Linear, RandomFeatures
from cavity.kernels.covariances import from_spec as kernel_from_spec
from cavity.models._latent_gaussian import SparseGP, evidence_search, fit_sparse_gp
from cavity.models._latent_gaussian.evidence_search import as_numbers, unpack_likelihood
from cavity.models._latent_gaussian.exact_gp import covariance_gradient

RNG = np.random.default_rng(8)
X = RNG.normal(size=(30, 2))
Y = np.where(X[:, 0] + np.sin(2 * X[:, 1]) + 0.4 * RNG.normal(size=30) > 0, 1.0, -1.0)
Z = X[RNG.choice(30, 6, replace=False)] + 0.1
KERNEL = Constant(2.0) * RBF([1.2, 0.8]) + Linear(0.3)
FACTOR, FREE = cv.factors.Step(0.1), ("label_noise",)
TIGHT = cv.EP(tol=1e-10)


def fit(vector=None, **changes):
    """A fit at given parameters: theta, the logarithm of the label noise, then the inducing inputs."""
    known = {"kernel": KERNEL, "factor": FACTOR, "basis": InducingInputs(Z), "method": TIGHT, "optimize": False}
    if vector is not None:
        size = KERNEL.theta.size
        known["kernel"] = KERNEL.with_theta(vector[:size])
        known["factor"] = as_numbers(unpack_likelihood(FACTOR, FREE, vector[size : size + 1]))
        if vector.size > size + 1:
            known["basis"] = InducingInputs(vector[size + 1 :].reshape(-1, 2))
    return fit_sparse_gp(X, Y, **{**known, **changes})


def first_evaluation(monkeypatch, **changes):
    """What the search finds at its start: the point and the gradient there."""
    seen = []

    class Enough(Exception):
        pass

    def first(evaluation):
        seen.append(evaluation)
        raise Enough

    monkeypatch.setattr(evidence_search, "SEARCH_TOL", 1e-10)
    with pytest.raises(Enough):
        fit(optimize=True, free=FREE, search_callback=first, **changes)
    return seen[0]


@pytest.mark.parametrize("kind", ["inducing", "powered", "features"])
def test_evidence_gradients_equal_differences(kind, monkeypatch):
    """In kernel, likelihood and inducing inputs, of the evidence converged anew at every point."""
    changes = {"method": cv.PowerEP(0.5, tol=1e-10)} if kind == "powered" else {}
    if kind == "features":
        changes = {"basis": RandomFeatures.draw(KERNEL, 2, 16, jax.random.key(0))}
    learned = kind != "features"
    found = first_evaluation(monkeypatch, learn_inputs=learned, **changes)
    span = np.ptp(X, axis=0)
    units = np.concatenate([np.ones(KERNEL.theta.size + 1), np.tile(span, len(Z)) if learned else []])
    point = found.vector * units + np.concatenate(
        [np.zeros(KERNEL.theta.size + 1), np.tile(X.min(axis=0), len(Z)) if learned else []]
    )

    def evidence(vector):
        machine = fit(vector, **changes)
        assert machine.converged
        return machine.log_evidence

    for i in range(KERNEL.theta.size + 1 + 3 * learned):
        step = np.zeros(point.size)
        step[i] = 1e-4
        difference = (evidence(point + step) - evidence(point - step)) / 2e-4
        assert found.gradient[i] / units[i] == pytest.approx(difference, rel=1e-5, abs=1e-6), i


def test_evidence_and_gradient_equal_those_of_the_dense_matrix(monkeypatch):
    """K replaced by the low-rank matrix aᵀa + diag r in the kernel form, differentiated entry by entry."""

    def dense(theta):
        kernel = KERNEL.with_theta(theta)
        cross, inner = kernel.matrix(jnp.asarray(X), jnp.asarray(Z)), kernel.matrix(jnp.asarray(Z), None)
        low = cross @ jnp.linalg.solve(inner + 1e-10 * jnp.mean(jnp.diagonal(inner)) * jnp.eye(len(Z)), cross.T)
        return low + jnp.diag(kernel.diagonal_of(jnp.asarray(X)) - jnp.diagonal(low))

    theta = jnp.asarray(KERNEL.theta)
    exact = cv.infer(cv.models.latent_gaussian(Y, FACTOR, kernel_matrix=np.asarray(jax.jit(dense)(theta))), TIGHT)
    pull = covariance_gradient(exact.problem, exact.q, exact.sites[0])
    gradient = jax.jit(lambda t: jax.vjp(dense, t)[1](pull)[0])(theta)
    found = first_evaluation(monkeypatch)
    assert found.log_evidence == pytest.approx(float(exact.log_evidence), abs=1e-8)
    np.testing.assert_allclose(found.gradient[: theta.size], gradient, rtol=1e-8, atol=1e-8)


def test_the_search_climbs_and_moves_the_inducing_inputs():
    start = fit()
    kernel = fit(optimize=True, free=FREE)
    both = fit(optimize=True, free=FREE, learn_inputs=True)
    assert start.log_evidence < kernel.log_evidence < both.log_evidence
    moved = np.asarray(both.basis.inputs)
    assert np.abs(moved - Z).max() > 0.05
    assert (moved >= X.min(axis=0) - 1e-12).all() and (moved <= X.max(axis=0) + 1e-12).all()


def test_folds_share_a_program_and_padding_changes_nothing():
    fit_sparse_gp(X[:29], Y[:29], kernel=KERNEL, factor=FACTOR, basis=InducingInputs(Z), optimize=False)
    before = _loop.advance_in_place._cache_size()
    machine = fit(sample_weight=np.where(np.arange(30) < 20, 1.0, 0.0), method=None)
    part = fit_sparse_gp(X[:20], Y[:20], kernel=KERNEL, factor=FACTOR, basis=InducingInputs(Z), optimize=False)
    assert _loop.advance_in_place._cache_size() == before
    assert machine.log_evidence == pytest.approx(part.log_evidence, abs=1e-8)
    np.testing.assert_allclose(machine.latent(X)[1], part.latent(X)[1], rtol=1e-7)


def test_copies_are_observations_with_residuals_of_their_own():
    twice = fit_sparse_gp(
        np.vstack([X, X]), np.append(Y, Y), kernel=KERNEL, factor=FACTOR, basis=InducingInputs(Z), optimize=False
    )
    copied = fit(sample_weight=np.full(30, 2.0), method=None)
    assert copied.log_evidence == pytest.approx(twice.log_evidence, abs=1e-7)
    np.testing.assert_allclose(copied.loo_log_predictive, twice.loo_log_predictive[:30], atol=1e-6)


def test_a_row_left_out_is_predicted_by_the_fit_without_it():
    """A Gaussian likelihood makes EP exact: leaving a site out is leaving the row out."""
    noise = cv.factors.Gaussian(0.4)
    machine = fit(factor=noise)
    rest = np.arange(30) != 7
    without = fit_sparse_gp(
        X[rest], Y[rest], kernel=KERNEL, factor=noise, basis=InducingInputs(Z), optimize=False, method=TIGHT
    )
    mean, variance = without.latent(X[7:8])
    said = stats.norm.logpdf(Y[7], mean[0], np.sqrt(variance[0] + 0.4))
    assert machine.loo_log_predictive[7] == pytest.approx(said, abs=1e-8)


def test_rows_out_of_reach_and_latents_without_variance_join_the_evidence():
    """Far from all inducing inputs a label is a coin toss; so is one whose latent is fixed at 0."""
    far = fit_sparse_gp(
        np.vstack([X, [[1e4, 0.0]]]), np.append(Y, 1.0), kernel=RBF(1.0), factor=FACTOR, basis=InducingInputs(Z),
        optimize=False, method=TIGHT,
    )  # fmt: skip
    near = fit(kernel=RBF(1.0))
    assert far.log_evidence == pytest.approx(near.log_evidence + np.log(0.5), abs=1e-9)
    assert far.latent([[1e4, 0.0]])[1] == pytest.approx([1.0], abs=1e-12)
    linear = {"kernel": Linear(), "factor": FACTOR, "basis": InducingInputs(Z), "optimize": False, "method": TIGHT}
    zero = fit_sparse_gp(np.vstack([X, [[0.0, 0.0]]]), np.append(Y, 1.0), **linear)
    some = fit_sparse_gp(X, Y, **linear)
    assert zero.log_evidence == pytest.approx(some.log_evidence + np.log(0.5), abs=1e-8)
    assert zero.loo_log_predictive[30] == pytest.approx(np.log(0.5), abs=1e-12)


@pytest.mark.parametrize("basis", [InducingInputs(Z), RandomFeatures.draw(KERNEL, 2, 16, jax.random.key(0))])
def test_draws_have_the_moments_of_the_latent_and_state_comes_back(basis):
    machine = fit(basis=basis)
    header, arrays = machine.state()
    again = SparseGP.from_state(header, arrays, kernel_from_spec)
    points = X[:5] + 0.2
    mean, variance = machine.latent(points)
    np.testing.assert_array_equal(np.stack(again.latent(points)), np.stack([mean, variance]))
    draws = np.asarray(machine.sample(points, jax.random.key(3), 40_000))
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=5 * np.sqrt(variance.max() / 40_000))
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.05)
    # Jointly: with a new basis at the points themselves nothing is left over, and covariances are the latent's own.
    rows = np.asarray(basis(KERNEL, points).rows)
    prior = np.asarray(KERNEL(points)) if isinstance(basis, InducingInputs) else rows @ rows.T
    covariance = prior - rows @ rows.T + rows @ machine.weight_covariance @ rows.T
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.06 * variance.max())


def test_bad_input_is_refused_in_one_sentence():
    with pytest.raises(TypeError, match="learn_inputs needs inducing inputs; found RandomFeatures"):
        fit(basis=RandomFeatures.draw(KERNEL, 2, 16, jax.random.key(0)), learn_inputs=True)
    with pytest.raises(ValueError, match="finite and positive semi-definite at the points of the basis"):
        fit(kernel=Linear(1e200, variance_bounds="fixed"), basis=InducingInputs(1e60 * Z))
