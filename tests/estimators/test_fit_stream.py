"""`fit_stream` against `fit` on all rows at once, from every kind of source; what follows it, and what it refuses."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import cavity
from cavity.estimators import BayesPointMachine, load
from cavity.models.streaming import _chunks

RNG = np.random.default_rng(8)
POINTS = RNG.standard_normal((90, 2))
SCORES = POINTS @ RNG.standard_normal((2, 3)) + 0.5 * RNG.standard_normal((90, 3))
THREE = np.array(["one", "three", "two"])[SCORES.argmax(axis=1)]
TWO = np.where(SCORES[:, 0] > 0, "yes", "no")
TIGHT = cavity.EP(tol=1e-12)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(_chunks, "CHUNK_ROWS", 64)


def machine(**changes):
    return BayesPointMachine(**{"likelihood": "probit", "label_noise": 0.05, "method": TIGHT, **changes})


def batches(X=POINTS, y=TWO, length=25):
    return [(X[start : start + length], y[start : start + length]) for start in range(0, len(y), length)]


def same(found, expected):
    np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-9)
    np.testing.assert_allclose(found.intercept_, expected.intercept_, atol=1e-9)
    for one, other in zip(found.models_, expected.models_, strict=True):
        np.testing.assert_allclose(one.covariance, other.covariance, atol=1e-9)
    assert found.log_evidence_ == pytest.approx(expected.log_evidence_, abs=1e-8)
    assert found.status_ == expected.status_ == "converged"
    np.testing.assert_array_equal(found.classes_, expected.classes_)


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_the_fixed_point_is_that_of_fit(y):
    weights = {y[0]: 2.0}
    found = machine(degree=2, class_weight=weights).fit_stream(batches(y=y), classes=np.unique(y))
    expected = machine(degree=2, class_weight=weights).fit(POINTS, y)
    same(found, expected)
    np.testing.assert_allclose(found.predict_proba(POINTS), expected.predict_proba(POINTS), atol=1e-9)
    assert found.n_features_in_ == 2 and not hasattr(found, "loo_log_predictive_")


def test_data_frames_and_sparse_tables():
    expected = machine().fit(POINTS, TWO)
    frame = pd.DataFrame(POINTS, columns=["height", "width"])
    named = machine().fit_stream(batches(frame, pd.Series(TWO)), ["no", "yes"])
    same(named, expected)
    assert named.feature_names_in_.tolist() == ["height", "width"]
    np.testing.assert_array_equal(named.predict(frame), expected.predict(POINTS))
    same(machine().fit_stream(batches(sparse.csr_matrix(POINTS)), ["no", "yes"]), expected)


def test_unknown_labels_are_named():
    with pytest.raises(ValueError, match="y must hold known labels or finite numbers; found 'two' in batch 0, row"):
        machine().fit_stream(batches(y=THREE), ["one", "three"])
    text = np.where(np.arange(90) == 33, None, TWO)
    with pytest.raises(ValueError, match="found None in batch 1, row 8"):
        machine().fit_stream(batches(y=text), ["no", "yes"])
    longer = np.where(np.arange(90) == 70, "yesterday", TWO)
    with pytest.raises(ValueError, match="found 'yesterday' in batch 2, row 20"):
        machine().fit_stream(batches(y=longer.astype(object)), ["no", "yes"])


@pytest.mark.parametrize(
    ("labels", "classes", "found"),
    [
        ([0, 1, "1"], ["0", "1"], "0 in batch 0, row 0"),
        (["False", "True"], [False, True], "'False' in batch 0, row 0"),
        ([True, 0.4, False], [0, 1], "0.4 in batch 0, row 1"),
        ([1, 0, None], [0, 1], "None in batch 0, row 2"),
    ],
)
def test_labels_are_never_cast(labels, classes, found):
    given = np.array(labels, object)
    with pytest.raises(ValueError, match=f"y must hold known labels or finite numbers; found {found}"):
        machine().fit_stream([(POINTS[: len(given)], given)], classes)
    with pytest.raises(ValueError, match="y must hold known labels"):  # one batch of numbers, one of text
        machine().fit_stream([(POINTS[:2], np.array([1, 0])), (POINTS[:2], np.array(["1", "0"]))], ["0", "1"])


def test_a_stream_is_saved_and_goes_on(tmp_path):
    """partial_fit after a file gives what it gives without one, to the last bit."""
    begun = machine().fit_stream(batches(POINTS[:60], TWO[:60]), ["no", "yes"])
    begun.save(tmp_path / "model.npz")
    found = load(tmp_path / "model.npz")
    np.testing.assert_array_equal(found.predict_proba(POINTS), begun.predict_proba(POINTS))
    for own in (begun, found):
        own.partial_fit(POINTS[60:], TWO[60:], sample_weight=np.linspace(0.5, 2.0, 30))
    np.testing.assert_array_equal(found.coef_, begun.coef_)
    np.testing.assert_array_equal(found.models_[0].covariance, begun.models_[0].covariance)
    assert found.log_evidence_ == begun.log_evidence_ and found.status_ == "single_pass"
    with pytest.raises(
        ValueError, match="refine needs the sites of all rows seen, which are not kept in files, nor after fit"
    ):
        found.refine(POINTS, TWO)


def test_an_interruption_keeps_what_is_known(tmp_path):
    path, expected = tmp_path / "run.npz", machine().fit_stream(batches(), ["no", "yes"])
    passes = iter(range(10))

    def broken():
        for number, batch in enumerate(batches()):
            if number == 3 and next(passes) == 1:
                raise KeyboardInterrupt
            yield batch

    model = machine()
    with pytest.warns(ConvergenceWarning, match="did not converge: interrupted"):
        model.fit_stream(broken, ["no", "yes"], checkpoint=path)
    assert model.status_ == "interrupted" and model.predict(POINTS).shape == (90,)
    model.fit_stream(batches, ["no", "yes"], resume=path)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    with pytest.raises(KeyboardInterrupt):  # before anything was learned
        machine().fit_stream(interrupted_at_once, ["no", "yes"])


def interrupted_at_once():
    raise KeyboardInterrupt
    yield


def test_verbose_tells_of_passes():
    told = []
    machine(verbose=told.append, method=cavity.EP(tol=1e-4)).fit_stream(batches(), ["no", "yes"])
    assert told[0].startswith("BayesPointMachine: sweep 1, 90 rows, ") and "mismatch" in told[0]
    assert told[-2].startswith(f"BayesPointMachine: measurement after sweep {len(told) - 2}, 90 rows, ")
    assert told[-1].endswith(" s running")


def test_what_a_stream_cannot_do_is_refused():
    with pytest.raises(ValueError, match="fit_stream cannot learn label_noise from a stream; give it as a number"):
        machine(label_noise="auto").fit_stream(batches(), ["no", "yes"])
    with pytest.raises(ValueError, match="class_weight='balanced' is counted on all rows, which fit_stream does not"):
        machine(class_weight="balanced").fit_stream(batches(), ["no", "yes"])
    with pytest.raises(ValueError, match=r"classes must hold at least two labels; found \['no'\]"):
        machine().fit_stream(batches(), ["no"])
    swapped = [(pd.DataFrame(POINTS[:3], columns=list(names)), TWO[:3]) for names in ("ab", "ba")]
    with pytest.raises(ValueError, match=r"X of batch 1 has the columns \['b', 'a'\]; the first rows had \['a', 'b'\]"):
        machine().fit_stream(swapped, ["no", "yes"])
