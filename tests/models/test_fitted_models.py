"""Fitted machines: evidence gradients, searches, padding, weights, streaming and storage of state."""

import jax
import numpy as np
import pytest
import rank_one_ep

import cavity as cv
from cavity._core.precision import to_numpy
from cavity.inference import _loop
from cavity.kernels import RBF, Constant, Linear
from cavity.kernels.base import compiled_matrix, compiled_pullback
from cavity.kernels.covariances import from_spec as kernel_from_spec
from cavity.models._latent_gaussian import ExactGP, LinearModel, evidence_search, fit_exact_gp, fit_linear_model
from cavity.models._latent_gaussian.evidence_search import (
    EvidenceSearch,
    SearchSpace,
    as_numbers,
    maximise,
    unpack_likelihood,
)
from cavity.models._latent_gaussian.rows import bucket, feature_bucket


def labels(seed, n=40, flips=0.1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.where(X[:, 0] + np.sin(2 * X[:, 1]) > 0, 1.0, -1.0)
    return X, np.where(rng.random(n) < flips, -y, y)


CASES = {
    "probit": (cv.factors.Probit(0.05), ("label_noise",), lambda y: y),
    "step": (cv.factors.Step(0.1), ("label_noise",), lambda y: y),
    "logistic": (cv.factors.Logistic(0.02), ("label_noise",), lambda y: y),
    "student": (cv.factors.StudentT(0.5, 4.0), ("scale", "df"), lambda y: y + 0.3 * np.arange(len(y)) / len(y)),
    "gaussian": (cv.factors.Gaussian(0.5), ("variance",), lambda y: y),
    "poisson": (cv.factors.Poisson(), (), lambda y: np.abs(np.round(2 * y))),
    "ordinal": (cv.factors.OrdinalProbit(np.array([-0.5, 0.4])), ("thresholds",), lambda y: np.arange(len(y)) % 3),
}


@pytest.mark.parametrize("name", [*CASES, "powered"])
def test_evidence_gradients_equal_differences(name, monkeypatch):
    factor, free, data = CASES["step" if name == "powered" else name]
    X, y = labels(1, n=30)
    y = data(y).astype(float)
    kernel = Constant(2.0) * RBF([1.2, 0.8]) + Linear(0.3)
    method = cv.PowerEP(0.5, tol=1e-9) if name == "powered" else cv.EP(tol=1e-9, damping=0.8)
    seen = []

    def evidence(vector):
        own = kernel.with_theta(vector[: kernel.theta.size])
        term = as_numbers(unpack_likelihood(factor, free, vector[kernel.theta.size :]))
        machine = fit_exact_gp(X, y, kernel=own, factor=term, method=method, optimize=False)
        assert machine.converged
        return machine.log_evidence

    class Enough(Exception):
        pass

    def first(evaluation):
        seen.append(evaluation)
        raise Enough

    # The search runs at its own, wider tolerance; the gradient is compared at the method's.
    monkeypatch.setattr(evidence_search, "SEARCH_TOL", 1e-9)
    with pytest.raises(Enough):
        fit_exact_gp(X, y, kernel=kernel, factor=factor, free=free, method=method, search_callback=first)
    point, gradient = seen[0].vector, seen[0].gradient
    for i in range(point.size):
        step = np.zeros(point.size)
        step[i] = 1e-4
        difference = (evidence(point + step) - evidence(point - step)) / 2e-4
        assert gradient[i] == pytest.approx(difference, rel=1e-5, abs=1e-5), i


def test_linear_machine_gradients_equal_differences():
    X, y = labels(2, n=30)
    X = np.c_[X, np.ones(30)]
    seen = []
    fit_linear_model(
        X,
        y,
        factor=cv.factors.Probit(0.05),
        optimize=True,
        free=("prior_variance", "label_noise"),
        search_callback=seen.append,
    )
    point, gradient = seen[0].vector, seen[0].gradient

    def evidence(vector):
        machine = fit_linear_model(
            X, y, factor=cv.factors.Probit(float(np.exp(vector[1]))), prior_variance=float(np.exp(vector[0]))
        )
        assert machine.converged
        return machine.log_evidence

    for i in range(2):
        step = np.zeros(2)
        step[i] = 1e-4
        difference = (evidence(point + step) - evidence(point - step)) / 2e-4
        assert gradient[i] == pytest.approx(difference, rel=1e-5, abs=1e-5)
    assert max(e.log_evidence for e in seen) > seen[0].log_evidence


def test_padding_changes_nothing_and_folds_share_a_program():
    X, y = labels(3, n=60)
    kernel, factor = RBF(1.0), cv.factors.Probit()
    before = _loop.advance_in_place._cache_size()
    for n in (60, 51, 57, 49, 33):
        machine = fit_exact_gp(X[:n], y[:n], kernel=kernel, factor=factor, optimize=False)
        reference = rank_one_ep.rank_one_ep(np.asarray(kernel(X[:n])), rank_one_ep.probit(y[:n], 0.0))
        assert machine.log_evidence == pytest.approx(reference.log_evidence, abs=1e-8)
        np.testing.assert_allclose(machine.latent_mean, reference.mean, atol=1e-7)
        np.testing.assert_allclose(machine.loo_log_predictive, reference.loo_log_z, atol=1e-7)
    assert _loop.advance_in_place._cache_size() - before <= 1


def test_features_and_bounds_of_other_data_share_a_program():
    rng = np.random.default_rng(0)
    before = [f._cache_size() for f in (_loop.advance_in_place, compiled_matrix, compiled_pullback)]
    for n, d in ((30, 3), (24, 5), (20, 8)):
        X = rng.normal(size=(n, d))
        y = np.where(X[:, 0] > 0, 1.0, -1.0)
        linear = fit_linear_model(X, y, factor=cv.factors.Probit())
        K = X @ X.T + 1e-9 * np.eye(n)
        reference = rank_one_ep.rank_one_ep(K, rank_one_ep.probit(y, 0.0))
        assert linear.log_evidence == pytest.approx(reference.log_evidence, abs=1e-6)
        assert linear.mean.shape == (d,) and linear.covariance.shape == linear.precision.shape == (d, d)
        np.testing.assert_allclose(linear.precision @ linear.covariance, np.eye(d), atol=1e-8)
        np.testing.assert_allclose(linear.covariance @ linear.shift, linear.mean, atol=1e-8)
        own = RBF(1.0, length_scale_bounds=(0.1 + d / 100, 10.0))
        fit_exact_gp(X[:, :2], y, kernel=own, factor=cv.factors.Probit())
    after = [f._cache_size() for f in (_loop.advance_in_place, compiled_matrix, compiled_pullback)]
    assert all(late - early <= most for early, late, most in zip(before, after, (2, 1, 1), strict=True))
    assert [feature_bucket(d) for d in (1, 8, 9, 64, 65, 100, 200)] == [8, 8, 16, 64, 72, 104, 208]


def test_buckets():
    assert [bucket(n) for n in (1, 32, 33, 100, 256, 257, 900, 1000, 1025, 2000)] == [
        32, 32, 64, 128, 256, 288, 960, 1024, 1152, 2048,
    ]  # fmt: skip
    assert all(n <= bucket(n) <= 1.125 * n + 1 for n in range(257, 5000, 7))


def test_prediction_at_the_training_points_and_far_away():
    X, y = labels(4)
    machine = fit_exact_gp(X, y, kernel=RBF(1.0), factor=cv.factors.Probit(0.1), optimize=False)
    mean, variance = machine.latent(X)
    np.testing.assert_allclose(mean, machine.latent_mean, atol=1e-9)
    np.testing.assert_allclose(variance, machine.latent_variance, atol=1e-9)
    mean, variance = machine.latent(X + 1e3)
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(variance, 1.0, atol=1e-12)
    draws = to_numpy(machine.sample(X[:3], jax.random.key(0), 40_000))
    np.testing.assert_allclose(draws.mean(axis=0), machine.latent_mean[:3], atol=0.02)
    np.testing.assert_allclose(draws.var(axis=0), machine.latent_variance[:3], rtol=0.05)


def test_fractional_weights_are_powers_of_the_likelihood():
    X, y = labels(5, n=12)
    kernel = RBF(1.0)
    halves = fit_exact_gp(
        X, y, kernel=kernel, factor=cv.factors.Gaussian(0.5), sample_weight=np.full(12, 0.5), optimize=False
    )
    # N(y; f, v)^½ is N(y; f, 2v) times a constant: exact
    wide = fit_exact_gp(X, y, kernel=kernel, factor=cv.factors.Gaussian(1.0), optimize=False)
    np.testing.assert_allclose(halves.latent_mean, wide.latent_mean, atol=1e-9)
    constant = 12 * (-0.25 * np.log(2 * np.pi * 0.5) + 0.5 * np.log(2 * np.pi * 1.0))
    assert halves.log_evidence == pytest.approx(wide.log_evidence + constant, abs=1e-9)


def test_rows_without_variance_join_as_constants():
    X, y = labels(6, n=10)
    X[3] = 0.0
    kept = np.arange(10) != 3
    full = fit_linear_model(X, y, factor=cv.factors.Step(0.1))
    part = fit_linear_model(X[kept], y[kept], factor=cv.factors.Step(0.1))
    np.testing.assert_allclose(full.mean, part.mean, atol=1e-8)
    assert full.log_evidence == pytest.approx(part.log_evidence + np.log(0.5), abs=1e-9)
    assert full.loo_log_predictive[3] == pytest.approx(np.log(0.5), abs=1e-9)
    kernel = fit_exact_gp(X, y, kernel=Linear(1.0), factor=cv.factors.Step(0.1), optimize=False)
    assert kernel.log_evidence == pytest.approx(full.log_evidence, abs=1e-7)


def test_streaming_is_one_pass_and_refining_is_ep():
    X, y = labels(7, n=60)
    X = np.c_[X, np.ones(60)]
    factor = cv.factors.Probit(0.05)
    whole = fit_linear_model(X, y, factor=factor, method=cv.ADF())
    machine = fit_linear_model(X[:30], y[:30], factor=factor, method=cv.ADF())
    machine = machine.absorb(X[30:], y[30:])
    np.testing.assert_allclose(machine.mean, whole.mean, atol=1e-10)
    assert machine.log_evidence == pytest.approx(whole.log_evidence, abs=1e-9)
    refined = whole.refine(X, y)
    direct = fit_linear_model(X, y, factor=factor)
    assert refined.converged
    np.testing.assert_allclose(refined.mean, direct.mean, atol=1e-7)
    assert refined.log_evidence == pytest.approx(direct.log_evidence, abs=1e-8)
    with pytest.raises(ValueError, match="60 rows the model has seen"):
        whole.refine(X[:5], y[:5])


def test_state_round_trip():
    X, y = labels(8)
    machine = fit_exact_gp(X, y, kernel=2.0 * RBF(1.0), factor=cv.factors.Step(0.1), optimize=False)
    header, arrays = machine.state()
    again = ExactGP.from_state(header, arrays, kernel_from_spec)
    np.testing.assert_array_equal(again.latent(X + 0.1), machine.latent(X + 0.1))
    assert again.status is machine.status and again.method == machine.method
    linear = fit_linear_model(X, y, factor=cv.factors.Step(0.1))
    again = LinearModel.from_state(*linear.state())
    np.testing.assert_array_equal(again.latent(X), linear.latent(X))


def test_the_prior_of_label_noise_has_its_own_gradient():
    nothing, factor = (np.zeros(0), np.zeros((0, 2))), cv.factors.OrdinalProbit(np.array([0.0, 1.0]))
    assert SearchSpace(*nothing, factor, ("thresholds",)).log_prior(np.zeros(2))[0] == 0.0
    step, space = 1e-6, SearchSpace(*nothing, cv.factors.Step(0.1), ("label_noise",))
    low, high = (space.log_prior(np.log([0.1]) + s)[0] for s in (-step, step))
    value, gradient = space.log_prior(np.log([0.1]))
    assert value == pytest.approx(np.log(0.8))
    assert gradient[0] == pytest.approx((high - low) / (2 * step), rel=1e-6)


class Fake(EvidenceSearch):
    """A search of a parabola with its top at (1, −½), where runs converge only below a limit."""

    edge = np.inf

    def run(self, vector):
        class Run:
            status = cv.Status.CONVERGED if vector[0] < self.edge else cv.Status.MAX_SWEEPS
            log_evidence = -20 * (vector[0] - 1.0) ** 2 - 3 * (vector[1] + 0.5) ** 2

        return Run()


def fake_search(limit):
    def slope(vector, run):
        return np.array([-40 * (vector[0] - 1.0), -6 * (vector[1] + 0.5)])

    search = Fake(lambda vector: None, slope, None, lambda vector: (0.0, np.zeros(2)))
    search.edge = limit
    return search


BOX = np.array([[-5.0, 5.0], [-5.0, 5.0]])


@pytest.mark.parametrize("limit", [np.inf, 1.02])
def test_the_search_finds_the_maximum(limit):
    search = fake_search(limit)
    best = maximise(search, np.array([-3.0, 2.0]), BOX, restarts=1, seed=0)
    np.testing.assert_allclose(best.vector, [1.0, -0.5], atol=1e-3)


def test_a_refused_point_leads_back():
    search = fake_search(0.0)
    good, _ = search(np.array([-1.0, 0.0]))
    bad, gradient = search(np.array([0.5, 0.3]))
    assert bad > good and search.history[-1]["refused"]
    assert gradient @ (np.array([0.5, 0.3]) - np.array([-1.0, 0.0])) > 0
    best = maximise(search, np.array([-1.0, 0.0]), BOX, restarts=0, seed=0)
    assert best.vector[0] < 0.0  # the best point that converges lies at the limit, or below


def test_a_restricted_fixed_point_has_no_gradient_and_is_refused():
    X, y = labels(1, n=30, flips=0.2)
    machine = fit_exact_gp(
        X, y, kernel=RBF(2.0), factor=cv.factors.Step(0.1), free=("label_noise",), method=cv.RestrictedEP()
    )
    assert machine.status == "converged_restricted"
    assert all(entry["refused"] for entry in machine.history)


def test_a_kernel_that_turns_indefinite_is_refused():
    class Turning(RBF):
        """Not a kernel from some length scale on."""

        def __call__(self, X, Z=None):
            k = np.array(RBF(self.length_scale)(X, Z))
            return k if self.length_scale < 1.2 else k - 0.9 * (1 - np.eye(*k.shape))

    X, y = labels(1, n=30)
    with pytest.raises(ValueError, match="positive semi-definite"):
        fit_exact_gp(X, y, kernel=Turning(1.5), factor=cv.factors.Probit(), optimize=False)


def test_a_refused_start_is_left_for_one_nearby():
    search = fake_search(0.3)
    best = maximise(search, np.array([0.4, 0.0]), BOX, restarts=0, seed=0)
    assert search.history[0]["refused"] and best is not None
