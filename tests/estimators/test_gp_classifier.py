"""The Gaussian process classifier: its numbers are those of EP, whatever way the rows are written."""

import numpy as np
import pytest
from rank_one_ep import rank_one_ep, step
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF as SklearnRBF

import cavity
from cavity.estimators import GPClassifier
from cavity.kernels import RBF

RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((24, 2))
LABELS = np.where(POINTS[:, 0] + 0.5 * RNG.standard_normal(24) > 0, "yes", "no")
KERNEL = RBF(1.3)
#: a method tight enough for comparisons to 1e-7.
TIGHT = cavity.EP(tol=1e-10)


def classifier(**changes):
    return GPClassifier(**{"kernel": KERNEL, "optimize": False, "method": TIGHT, **changes})


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(POINTS, LABELS)


def gram(left, right):
    return np.exp(-0.5 * np.sum((left[:, None] - right) ** 2, axis=2) / 1.3**2)


def test_equals_plain_rank_one_ep(fitted):
    signs = np.where(LABELS == "yes", 1.0, -1.0)
    plain = rank_one_ep(gram(POINTS, POINTS), step(signs, 0.1))
    assert plain.converged and fitted.status_ == "converged"
    assert fitted.log_evidence_ == pytest.approx(plain.log_evidence, abs=1e-7)
    np.testing.assert_allclose(fitted.loo_log_predictive_, plain.loo_log_z, atol=1e-7)
    new = RNG.standard_normal((5, 2))
    cross = gram(new, POINTS)
    inner = np.linalg.inv(gram(POINTS, POINTS) + np.diag(1 / plain.tau))
    mean, variance = cross @ inner @ (plain.nu / plain.tau), 1 - np.sum(cross @ inner * cross, axis=1)
    clean = stats.norm.cdf(mean / np.sqrt(variance))
    np.testing.assert_allclose(fitted.predict_proba(new)[:, 1], clean, atol=1e-7)
    np.testing.assert_allclose(fitted.predict_proba(new, noisy=True)[:, 1], 0.1 + 0.8 * clean, atol=1e-7)
    np.testing.assert_allclose(fitted.decision_function(new), np.log(clean / (1 - clean)), rtol=1e-5)
    np.testing.assert_array_equal(fitted.predict(new), np.where(clean > 0.5, "yes", "no"))


def test_weights_repeats_and_permutations_give_the_same_numbers(fitted):
    weights = RNG.integers(0, 3, 24)
    rows = RNG.permutation(np.repeat(np.arange(24), weights))
    weighted = classifier().fit(POINTS, LABELS, sample_weight=weights)
    repeated = classifier().fit(POINTS[rows], LABELS[rows])
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_, abs=1e-12)
    np.testing.assert_allclose(weighted.predict_proba(POINTS), repeated.predict_proba(POINTS), atol=1e-12)
    np.testing.assert_allclose(weighted.loo_log_predictive_[rows], repeated.loo_log_predictive_, atol=1e-12)
    order = RNG.permutation(24)
    permuted = classifier().fit(POINTS[order], LABELS[order])
    np.testing.assert_allclose(permuted.loo_log_predictive_, fitted.loo_log_predictive_[order], atol=1e-12)
    halves = classifier().fit(np.tile(POINTS, (2, 1)), np.tile(LABELS, 2), sample_weight=np.full(48, 0.5))
    assert halves.log_evidence_ == pytest.approx(fitted.log_evidence_, abs=1e-12)


def test_a_weight_below_one_tempers_the_likelihood():
    """Rows too far apart to see each other: t^w has the levels ε^w and (1 − ε)^w, each on half the prior."""
    found = classifier().fit([[0.0, 0.0], [1e3, 0.0]], ["no", "yes"], sample_weight=[0.3, 0.6])
    exact = sum(np.log(0.5 * (0.1**w + 0.9**w)) for w in (0.3, 0.6))
    assert found.log_evidence_ == pytest.approx(exact, abs=1e-10)
    np.testing.assert_allclose(found.loo_log_predictive_, np.log(0.5), atol=1e-10)


def test_class_weights_are_sample_weights():
    balanced = classifier(class_weight="balanced").fit(POINTS, LABELS)
    counts = {label: np.sum(label == LABELS) for label in ("no", "yes")}
    given = classifier().fit(POINTS, LABELS, sample_weight=[24 / (2 * counts[label]) for label in LABELS])
    assert balanced.log_evidence_ == pytest.approx(given.log_evidence_, abs=1e-12)


def test_more_than_two_classes_are_machines_of_two():
    labels = np.digitize(POINTS[:, 0], [-0.5, 0.5])
    several = classifier(n_jobs=2).fit(POINTS, labels)
    singles = [classifier().fit(POINTS, labels == k) for k in range(3)]
    assert several.log_evidence_ == pytest.approx(sum(one.log_evidence_ for one in singles), abs=1e-10)
    shares = np.stack([one.predict_proba(POINTS)[:, 1] for one in singles], axis=1)
    expected = shares / shares.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(several.predict_proba(POINTS), expected, atol=1e-12)
    odds = np.stack([one.decision_function(POINTS) for one in singles], axis=1)
    np.testing.assert_allclose(several.decision_function(POINTS), odds, atol=1e-9)
    own = labels[:, None] == np.arange(3)
    said = np.stack([np.exp(one.loo_log_predictive_) for one in singles], axis=1)
    shares = np.where(own, said, 1 - said)
    left_out = np.log(shares[own] / shares.sum(axis=1))
    np.testing.assert_allclose(several.loo_log_predictive_, left_out, atol=1e-9)
    np.testing.assert_allclose(several.loo_probabilities_, shares / shares.sum(axis=1, keepdims=True), atol=1e-9)
    single = singles[1].loo_probabilities_
    np.testing.assert_allclose(single[:, 1], shares[:, 1], atol=1e-9)
    np.testing.assert_allclose(single.sum(axis=1), 1.0, atol=1e-12)
    assert several.sample_posterior(POINTS[:4], 5, random_state=1).shape == (4, 3, 5)


def test_search_raises_the_evidence_and_learns_the_noise(fitted):
    learned = classifier(optimize=True, label_noise="auto", method=None).fit(POINTS, LABELS)
    assert learned.log_evidence_ > fitted.log_evidence_
    assert 0 < learned.label_noise_ < 0.5 and learned.kernel_.length_scale != 1.3
    only_noise = classifier(label_noise="auto", method=None).fit(POINTS, LABELS)
    assert only_noise.kernel_.length_scale == pytest.approx(1.3)
    assert fitted.log_evidence_ < only_noise.log_evidence_ <= learned.log_evidence_ + 1e-6


def test_kernels_of_scikit_learn(fitted):
    other = classifier(kernel=SklearnRBF(1.3)).fit(POINTS, LABELS)
    assert isinstance(other.kernel_, SklearnRBF)
    assert other.log_evidence_ == pytest.approx(fitted.log_evidence_, abs=1e-9)


def test_draws_have_the_posterior_moments(fitted):
    draws = fitted.sample_posterior(POINTS[:3], 4000, random_state=0)
    assert draws.shape == (3, 4000)
    mean, variance = fitted.models_[0].latent(POINTS[:3])
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=5 * np.sqrt(variance.max() / 4000))
    np.testing.assert_allclose(draws.var(axis=1), variance, rtol=0.15)
    np.testing.assert_array_equal(draws, fitted.sample_posterior(POINTS[:3], 4000, random_state=0))


def test_names_of_columns_are_kept():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(POINTS, columns=["length", "width"])
    found = classifier().fit(frame, pandas.Series(LABELS))
    np.testing.assert_array_equal(found.feature_names_in_, ["length", "width"])
    with pytest.raises(ValueError, match="feature names"):
        found.predict(frame[["width", "length"]])


def test_a_run_cut_short_is_reported():
    with pytest.warns(ConvergenceWarning, match="GPClassifier did not converge: max_sweeps .* The sweeps were used up"):
        cut = classifier(method=cavity.EP(max_sweeps=1, tol=1e-10)).fit(POINTS, LABELS)
    assert cut.status_ == "max_sweeps"


@pytest.mark.parametrize(
    ("changes", "labels", "sentence"),
    [
        ({"label_noise": 0.5}, LABELS, r"label_noise must lie in \[0, 0.5\) or be \"auto\"; found 0.5"),
        ({"likelihood": "cauchy"}, LABELS, "likelihood must be one of step, probit, logistic; found 'cauchy'"),
        ({"class_weight": {"maybe": 2}}, LABELS, "class_weight names the class 'maybe', which y does not hold"),
        ({"kernel": "cosine"}, LABELS, "kernel must be one of rbf, matern, linear, poly; found 'cosine'"),
        ({}, np.full(24, "no"), "y must hold at least two classes; found one class: 'no'"),
    ],
)
def test_bad_input_is_named(changes, labels, sentence):
    with pytest.raises(ValueError, match=sentence):
        classifier(**changes).fit(POINTS, labels)
