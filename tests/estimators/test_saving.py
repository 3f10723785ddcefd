"""A loaded estimator predicts the same numbers; broken and foreign files give one sentence."""

import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

import cavity
from cavity import _storage
from cavity.estimators import BayesPointMachine, GPClassifier, GPOrdinal, GPRegressor, load
from cavity.estimators._base import SEVERITY
from cavity.estimators._saving import METHOD_PARTS
from cavity.inference import Projection, Schedule, Status
from cavity.kernels import RBF, White

RNG = np.random.default_rng(5)
POINTS = RNG.standard_normal((12, 2))
LABELS = np.array(["b", "a", "c"] * 4, dtype=object)
FITTED = {
    "own kernel": (
        GPClassifier(RBF([1.0, 2.0]), optimize=False, class_weight={"a": 2.0}, method=cavity.EP(damping=0.5, tol=1e-6)),
        LABELS,
    ),
    "kernel of scikit-learn": (GPRegressor(2.0 * sk.Matern(1.5, nu=2.5), noise=0.4, optimize=False), POINTS[:, 0] + 3),
    "weights": (BayesPointMachine(likelihood=cavity.factors.Probit(label_noise=0.05)), LABELS),
    "thresholds": (GPOrdinal(RBF(1.0), thresholds=[-1.0, 1.0], order=["a", "b", "c"], optimize=False), LABELS),
}


@pytest.mark.parametrize("name", FITTED)
def test_round_trip(name, tmp_path):
    estimator, y = FITTED[name]
    estimator.fit(POINTS, y)
    path = tmp_path / "model.npz"
    estimator.save(path)
    found = load(path)
    assert type(found) is type(estimator)
    ask = "predict" if isinstance(estimator, GPRegressor) else "predict_proba"
    np.testing.assert_array_equal(getattr(found, ask)(POINTS), getattr(estimator, ask)(POINTS))
    np.testing.assert_array_equal(found.predict(POINTS), estimator.predict(POINTS))
    np.testing.assert_array_equal(found.loo_log_predictive_, estimator.loo_log_predictive_)
    assert found.log_evidence_ == estimator.log_evidence_ and found.status_ is estimator.status_
    assert repr(found) == repr(estimator) and found.get_params().keys() == estimator.get_params().keys()
    assert found.n_features_in_ == 2


def test_a_stream_goes_on_from_a_file(tmp_path):
    stream = BayesPointMachine().partial_fit(POINTS[:6], LABELS[:6], classes=["a", "b", "c"])
    stream.save(tmp_path / "stream.npz")
    found = load(tmp_path / "stream.npz").partial_fit(POINTS[6:], LABELS[6:])
    np.testing.assert_array_equal(found.coef_, stream.partial_fit(POINTS[6:], LABELS[6:]).coef_)
    with pytest.raises(ValueError, match="refine needs the sites of all rows seen, which are not kept in files"):
        found.refine(POINTS, LABELS)


def test_foreign_and_broken_files(tmp_path):
    path = tmp_path / "model.npz"
    _storage.save(path, "checkpoint", {}, {})
    with pytest.raises(_storage.StorageError, match="holds 'checkpoint', which is not an estimator"):
        load(path)
    _storage.save(path, "GPClassifier", {"params": {}, "numbers": {}, "machines": [{"kind": "Exec"}]}, {})
    with pytest.raises(_storage.StorageError, match="does not describe a fitted GPClassifier"):
        load(path)


def test_what_cannot_be_saved_is_named(tmp_path):
    estimator = GPRegressor(RBF(1.0), noise=0.4, optimize=False, random_state=np.random.RandomState(0))
    with pytest.raises(_storage.StorageError, match="random_state cannot be saved: it is of type RandomState"):
        estimator.fit(POINTS, POINTS[:, 0] + 3).save(tmp_path / "model.npz")


@pytest.mark.parametrize("base", [Schedule, Projection])
def test_every_part_that_a_method_may_have_can_be_saved(base):
    own = {cls for cls in base.__subclasses__() if cls.__module__.startswith("cavity.inference.")}
    assert own <= set(METHOD_PARTS.values())


def test_every_status_of_a_model_has_its_place():
    assert sorted(SEVERITY) == sorted(Status)


#: what a file says twice, and changes of one of the two
CONTRADICTIONS = {
    "own kernel": {
        "model1/alpha": lambda own: 2 * own,
        "model0/X": lambda own: own * 1.1,
        "model2/latent_mean": lambda own: -own,
        "model0/sites": lambda own: own * [1.0, 1.5],
        "classes_": lambda own: own[::-1],
    },
    "kernel of scikit-learn": {"model0/multiplicity": lambda own: own + 1, "model0/alpha": lambda own: own * 1e300},
    "weights": {
        "model0/covariance": lambda own: 2 * own,
        "model1/mean": lambda own: own + 1e-3,
        "model2/shift": lambda own: own * 1.01,
        "model0/precision": lambda own: np.diag(np.diagonal(own)),
        "model0/prior_variance": lambda own: -own,
        "loo_probabilities_": lambda own: own[:, :2],
    },
    "thresholds": {"classes_": lambda own: np.array(["a", "b", "a"]), "model0/latent_variance": lambda own: -own},
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_file_that_contradicts_itself_is_refused(name, tmp_path):
    estimator, y = FITTED[name]
    path = tmp_path / "model.npz"
    estimator.fit(POINTS, y).save(path)
    kind, header, arrays = _storage.load(path)
    for array, change in CONTRADICTIONS[name].items():
        _storage.save(path, kind, header, {**arrays, array: change(arrays[array])})
        with pytest.raises(_storage.StorageError, match=r"model\.npz is damaged: it does not describe a fitted"):
            load(path)


FAR = POINTS * 1e8
HARD = {
    "far apart": lambda: BayesPointMachine(label_noise=0.05).fit(FAR, LABELS),
    "one sweep": lambda: BayesPointMachine(label_noise=0.05, method=cavity.EP(max_sweeps=1)).fit(POINTS, LABELS),
    "weights": lambda: BayesPointMachine(likelihood="probit", label_noise=0.05).fit(FAR, LABELS, np.arange(12) * 1e4),
    "kernel form": lambda: BayesPointMachine(label_noise=0.05).fit(np.hstack([FAR] * 10), LABELS),
    "little noise": lambda: GPRegressor(RBF(1.0), noise=1e-9, optimize=False).fit(POINTS, POINTS[:, 0]),
    "one pass": lambda: GPClassifier(RBF(1.0), optimize=False, method=cavity.ADF(), label_noise=0.1).fit(
        POINTS, LABELS
    ),
    "no variance": lambda: GPClassifier("linear", likelihood="probit", optimize=False).fit(
        np.vstack([POINTS, np.zeros((2, 2))]), [*LABELS, "a", "b"]
    ),
    "noise of rows": lambda: GPRegressor(RBF(1.0) + White(0.5), noise=0.1, optimize=False).fit(
        np.vstack([POINTS, POINTS[:4]]), np.r_[POINTS[:, 0], POINTS[:4, 1]]
    ),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", HARD)
def test_what_rounding_does_to_a_fit_is_no_contradiction(name, tmp_path):
    HARD[name]().save(tmp_path / "model.npz")
    assert load(tmp_path / "model.npz").n_features_in_


def test_a_prediction_that_overflows_is_a_sentence():
    process = GPRegressor("poly", noise=0.1, optimize=False).fit(POINTS, POINTS[:, 0])
    with pytest.raises(ValueError, match="X must not be so large that predictions overflow"):
        process.predict([[1e90, -1e90], [1e99, 1e99]], return_std=True)
