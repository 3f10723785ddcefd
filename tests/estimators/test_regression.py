"""Regression against scikit-learn's exact one, counts and outliers against quadrature, ordered classes."""

import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF as SklearnRBF

from cavity.estimators import GPOrdinal, GPRegressor
from cavity.kernels import RBF, Constant

RNG = np.random.default_rng(3)
POINTS = RNG.standard_normal((20, 2))
VALUES = 7.0 + 3.0 * np.sin(POINTS[:, 0]) + 0.5 * RNG.standard_normal(20)
FAR = [[0.0, 0.0], [1e3, 0.0]]


def test_gaussian_noise_is_exact():
    scale = VALUES.std()
    ours = GPRegressor(kernel=RBF(1.5), noise=0.6, optimize=False).fit(POINTS, VALUES)
    theirs = GaussianProcessRegressor(SklearnRBF(1.5), alpha=(0.6 / scale) ** 2, optimizer=None, normalize_y=True)
    theirs.fit(POINTS, VALUES)
    assert ours.log_evidence_ == pytest.approx(theirs.log_marginal_likelihood_value_ - 20 * np.log(scale), abs=1e-9)
    new = RNG.standard_normal((4, 2))
    mean, deviation = ours.predict(new, return_std=True)
    expected, latent = theirs.predict(new, return_std=True)
    np.testing.assert_allclose(mean, expected, atol=1e-9)
    np.testing.assert_allclose(deviation**2, latent**2 + 0.6**2, atol=1e-9)
    # Leaving a row out for good, or giving it no weight, predicts it alike.
    weights = np.ones(20)
    weights[0] = 0.0
    settings = {"kernel": RBF(1.5), "noise": 0.6, "optimize": False, "normalize_y": False}
    both = GPRegressor(**settings).fit(POINTS, VALUES), GPRegressor(**settings).fit(POINTS, VALUES, weights)
    gram = SklearnRBF(1.5)(POINTS) + 0.36 * np.eye(20)
    pull = np.linalg.solve(gram[1:, 1:], gram[1:, 0])
    exact = stats.norm.logpdf(VALUES[0], pull @ VALUES[1:], np.sqrt(gram[0, 0] - pull @ gram[1:, 0]))
    np.testing.assert_allclose([one.loo_log_predictive_[0] for one in both], exact, atol=1e-9)


@pytest.mark.parametrize("noise", [0.3, 1e-5, 1e-9])
def test_rows_that_count_as_fractions_are_left_out_to_all_digits(noise):
    X, weights = np.arange(6.0)[:, None] * 1.5, np.array([0.5, 1.0, 0.25, 0.5, 1.0, 0.75])
    y = np.sin(2 * X[:, 0]) + X[:, 0]
    found = GPRegressor(RBF(1.0), noise=noise, normalize_y=False, optimize=False).fit(X, y, weights)
    exact = []
    for i in range(6):
        rest = np.delete(np.arange(6), i)
        gram = SklearnRBF(1.0)(X[rest]) + np.diag(noise**2 / weights[rest])
        cross = SklearnRBF(1.0)(X[rest], X[i : i + 1])[:, 0]
        pull = np.linalg.solve(gram, cross)
        exact.append(stats.norm.logpdf(y[i], pull @ y[rest], np.sqrt(1.0 + noise**2 - pull @ cross)))
    np.testing.assert_allclose(found.loo_log_predictive_, exact, rtol=1e-9)


def test_noise_is_learned():
    found = GPRegressor().fit(POINTS, VALUES)
    assert found.status_ == "converged" and 0.1 < found.noise_ < 1.5
    fixed_noise = GPRegressor(noise=3.0).fit(POINTS, VALUES)
    assert found.log_evidence_ > fixed_noise.log_evidence_ and fixed_noise.noise_ == pytest.approx(3.0)


def test_units_of_y_change_the_evidence_by_a_constant():
    one = GPRegressor(kernel=RBF(1.5), noise=0.6, optimize=False).fit(POINTS, VALUES)
    other = GPRegressor(kernel=RBF(1.5), noise=60.0, optimize=False).fit(POINTS, 100 * VALUES - 5)
    assert other.log_evidence_ == pytest.approx(one.log_evidence_ - 20 * np.log(100), abs=1e-9)
    np.testing.assert_allclose(other.predict(POINTS), 100 * one.predict(POINTS) - 5, rtol=1e-9)
    np.testing.assert_allclose(other.loo_log_predictive_, one.loo_log_predictive_ - np.log(100), atol=1e-9)


def integral(function, variance):
    """∫ function(f) N(f; 0, variance) df by the trapezoidal rule."""
    f = np.linspace(-12, 12, 20001) * np.sqrt(variance)
    return np.sum(function(f) * stats.norm.pdf(f, scale=np.sqrt(variance))) * (f[1] - f[0])


def test_numbers_whose_squares_vanish():
    X = np.random.default_rng(3).normal(size=(12, 1))
    units = (1.0, 1e-170)
    one, small = (GPRegressor(noise=0.1 * u, optimize=False).fit(X, u * np.sin(X[:, 0])) for u in units)
    np.testing.assert_allclose(small.predict(X) / 1e-170, one.predict(X), rtol=1e-9)


def test_rows_alone_against_quadrature():
    """Two rows that do not see each other: the evidence is a product of integrals over one latent each."""
    kernel = Constant(2.0) * RBF(1.0)
    counts = GPRegressor(kernel, likelihood="poisson", optimize=False).fit(FAR, [0, 4])
    exact = [integral(lambda f, k=k: stats.poisson.pmf(k, np.exp(f)), 2.0) for k in (0, 4)]
    assert counts.log_evidence_ == pytest.approx(np.sum(np.log(exact)), abs=1e-6)
    rate = integral(lambda f: np.exp(f) * stats.poisson.pmf(4, np.exp(f)), 2.0) / exact[1]
    assert counts.predict(FAR)[1] == pytest.approx(rate, rel=0.05)  # of q, whose tail is that of a Gaussian
    heavy = GPRegressor(kernel, likelihood="student_t", noise=0.5, optimize=False, normalize_y=False).fit(
        FAR, [0.2, 3.0]
    )
    exact = [integral(lambda f, y=y: stats.t.pdf((y - f) / 0.5, 4.0) / 0.5, 2.0) for y in (0.2, 3.0)]
    assert heavy.log_evidence_ == pytest.approx(np.sum(np.log(exact)), abs=1e-6)


def test_an_outlier_moves_student_less():
    spoiled = VALUES.copy()
    spoiled[0] += 30.0
    moved = {}
    for likelihood in ("gaussian", "student_t"):
        fits = [GPRegressor(RBF(1.5), likelihood, 0.6, optimize=False, normalize_y=False) for _ in range(2)]
        clean, dirty = fits[0].fit(POINTS, VALUES), fits[1].fit(POINTS, spoiled)
        moved[likelihood] = np.abs(clean.predict(POINTS) - dirty.predict(POINTS)).max()
    assert moved["student_t"] < 0.2 * moved["gaussian"]


def test_ordered_classes_alone_against_the_normal():
    """One latent N(0, v) plus N(0, 1) noise between thresholds: differences of Φ."""
    kernel = Constant(3.0) * RBF(1.0)
    found = GPOrdinal(kernel, thresholds=[-1.0, 0.5], order=[0, 1, 2], optimize=False).fit(FAR, [0, 1])
    shares = np.diff(stats.norm.cdf([-np.inf, -1.0, 0.5, np.inf], scale=2.0))
    assert found.log_evidence_ == pytest.approx(np.log(shares[0]) + np.log(shares[1]), abs=1e-8)
    np.testing.assert_allclose(found.predict_proba([[0.0, 1e4]]), shares[None], atol=1e-10)


def test_thresholds_are_learned_and_text_can_be_ordered():
    labels = np.array(["low", "mid", "high"])[np.digitize(POINTS[:, 0] + 0.3 * RNG.standard_normal(20), [-0.7, 0.3])]
    found = GPOrdinal(order=["low", "mid", "high"]).fit(POINTS, labels)
    np.testing.assert_array_equal(found.classes_, ["low", "mid", "high"])
    assert (np.diff(found.thresholds_) > 0).all() and found.score(POINTS, labels) > 0.8
    mixed_up = GPOrdinal(order=["mid", "low", "high"]).fit(POINTS, labels)
    assert found.log_evidence_ > mixed_up.log_evidence_


def test_what_the_likelihood_learned_is_in_the_units_of_y():
    settings = {"kernel": RBF(1.5), "likelihood": "student_t", "df": "auto", "optimize": False}
    one, other = GPRegressor(noise=0.6, **settings), GPRegressor(noise=60.0, **settings)
    one, other = one.fit(POINTS, VALUES), other.fit(POINTS, 100 * VALUES - 5)
    assert one.likelihood_.scale == pytest.approx(0.6) and other.likelihood_.scale == pytest.approx(60.0)
    assert one.likelihood_.df == pytest.approx(other.likelihood_.df, rel=1e-3) and one.likelihood_.df != 4.0
    gaussian = GPRegressor(RBF(1.5), noise=0.6, optimize=False).fit(POINTS, VALUES)
    assert gaussian.likelihood_.variance == pytest.approx(0.36)


def test_text_without_an_order_is_warned_of():
    labels = np.array(["low", "mid", "high"])[np.digitize(POINTS[:, 0], [-0.7, 0.3])]
    with pytest.warns(UserWarning, match="order of the alphabet: 'high' < 'low' < 'mid'. Name them"):
        GPOrdinal(RBF(1.5), thresholds=[-1.0, 1.0], optimize=False).fit(POINTS, labels)


@pytest.mark.parametrize(
    ("estimator", "y", "sentence"),
    [
        (GPRegressor(likelihood="poisson"), [1.0, 2.5], "y must hold counts 0, 1, 2, … for a Poisson; found 2.5"),
        (GPRegressor(likelihood="cauchy"), [1.0, 2.0], "likelihood must be one of gaussian, student_t, poisson"),
        (GPRegressor(noise=0.0), [1.0, 2.0], "noise must be positive; found 0.0"),
        (GPOrdinal(thresholds=[1.0, 0.0]), [0, 1], r"thresholds must be 1 increasing numbers; found \[1.0, 0.0\]"),
        (GPOrdinal(order=["a", "b"]), ["a", "c"], "order must name every class of y once, .* 'c' is missing"),
    ],
)
def test_bad_input_is_named(estimator, y, sentence):
    with pytest.raises(ValueError, match=sentence):
        estimator.fit(FAR, y)
