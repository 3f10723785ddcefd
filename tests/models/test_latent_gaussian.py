"""Latent Gaussian models against the thesis, an independent EP in NumPy, GPy's numbers, and limits."""

import contextlib
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
import rank_one_ep
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

import cavity as cv
from cavity.posteriors.dense_algebra import KernelPrior, response
from cavity.posteriors.dense_gaussian import DenseGaussian
from cavity.posteriors.weight_gaussian import WeightGaussian, WeightPrior

GPY = json.loads((Path(__file__).parents[1] / "tables" / "gpy.json").read_text())


def rbf(X, length_scale=1.0, variance=1.0):
    squares = np.sum((X[:, None] - X[None]) ** 2, axis=-1)
    return variance * np.exp(-0.5 * squares / length_scale**2)


def standardised(X):
    deviation = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)


def bundled(name):
    """The rows GPy was given: the first ones of a set that scikit-learn bundles, standardised."""
    rows = GPY[name]["rows"]
    if name == "breast_cancer":
        data = load_breast_cancer()
        X, y = data.data, np.where(data.target == 1, 1.0, -1.0)
    elif name == "wine":
        data = load_wine()
        X, y = data.data, np.where(data.target == 1, 1.0, -1.0)
    else:
        data = load_digits()
        kept = np.isin(data.target, (3, 5))
        X, y = data.data[kept], np.where(data.target[kept] == 3, 1.0, -1.0)
    return standardised(X[:rows]), y[:rows]


def noisy_labels(seed, n=60, flips=0.1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.where(X[:, 0] + np.sin(2 * X[:, 1]) > 0, 1.0, -1.0)
    return X, np.where(rng.random(n) < flips, -y, y)


THREE_POINTS = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), np.array([1.0, -1.0, -1.0])


def test_the_thesis_matrix():
    X, y = THREE_POINTS
    s = cv.infer(cv.models.latent_gaussian(y=y, likelihood=cv.factors.Step(label_noise=0.0), X=X, prior_variance=1.0))
    printed = [[0.358, 0.0589, -0.118], [0.0589, 0.542, -0.0809], [-0.118, -0.0809, 0.163]]
    np.testing.assert_allclose(s.covariance, printed, atol=5e-4)
    np.testing.assert_allclose(s.mean, [1.178, -0.514, -0.533], atol=5e-4)
    assert np.exp(s.log_evidence) == pytest.approx(1 / 12, rel=2e-3)
    assert s.converged


@pytest.mark.parametrize("name", sorted(GPY))
def test_equals_gpy(name):
    X, y = bundled(name)
    kept = GPY[name]
    K = rbf(X, kept["length_scale"], kept["variance"])
    s = cv.infer(cv.models.latent_gaussian(y=y, likelihood=cv.factors.Probit(), kernel_matrix=K), cv.EP(tol=1e-10))
    assert s.log_evidence == pytest.approx(kept["log_evidence"], abs=1e-7)
    np.testing.assert_allclose(s.mean[:8], kept["mean"], atol=1e-7)
    np.testing.assert_allclose(s.variance[:8], kept["latent_variance"], atol=1e-7)
    assert s.mean.sum() == pytest.approx(kept["sum_mean"], abs=1e-7 * len(y))
    assert s.variance.sum() == pytest.approx(kept["sum_variance"], abs=1e-7 * len(y))


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_equals_rank_one_updates_also_with_negative_sites(noise):
    X, y = noisy_labels(1)
    K = rbf(X, 1.5, 3.0)
    s = cv.infer(cv.models.latent_gaussian(y=y, likelihood=cv.factors.Probit(noise), kernel_matrix=K), cv.EP(tol=1e-11))
    r = rank_one_ep.rank_one_ep(K, rank_one_ep.probit(y, noise), tol=1e-11)
    assert s.converged and r.converged
    assert (s.negative > 0) == (noise > 0)  # the second stage of the factorisation is at work
    assert s.log_evidence == pytest.approx(r.log_evidence, abs=1e-9)
    np.testing.assert_allclose(s.mean, r.mean, atol=1e-9)
    np.testing.assert_allclose(s.covariance, r.covariance, atol=1e-9)
    np.testing.assert_allclose(s.loo_log_predictive[0], r.loo_log_z, atol=1e-9)


@pytest.mark.parametrize("n", [101, 301])
def test_one_sweep_in_windows_is_one_sweep_of_rank_one_updates(n):
    """Not only the fixed point: the sites after one and two sweeps, more sites than windows hold, padding included."""
    X, y = noisy_labels(2, n=n)
    K = rbf(X, 1.0, 2.0)
    problem = cv.models.latent_gaussian(y=y, likelihood=cv.factors.Probit(), kernel_matrix=K)
    for sweeps in (1, 2):
        s = cv.infer(problem, cv.EP(max_sweeps=sweeps))
        r = rank_one_ep.rank_one_ep(K, rank_one_ep.probit(y, 0.0), max_sweeps=sweeps, tol=1e-30)
        np.testing.assert_allclose(s.sites[0], np.stack([r.nu, r.tau], axis=1), rtol=1e-10, atol=1e-12)


def test_weight_and_kernel_form_agree_on_a_linear_kernel():
    X, y = noisy_labels(3, n=70)
    X = np.c_[X, np.ones(len(X))]
    likelihood = cv.factors.Probit(0.05)
    w = cv.infer(cv.models.latent_gaussian(y=y, likelihood=likelihood, X=X, prior_variance=2.0), cv.EP(tol=1e-11))
    k = cv.infer(cv.models.latent_gaussian(y=y, likelihood=likelihood, kernel_matrix=2.0 * X @ X.T), cv.EP(tol=1e-11))
    np.testing.assert_allclose(k.mean, X @ w.mean, atol=1e-9)
    np.testing.assert_allclose(k.covariance, X @ w.covariance @ X.T, atol=1e-9)
    assert k.log_evidence == pytest.approx(w.log_evidence, abs=1e-9)
    np.testing.assert_allclose(k.loo_log_predictive[0], w.loo_log_predictive[0], atol=1e-9)
    new = np.c_[np.random.default_rng(0).normal(size=(5, 2)), np.ones(5)]
    at_weights, at_kernel = w.predict(new), k.predict(2.0 * new @ X.T, 2.0 * np.sum(new**2, axis=1))
    for name, value in at_weights.items():
        np.testing.assert_allclose(at_kernel[name], value, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("schedule", [cv.Shuffled(), cv.Blocks(7), cv.Parallel()])
def test_every_schedule_has_the_same_fixed_point(schedule):
    X, y = noisy_labels(3, n=70)
    problem = cv.models.latent_gaussian(y=y, likelihood=cv.factors.Probit(), kernel_matrix=rbf(X, 1.5))
    one = cv.infer(problem, cv.EP(tol=1e-10))
    other = cv.infer(problem, cv.EP(tol=1e-10, schedule=schedule, damping=0.7, max_sweeps=500))
    assert one.converged and other.converged
    np.testing.assert_allclose(other.mean, one.mean, atol=1e-8)
    assert other.log_evidence == pytest.approx(one.log_evidence, abs=1e-8)


def test_label_noise_adds_few_sweeps():
    """Section 5.5 says no cost at all: a visit costs the same, and the three points take 6 sweeps in place of 4."""
    X, y = THREE_POINTS
    sweeps = [
        cv.infer(cv.models.latent_gaussian(y=y, likelihood=cv.factors.Step(noise), X=X), cv.EP(tol=1e-4)).sweeps
        for noise in (0.0, 0.1)
    ]
    assert sweeps == [4, 6]


def test_sweeps_hardly_grow_with_the_number_of_points():
    """Section 5.3 takes them as constant: sixteen times as many points need fewer than twice the sweeps."""
    sweeps = {}
    for n in (30, 480):
        found = []
        for seed in range(3):
            rng = np.random.default_rng(seed)
            X = np.c_[rng.normal(size=(n, 4)), np.ones(n)]
            problem = cv.models.latent_gaussian(y=np.sign(X @ rng.normal(size=5)), likelihood=cv.factors.Step(0.0), X=X)
            found.append(cv.infer(problem, cv.EP(tol=1e-4)).sweeps)
        sweeps[n] = np.mean(found)
    assert sweeps[30] < sweeps[480] < 2 * sweeps[30]


def test_a_window_of_weight_sites_costs_the_square_of_the_dimension():
    """Section 5.3: O(d²) a point. Operations counted by the compiler, for one window opened and closed."""

    def operations(d):
        prior = WeightPrior(jnp.ones((32, d)), jnp.zeros(d), jnp.eye(d))
        held = WeightGaussian()

        def window(q):
            return held.close(q, jnp.int32(0), held.open(prior, q, None, jnp.int32(0), jnp.arange(32)))

        return jax.jit(window).lower(held.flat(prior)).compile().cost_analysis()["flops"]

    assert operations(512) / operations(256) == pytest.approx(4.0, rel=0.15)


def test_gaussian_likelihood_is_exact():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(30, 2))
    y, K = rng.normal(size=30), rbf(X, 1.0, 2.0)
    s = cv.infer(cv.models.latent_gaussian(y=y, likelihood=cv.factors.Gaussian(0.3), kernel_matrix=K))
    total = K + 0.3 * np.eye(30)
    expected = -0.5 * (y @ np.linalg.solve(total, y) + np.linalg.slogdet(total)[1] + 30 * np.log(2 * np.pi))
    assert s.log_evidence == pytest.approx(expected, abs=1e-10)
    np.testing.assert_allclose(s.mean, K @ np.linalg.solve(total, y), atol=1e-11)
    np.testing.assert_allclose(s.covariance, K - K @ np.linalg.solve(total, K), atol=1e-11)
    draws = s.sample(jax.random.key(0), 20_000)
    np.testing.assert_allclose(np.cov(draws.T), s.covariance, atol=0.04)
    from scipy.stats import multivariate_normal

    x = np.asarray(draws[:3])
    expected = multivariate_normal(s.mean, s.covariance).logpdf(x)
    np.testing.assert_allclose(s.log_density(x), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("amplitude", "noise", "length_scale", "allowed"),
    [(1.0, 1e-6, 3.0, 1e-7), (1e4, 1e-8, 5.0, 1e-6), (1e4, 1e-8, 20.0, 1e-3)],
)
def test_evidence_of_regression_almost_without_noise(amplitude, noise, length_scale, allowed):
    """Condition numbers of K + noise I from 1e7 to 1e13, against 60 digits: ν of 1e8 needs all digits of the mean."""
    X = np.random.default_rng(0).standard_normal((12, 2))
    y, K = X[:, 0], rbf(X, length_scale, amplitude)
    with mp.workdps(60):
        total = mp.matrix(K.tolist()) + mp.mpf(noise) * mp.eye(12)
        fit = (mp.matrix(y.tolist()).T * mp.lu_solve(total, mp.matrix(y.tolist())))[0]
        exact = float(-(fit + mp.log(mp.det(total)) + 12 * mp.log(2 * mp.pi)) / 2)
    lost = pytest.warns(RuntimeWarning, match="may be rounding") if allowed > 1e-4 else contextlib.nullcontext()
    with lost:
        s = cv.infer(cv.models.latent_gaussian(y=y, likelihood=cv.factors.Gaussian(noise), kernel_matrix=K))
    assert s.log_evidence == pytest.approx(exact, abs=allowed)


@pytest.mark.parametrize(("n", "negatives"), [(64, 0), (64, 3), (64, 50), (301, 60)])
def test_covariance_of_any_mix_of_signs(n, negatives):
    """Against the direct inverse, with more negative sites than one stage takes in, in one block and in several."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 2))
    K = rbf(X, 0.7) + 0.1 * np.eye(n)
    tau = rng.uniform(0.0, 3.0, n)
    tau[3] = 0.0
    tau[rng.choice(n, negatives, replace=False)] *= -0.02
    nu = rng.normal(size=n)
    sites = jnp.stack([jnp.asarray(nu), jnp.asarray(tau)], axis=1)
    prior = KernelPrior(jnp.asarray(K))
    q = jax.jit(lambda prior, sites: DenseGaussian().refresh(prior, ((None, sites),)))(prior, sites)
    covariance = np.linalg.inv(np.linalg.inv(K) + np.diag(tau))
    assert bool(q.proper)
    np.testing.assert_allclose(DenseGaussian().views(prior, q)["covariance"](), covariance, atol=1e-11)
    np.testing.assert_allclose(q.mean, covariance @ nu, atol=1e-11)
    np.testing.assert_allclose(K @ q.weights, q.mean, atol=1e-11)
    log_det = np.linalg.slogdet(np.eye(n) + K * tau)[1]
    assert float(q.log_partition) == pytest.approx(0.5 * nu @ covariance @ nu - 0.5 * log_det, abs=1e-11)
    matrix, signs = response(prior, sites)
    expected = np.diag(tau) - tau[:, None] * covariance * tau
    np.testing.assert_allclose((matrix * signs) @ matrix.T, expected, atol=1e-11)


def test_an_improper_posterior_is_seen():
    sites = jnp.stack([jnp.zeros(3), jnp.array([1.0, -2.0, 0.0])], axis=1)
    q = DenseGaussian().refresh(KernelPrior(jnp.eye(3)), ((None, sites),))
    assert not bool(q.proper)


def test_multiplicity_is_repetition_and_zero_is_absence():
    X, y = noisy_labels(6, n=20)
    likelihood = cv.factors.Probit(0.1)
    copies = np.where(np.arange(20) % 3 == 0, 2.0, np.where(np.arange(20) % 3 == 1, 0.0, 1.0))
    rows = np.repeat(np.arange(20), copies.astype(int))
    K = rbf(X)
    s = cv.infer(
        cv.models.latent_gaussian(y=y, likelihood=likelihood, kernel_matrix=K, multiplicity=copies), cv.EP(tol=1e-11)
    )
    apart = K[np.ix_(rows, rows)]
    r = cv.infer(cv.models.latent_gaussian(y=y[rows], likelihood=likelihood, kernel_matrix=apart), cv.EP(tol=1e-11))
    assert s.converged and r.converged
    np.testing.assert_allclose(s.mean[rows], r.mean, atol=1e-9)
    assert s.log_evidence == pytest.approx(r.log_evidence, abs=1e-9)


def test_scaling_an_input_leaves_the_step_machine_unchanged():
    X, y = THREE_POINTS
    scaled = X * np.array([[1.0], [1e6], [1e-3]])
    one, other = (
        cv.infer(cv.models.latent_gaussian(y=y, likelihood=cv.factors.Step(), X=rows), cv.EP(tol=1e-10))
        for rows in (X, scaled)
    )
    np.testing.assert_allclose(other.mean, one.mean, atol=1e-8)
    np.testing.assert_allclose(other.covariance, one.covariance, atol=1e-8)
    assert other.log_evidence == pytest.approx(one.log_evidence, abs=1e-8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"likelihood": "probit"}, "likelihood must be a factor"),
        ({"y": [1.0, -1.0, 0.5]}, "labels −1 or \\+1; found 0.5"),
        ({"kernel_matrix": np.eye(2)}, r"kernel_matrix must have shape \(3, 3\)"),
        ({"kernel_matrix": np.array([[1.0, 0.5, 0.0], [0.1, 1.0, 0.0], [0.0, 0.0, 1.0]])}, "symmetric"),
        ({"kernel_matrix": np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])}, "positive"),
        ({"kernel_matrix": np.full((3, 3), np.nan)}, "kernel_matrix must be finite"),
        ({"kernel_matrix": None}, "prior of the latents is missing"),
        ({"X": np.eye(3)}, "Give kernel_matrix, or X"),
        ({"kernel_matrix": None, "X": np.eye(2)}, "X must have one row per observation"),
        ({"kernel_matrix": None, "X": np.eye(3), "prior_variance": -1.0}, "prior_variance must be positive"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(changes, message):
    arguments = {"y": [1.0, -1.0, 1.0], "likelihood": cv.factors.Probit(), "kernel_matrix": np.eye(3)} | changes
    with pytest.raises((ValueError, TypeError), match=message):
        cv.infer(cv.models.latent_gaussian(**arguments))
