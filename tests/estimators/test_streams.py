"""Rows that come in parts: what they weigh, and that nothing is lost on the way."""

import re

import numpy as np
import pytest

import cavity
from cavity.estimators import BayesPointMachine, GPRegressor
from cavity.kernels import RBF
from cavity.models._latent_gaussian import evidence_search

RNG = np.random.default_rng(2)
POINTS = RNG.standard_normal((24, 3))
LABELS = (POINTS @ [1.0, -1.0, 0.0] + 0.3 > 0).astype(int)
ORDER = np.argsort(LABELS, kind="stable")  # the first part holds one class only
FIRST, SECOND = ORDER[:8], ORDER[8:]
SECONDS = re.compile(r"([\d.]+) s: ([\d.]+) s compiling, ([\d.]+) s running")
TIGHT = cavity.EP(tol=1e-10)


def machine(**changes):
    return BayesPointMachine(**{"likelihood": "probit", "label_noise": 0.05, "method": TIGHT, **changes})


def streamed(model, weights=None):
    for part in (FIRST, SECOND):
        own = None if weights is None else weights[part]
        model.partial_fit(POINTS[part], LABELS[part], classes=[0, 1], sample_weight=own)
    return model


def test_class_weights_act_in_a_stream_as_in_a_fit():
    weights = {0: 3.0, 1: 1.0}
    by_class = streamed(machine(class_weight=weights))
    by_row = streamed(machine(), np.array([weights[label] for label in LABELS]))
    np.testing.assert_array_equal(by_class.coef_, by_row.coef_)
    assert not hasattr(by_class, "loo_probabilities_")
    refined = by_class.refine(POINTS, LABELS)
    whole = machine(class_weight=weights).fit(POINTS, LABELS)
    np.testing.assert_allclose(refined.coef_, whole.coef_, atol=1e-8)
    assert refined.log_evidence_ == pytest.approx(whole.log_evidence_, abs=1e-8)
    np.testing.assert_allclose(refined.loo_probabilities_, whole.loo_probabilities_, atol=1e-8)
    with pytest.raises(ValueError, match="class_weight names the class 2, which y does not hold"):
        streamed(machine(class_weight={2: 3.0}))


def test_balanced_weights_need_all_rows():
    with pytest.raises(ValueError, match="class_weight='balanced' is counted on all rows, which partial_fit does not"):
        streamed(machine(class_weight="balanced"))


def test_nothing_is_lost_where_a_warning_is_an_error(monkeypatch):
    stream = machine().partial_fit(POINTS[FIRST], LABELS[FIRST], classes=[0, 1])
    numbers = GPRegressor(RBF(1.0), noise=0.5, optimize=False).fit(POINTS, POINTS[:, 0])
    before, expected = vars(stream).copy(), numbers.predict(POINTS)

    def raising(self, machines, names):
        raise cavity_warning

    cavity_warning = RuntimeError("did not converge")
    for kind in (BayesPointMachine, GPRegressor):
        monkeypatch.setattr(kind, "_warn", raising)
    for call in (stream.partial_fit, stream.refine):
        with pytest.raises(RuntimeError, match="did not converge"):
            call(POINTS[FIRST], LABELS[FIRST])
        assert all(vars(stream)[name] is value for name, value in before.items() if name != "n_features_in_")
    with pytest.raises(RuntimeError, match="did not converge"):
        numbers.fit(POINTS, 100 + 7 * POINTS[:, 1])
    np.testing.assert_array_equal(numbers.predict(POINTS), expected)


def test_refine_tries_other_methods_where_one_does_not_settle(monkeypatch):
    stream = streamed(machine(method=None))
    monkeypatch.setattr(evidence_search, "Auto", lambda: cavity.Auto(max_sweeps=1))
    stream.refine(POINTS, LABELS)
    assert stream.status_ == "converged" and stream.models_[0].sweeps > 1


def test_verbose_tells_of_points_and_sweeps(capsys):
    told = []
    GPRegressor(RBF(1.0), noise=0.5, verbose=told.append).fit(POINTS, POINTS[:, 0])
    assert told[0].startswith("GPRegressor: search, point 1, log evidence ")
    assert told[-2].startswith("GPRegressor: sweep 1, mismatch ")
    total, compiling, running = map(float, SECONDS.fullmatch(told[-1].removeprefix("GPRegressor: ")).groups())
    assert compiling + running == pytest.approx(total, abs=0.11)  # rounded
    streamed(machine(verbose=1)).refine(POINTS, LABELS)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines[:2]] == ["BayesPointMachine: sweep 1", "BayesPointMachine: sweep 2"]
    assert SECONDS.fullmatch(lines[-1].removeprefix("BayesPointMachine: "))
    GPRegressor(RBF(1.0), noise=0.5, optimize=False).fit(POINTS, POINTS[:, 0])
    assert capsys.readouterr().out == ""
