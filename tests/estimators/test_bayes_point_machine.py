"""The linear machine: the thesis's numbers, streams, sparse rows, and two forms of one posterior."""

import numpy as np
import pytest
from rank_one_ep import weight_ep
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import cavity
from cavity.estimators import BayesPointMachine

RNG = np.random.default_rng(2)
POINTS = RNG.standard_normal((24, 3))
LABELS = (POINTS @ [1.0, -1.0, 0.0] + 0.3 > 0).astype(int)
TIGHT = cavity.EP(tol=1e-10)


@pytest.fixture(scope="module")
def fitted():
    return BayesPointMachine(label_noise=0.0, method=TIGHT).fit(POINTS, LABELS)


def test_three_points_of_the_thesis():
    """(1, 0) is +1, (0, 0) and (0, 1) are −1; mean, covariance as printed in 5.5; the exact evidence is 1/12."""
    found = BayesPointMachine(label_noise=0.0).fit([[1, 0], [0, 0], [0, 1]], [1, -1, -1])
    np.testing.assert_allclose([*found.coef_[0], *found.intercept_], [1.178, -0.514, -0.533], atol=6e-4)
    printed = [[0.358, 0.0589, -0.118], [0.0589, 0.542, -0.0809], [-0.118, -0.0809, 0.163]]
    np.testing.assert_allclose(found.models_[0].covariance, printed, atol=5e-4)
    assert found.log_evidence_ == pytest.approx(np.log(1 / 12), abs=0.1)


def test_equals_plain_weight_ep(fitted):
    plain = weight_ep(np.where(LABELS == 1, 1.0, -1.0)[:, None] * np.column_stack([POINTS, np.ones(24)]))
    np.testing.assert_allclose([*fitted.coef_[0], *fitted.intercept_], plain.mean, atol=1e-7)
    assert fitted.log_evidence_ == pytest.approx(plain.log_evidence, abs=1e-7)
    margins = POINTS @ plain.mean[:3] + plain.mean[3]
    np.testing.assert_array_equal(fitted.predict(POINTS), (margins > 0).astype(int))


def test_the_length_of_an_input_does_not_matter(fitted):
    rows = np.column_stack([POINTS, np.ones(24)])
    stretched = rows * np.exp(RNG.standard_normal(24))[:, None]
    found = BayesPointMachine(label_noise=0.0, bias=False, method=TIGHT).fit(stretched, LABELS)
    np.testing.assert_allclose(found.coef_[0], [*fitted.coef_[0], *fitted.intercept_], atol=1e-8)


def test_more_features_than_rows_is_the_same_posterior():
    """Zero columns change nothing but the form that is used."""
    wide = np.column_stack([POINTS, np.zeros((24, 30))])
    settings = {"label_noise": 0.05, "likelihood": "probit", "prior_variance": 2.0, "method": TIGHT}
    kernel_form = BayesPointMachine(**settings).fit(wide, LABELS)
    weight_form = BayesPointMachine(**settings).fit(POINTS, LABELS)
    assert type(kernel_form.models_[0]) is not type(weight_form.models_[0])
    np.testing.assert_allclose(kernel_form.coef_[0, :3], weight_form.coef_[0], atol=1e-8)
    np.testing.assert_allclose(kernel_form.intercept_, weight_form.intercept_, atol=1e-8)
    assert kernel_form.log_evidence_ == pytest.approx(weight_form.log_evidence_, abs=1e-8)
    np.testing.assert_allclose(kernel_form.predict_proba(wide), weight_form.predict_proba(POINTS), atol=1e-8)


def test_sparse_rows_are_the_same_rows(fitted):
    rows = sparse.csr_matrix(POINTS)
    found = BayesPointMachine(label_noise=0.0, method=TIGHT).fit(rows, LABELS)
    np.testing.assert_array_equal(found.coef_, fitted.coef_)
    np.testing.assert_array_equal(found.predict_proba(rows), fitted.predict_proba(POINTS))
    with pytest.raises(ValueError, match="X has 1000000 rows, which with 1001 features each are a table of more than"):
        BayesPointMachine().fit(sparse.csr_matrix((10**6, 1000)), np.arange(10**6) % 2)


def test_a_stream_refined_is_a_fit(fitted):
    stream = BayesPointMachine(label_noise=0.0, method=TIGHT)
    stream.partial_fit(POINTS[:10], LABELS[:10], classes=[0, 1])
    first = stream.models_[0].log_evidence
    stream.partial_fit(POINTS[10:], LABELS[10:])
    assert stream.status_ == "single_pass" and stream.log_evidence_ < first
    order = RNG.permutation(24)
    stream.refine(POINTS[order], LABELS[order])
    assert stream.status_ == "converged"
    np.testing.assert_allclose(stream.coef_, fitted.coef_, atol=1e-8)
    assert stream.log_evidence_ == pytest.approx(fitted.log_evidence_, abs=1e-8)
    np.testing.assert_allclose(stream.loo_log_predictive_, fitted.loo_log_predictive_[order], atol=1e-8)
    with pytest.raises(ValueError, match="all rows seen so far, 24 different ones; found 20 of them and 0"):
        stream.refine(POINTS[:20], LABELS[:20])


def test_degree_two_separates_a_circle():
    inside = (np.sum(POINTS**2, axis=1) < 2.0).astype(int)
    round_machine = BayesPointMachine(degree=2, label_noise=0.05).fit(POINTS, inside)
    assert round_machine.coef_.shape == (1, 9)
    assert round_machine.score(POINTS, inside) > BayesPointMachine(label_noise=0.05).fit(POINTS, inside).score(
        POINTS, inside
    )


def test_labels_that_no_weights_explain():
    crossed = [[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1]
    with pytest.raises(
        (ValueError, ConvergenceWarning), match="With label_noise=0 no label may be wrong; allow for some"
    ):
        BayesPointMachine(label_noise=0.0).fit(*crossed)
    assert np.isfinite(BayesPointMachine().fit(*crossed).log_evidence_)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"degree": 0}, "degree must be a whole number from 1; found 0"),
        ({"prior_variance": -1.0}, "prior_variance must be positive; found -1.0"),
        ({"prior_variance": "auto"}, "has no meaning for the step likelihood"),
    ],
)
def test_bad_input_is_named(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        BayesPointMachine(**changes).fit(POINTS, LABELS)


def test_a_stream_needs_its_classes():
    with pytest.raises(ValueError, match="classes must name all labels in the first call"):
        BayesPointMachine().partial_fit(POINTS, LABELS)
