"""Streams of rows: the fixed point of all rows at once, however they come."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_rows import EPSILON, LABELS, ROWS, SMALL, TIGHT, check, cut, reference, streamed

import cavity
from cavity.factors import Logistic, Probit, Step
from cavity.models._latent_gaussian import fit_linear_model
from cavity.models.streaming import _chunks, _shard, run, stream_linear_models
from cavity.models.streaming._shard import NaturalSums, PassState, VisitCounts


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(_chunks, "CHUNK_ROWS", SMALL)


def test_one_sweep_is_adf_and_many_are_ep():
    """Against EP for the weights as printed; of one sweep it is ADF."""
    batches = cut(ROWS, LABELS, 50, 7, 90)
    first = streamed(batches, method=cavity.ADF())
    check(first, reference(sweeps=1))
    assert first.status == "single_pass" and [entry["pass"] for entry in first.history] == ["sweep"]
    ended = streamed(batches)
    check(ended, reference())
    assert ended.status == "converged" and ended.mismatch <= 1e-12
    kinds = [entry["pass"] for entry in ended.history]
    assert kinds == ["sweep"] * ended.sweeps + ["measure"] and all(entry["rows"] == 200 for entry in ended.history)


def test_parallel_visits_of_a_chunk_have_the_same_fixed_point(monkeypatch):
    """By the rule that chooses them where rows are many, here told that 64 are."""
    asked = []

    def schedule(rows, features):
        asked.append(rows)
        return cavity.Parallel() if rows >= SMALL else cavity.InOrder()

    monkeypatch.setattr("cavity.models.streaming._shard.weight_schedule", schedule)
    model = streamed((ROWS, LABELS))
    check(model, reference())
    assert model.status == "converged" and asked[:5] == [0, 64, 128, 192, 200]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 130), min_size=1, max_size=4), st.booleans())
def test_how_rows_are_cut_does_not_matter(lengths, one_shot):
    """Not to a single bit, for the chunks are the same."""
    batches = cut(ROWS, LABELS, *lengths)
    whole = streamed((ROWS, LABELS), method=cavity.ADF())
    found = streamed(iter(batches) if one_shot else lambda: iter(batches), method=cavity.ADF())
    np.testing.assert_array_equal(found.mean, whole.mean)
    np.testing.assert_array_equal(found.precision, whole.precision)
    assert found.log_evidence == whole.log_evidence


def test_an_iterator_is_read_once_and_the_status_says_so():
    found = streamed(iter(cut(ROWS, LABELS, 60)))
    assert found.status == "single_pass" and found.sweeps == 1
    check(found, reference(sweeps=1))


def test_memory_maps_features_and_weights(tmp_path):
    """A row of weight 2 is the row twice, one of weight 0 none; features are made row by row."""
    path = tmp_path / "rows.npy"
    np.save(path, ROWS[:90].astype(np.float32))
    X = np.load(path, mmap_mode="r")
    weights = np.tile([0.0, 1.0, 2.0], 30)

    def features(rows):
        return np.column_stack([rows[:, :2], rows[:, 0] * rows[:, 1], np.ones(len(rows))])

    found = streamed((X, LABELS[:90], weights), features=features)
    every = np.repeat(np.arange(90), weights.astype(int))
    table = features(np.asarray(X, float))[every]
    check(found, reference(table, LABELS[:90][every]), 1e-10)


def test_rows_without_features_join_the_evidence():
    X = ROWS.copy()
    X[[3, 150]] = 0.0
    kept = X.any(axis=1)
    found = streamed((X, LABELS))
    check(found, reference(X[kept], LABELS[kept]), constant=2 * np.log(0.5))


def test_several_observations_of_a_row_are_models_of_their_own():
    other = np.where(np.arange(200) % 3 == 0, 1.0, -1.0)
    both, _ = stream_linear_models(
        (ROWS, np.arange(200)),
        factor=Probit(label_noise=0.05),
        observed=lambda y: np.stack([LABELS[y], other[y]]),
        method=TIGHT,
    )
    for model, y in zip(both, (LABELS, other), strict=True):
        alone = fit_linear_model(ROWS, y, factor=Probit(label_noise=0.05), method=TIGHT)
        check(model, alone, 1e-10)
    assert both[0].sweeps != both[1].sweeps  # one ended first and was left alone


def test_power_ep_streams():
    method = cavity.PowerEP(0.5, tol=1e-12)
    found = streamed((ROWS, LABELS), factor=Step(EPSILON), method=method)
    whole = fit_linear_model(ROWS, LABELS, factor=Step(EPSILON), method=method)
    check(found, whole, 1e-10)
    assert found.status == whole.status == "converged"


def test_chunks_share_one_program():
    """A short last chunk is filled up: other numbers of rows compile nothing anew."""
    streamed((ROWS, LABELS))
    compiled = _shard.sweep_chunk, _shard.measure_chunk
    programs = [function._cache_size() for function in compiled]
    for rows in (190, 129, 128):
        streamed((ROWS[:rows], LABELS[:rows]))
    assert [function._cache_size() for function in compiled] == programs


def test_slow_parallel_visits_give_way_to_sequential_ones():
    prior = NaturalSums(np.zeros(1), np.eye(1), np.zeros(()))
    method, record = cavity.EP(), {"rows": 10**6, "resumed": []}

    def after(state, mismatch):
        totals = state.totals._replace(counts=VisitCounts.zero()._replace(largest=mismatch))
        ended = dataclasses.replace(state, totals=totals).after_pass(method, prior, record)
        return ended, ended.schedule(method, 10**6, 1)

    first, schedule = after(PassState.initial(prior), 0.9)
    assert schedule == cavity.Parallel()
    assert after(first, 0.4)[1] == cavity.Parallel()
    second, schedule = after(first, 0.5)
    assert schedule == cavity.InOrder() and after(second, 0.01)[1] == cavity.InOrder()


def test_a_long_pass_tells_how_far_it_is(monkeypatch):
    monkeypatch.setattr(run, "REPORT_EVERY", 0.0)
    told = []
    streamed((ROWS, LABELS), callback=told.append)
    assert [(one.stage, one.sweep, one.rows, one.total, one.ended) for one in told[:7]] == [
        *(("sweep", 1, rows, None, False) for rows in (64, 128, 192, 200)),
        ("sweep", 1, 200, None, True),
        *(("sweep", 2, rows, 200, False) for rows in (64, 128)),
    ]
    assert told[-1].stage == "measure" and told[-1].ended and all(one.speed > 0 for one in told)


def test_no_fixed_point_is_not_called_one():
    """Contradicting labels without label noise: nothing explains them."""
    X, y = np.ones((90, 1)), np.tile([1.0, -1.0], 45)
    found = streamed((X, y), factor=Step(), method=cavity.EP(max_sweeps=5))
    assert found.status not in cavity.inference.status.FIXED_POINTS and not found.converged
    short = streamed((ROWS, LABELS), method=cavity.EP(max_sweeps=2, tol=1e-12))
    assert short.status == "max_sweeps" and short.sweeps == 2


def test_absorbing_goes_on_from_a_stream():
    model = streamed((ROWS[:128], LABELS[:128]), method=cavity.ADF())
    found = model.absorb(ROWS[128:], LABELS[128:])
    check(found, reference(sweeps=1))


@pytest.mark.parametrize("factor", [Probit(0.05), Logistic()], ids=["probit", "logistic"])
def test_weights_take_at_most_twice_the_sweeps_of_rows_that_count_once(factor):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = np.where(X @ [1.0, -1.0, 0.5, 0.0] + 0.5 * rng.normal(size=200) > 0, 1.0, -1.0)

    def sweeps(weights):
        model = streamed([(X, y, weights)], factor=factor, method=cavity.EP())
        assert model.status == "converged"
        return model.sweeps

    once = sweeps(np.ones(200))
    for weights in (1.0 + np.arange(200) % 3, rng.uniform(0.1, 3.0, 200), np.resize([0.5, 1.5, 2.5], 200)):
        assert sweeps(weights) <= 2 * once
