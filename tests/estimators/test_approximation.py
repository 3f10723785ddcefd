"""Gaussian process estimators whose process is carried by a basis."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF as SklearnRBF

import cavity
from cavity.estimators import GPClassifier, GPOrdinal, GPRegressor, load
from cavity.estimators.gaussian_process import spread_points
from cavity.kernels import RBF, Polynomial
from cavity.models._latent_gaussian.rows import unique_rows

RNG = np.random.default_rng(1)
POINTS = RNG.standard_normal((30, 2))
LABELS = np.where(POINTS[:, 0] + 0.5 * RNG.standard_normal(30) > 0, "yes", "no")
NEW = RNG.standard_normal((7, 2))
TIGHT = cavity.EP(tol=1e-10)


def classifier(**changes):
    known = {"kernel": RBF(1.3), "likelihood": "probit", "label_noise": 0.02, "optimize": False, "method": TIGHT}
    return GPClassifier(**{**known, "approximation": "inducing", "rank": 8, **changes})


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(POINTS, LABELS)


def test_as_many_points_as_rows_is_the_exact_machine():
    exact = classifier(approximation=None).fit(POINTS, LABELS)
    found = classifier(rank=40).fit(POINTS, LABELS)
    assert (exact.approximation_, found.approximation_) == ("exact", "30 inducing inputs")
    assert found.log_evidence_ == pytest.approx(exact.log_evidence_, abs=1e-6)
    np.testing.assert_allclose(found.predict_proba(NEW), exact.predict_proba(NEW), atol=1e-6)
    np.testing.assert_allclose(found.loo_probabilities_, exact.loo_probabilities_, atol=1e-6)


def test_weights_repeats_and_permutations_give_the_same_numbers(fitted):
    order = RNG.permutation(30)
    permuted = classifier().fit(POINTS[order], LABELS[order])
    np.testing.assert_allclose(permuted.loo_log_predictive_, fitted.loo_log_predictive_[order], atol=1e-12)
    weights = RNG.integers(1, 3, 30)
    rows = RNG.permutation(np.repeat(np.arange(30), weights))
    weighted = classifier().fit(POINTS, LABELS, sample_weight=weights)
    repeated = classifier().fit(POINTS[rows], LABELS[rows])
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_, abs=1e-12)
    halves = classifier().fit(np.tile(POINTS, (2, 1)), np.tile(LABELS, 2), sample_weight=np.full(60, 0.5))
    assert halves.log_evidence_ == pytest.approx(fitted.log_evidence_, abs=1e-12)


def test_a_label_of_fractional_weight_is_left_out_as_a_whole(fitted):
    """A weight next to 1 goes through another formula than a weight of 1, to the same prediction."""
    weights = np.ones(30)
    weights[4] = 1 - 1e-7
    nearly = classifier().fit(POINTS, LABELS, sample_weight=weights)
    np.testing.assert_allclose(nearly.loo_log_predictive_, fitted.loo_log_predictive_, atol=1e-6)


def test_auto_takes_inducing_inputs_where_there_are_many_rows(monkeypatch):
    monkeypatch.setattr("cavity.estimators.gaussian_process.MANY", 29)
    with pytest.warns(UserWarning, match=r"30 different rows are more than 29, so 8 inducing inputs stand for them"):
        found = classifier(approximation="auto").fit(POINTS, LABELS)
    assert found.approximation_ == "8 inducing inputs"
    merged = classifier(approximation="auto").fit(POINTS[:29], LABELS[:29], sample_weight=np.full(29, 2.0))
    assert merged.approximation_ == "exact"
    assert classifier(approximation="auto", kernel=SklearnRBF(1.3)).fit(POINTS, LABELS).approximation_ == "exact"


@pytest.mark.parametrize("approximation", ["inducing", "features"])
def test_saved_sampled_and_cloned(approximation, tmp_path):
    found = classifier(approximation=approximation).fit(POINTS, LABELS)
    found.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict_proba(NEW), found.predict_proba(NEW))
    assert (again.approximation_, again.rank) == (found.approximation_, 8)
    assert found.sample_posterior(NEW, 3, random_state=0).shape == (7, 3)
    refitted = clone(found).fit(POINTS, LABELS)
    np.testing.assert_array_equal(refitted.predict_proba(NEW), found.predict_proba(NEW))
    other = clone(found).set_params(random_state=1).fit(POINTS, LABELS)
    assert np.abs(other.predict_proba(NEW) - found.predict_proba(NEW)).max() > 1e-4


def test_label_noise_is_learned_beside_a_kernel_that_stays():
    found = classifier(label_noise="auto").fit(POINTS, LABELS)
    assert found.kernel_.length_scale == 1.3 and found.label_noise_ != pytest.approx(0.1, abs=1e-3)
    near = [classifier(label_noise=found.label_noise_ * step).fit(POINTS, LABELS).log_evidence_ for step in (0.5, 2.0)]
    assert found.log_evidence_ > max(near) or found.label_noise_ < 2e-4


def test_three_classes_and_the_other_estimators():
    y = np.digitize(POINTS[:, 0], [-0.4, 0.5])
    several = classifier(kernel=None, optimize=True, method=None).fit(POINTS, y)
    assert several.predict_proba(NEW).shape == (7, 3) and several.score(POINTS, y) > 0.8
    ordinal = GPOrdinal(kernel=RBF(1.3), approximation="inducing", rank=8).fit(POINTS, y)
    assert ordinal.approximation_ == "8 inducing inputs" and ordinal.score(POINTS, y) > 0.8
    target = np.sin(POINTS[:, 0]) + 0.1 * POINTS[:, 1]
    smooth = GPRegressor(approximation="learned", rank=6).fit(POINTS, target)
    assert smooth.score(POINTS, target) > 0.9 and smooth.approximation_ == "6 inducing inputs"


def test_points_cover_the_rows_in_units_of_the_length_scales():
    """Two heaps along the second column, which only counts where its length scale is short."""
    X = np.column_stack([np.linspace(0, 1, 200), np.repeat([0.0, 1.0], 100)[RNG.permutation(200)]])
    merged = unique_rows(X, np.ones(200))
    apart = spread_points(RBF([100.0, 1.0]), merged, 2, 0)
    np.testing.assert_allclose(np.sort(apart[:, 1]), [0.0, 1.0], atol=1e-9)
    along = spread_points(RBF([0.1, 100.0]), merged, 2, 0)
    assert np.ptp(along[:, 0]) > 0.4


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"approximation": "sparse"}, ValueError, "approximation must be one of auto, inducing, learned, features"),
        ({"rank": 0}, ValueError, "rank must be a whole number from 1, or None; found 0"),
        ({"kernel": SklearnRBF()}, TypeError, "needs a kernel of cavity.kernels; found RBF of scikit-learn"),
        ({"kernel": Polynomial(2), "approximation": "features"}, ValueError, "random features need a kernel made of"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(changes, error, message):
    with pytest.raises(error, match=message):
        classifier(**changes).fit(POINTS, LABELS)
