"""One shard against the rest: its sums in plain NumPy, and EP as printed where the rest is the prior."""

import dataclasses

import jax
import numpy as np
import pytest
from stream_rows import EPSILON, LABELS, ROWS, reference

import cavity
from cavity.factors import Step
from cavity.models._latent_gaussian.linear_model import LinearRows
from cavity.models.streaming._shard import (
    NaturalSums,
    ShardSites,
    constant_log_likelihood,
    measure_shard,
    own_sums,
    shard_problem,
    sweep_shard,
)

COPIES = np.where(np.arange(90) % 4 == 0, 2.0, 1.0)
#: three weights, padded to eight
WIDTH = 8
KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def shard(schedule, copies=COPIES):
    """(problem, method, rest) of the first rows under a standard Gaussian."""
    rows = LinearRows.of(ROWS[: len(copies)], LABELS[: len(copies)], Step(EPSILON), copies)
    method = dataclasses.replace(cavity.EP(tol=1e-12).as_compiled(), schedule=schedule)
    return shard_problem(rows), method, NaturalSums.padded(np.zeros(3), np.eye(3))


def swept(schedule, times, **changes):
    problem, method, rest = shard(schedule, **changes)
    now = ShardSites.flat(problem)
    for number in range(times):
        now = sweep_shard(problem, method, rest, now, np.asarray(number), KEY).new
    return problem, method, rest, now


@pytest.mark.parametrize("schedule", [cavity.InOrder(), cavity.Parallel()])
def test_a_sweep_hands_out_the_sums_of_its_sites(schedule):
    """Xᵀν, Xᵀ diag(τ) X and Σ log s, every site as often as its row counts, padding not at all."""
    problem, _, _, found = swept(schedule, 2)
    nu, tau, scale = np.asarray(found.sites)[:90].T
    X = np.zeros((90, WIDTH))
    X[:, :3] = ROWS[:90]
    expected = X.T @ (COPIES * nu), X.T @ ((COPIES * tau)[:, None] * X), COPIES @ scale
    for sums in (found.own, own_sums(problem, found.sites)):
        for ours, theirs in zip(sums, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_alone_with_the_prior_a_shard_has_the_fixed_point_of_ep():
    problem, method, rest, found = swept(cavity.InOrder(), 60, copies=np.ones(90))
    expected = reference(ROWS[:90], LABELS[:90])
    q, prior = rest.plus(found.own).q(), rest.q()
    np.testing.assert_allclose(q.mean[:3], expected.mean, atol=1e-11)
    np.testing.assert_allclose(q.covariance[:3, :3], expected.covariance, atol=1e-11)
    report, measured = measure_shard(problem, method, rest, found.sites, KEY)
    assert float(np.max(report.mismatch[0])) < 1e-10
    for sums in (found.own, measured):
        log_evidence = q.log_partition - prior.log_partition + sums.log_scale
        np.testing.assert_allclose(log_evidence, expected.log_evidence, atol=1e-9)


def test_what_the_rest_knows_already_is_not_counted_twice():
    """A shard moved to a rest that holds other rows: both together are EP of all of them."""
    problem, method, rest, first = swept(cavity.InOrder(), 60, copies=np.ones(60))
    second = LinearRows.of(ROWS[60:90], LABELS[60:90], Step(EPSILON))
    problems = [problem, shard_problem(second)]
    parts = [first, ShardSites.flat(problems[1])]
    for _ in range(60):
        for k in range(2):
            others = rest.plus(parts[1 - k].own)
            parts[k] = sweep_shard(problems[k], method, others, parts[k], np.asarray(0), KEY).new
    expected = reference(ROWS[:90], LABELS[:90])
    q = rest.plus(parts[0].own).plus(parts[1].own).q()
    np.testing.assert_allclose(q.mean[:3], expected.mean, atol=1e-10)
    np.testing.assert_allclose(q.covariance[:3, :3], expected.covariance, atol=1e-10)


def test_rows_of_zeros_have_a_likelihood_and_no_site():
    X = ROWS[:40].copy()
    X[[3, 7]] = 0.0
    rows = LinearRows.of(X, LABELS[:40], Step(EPSILON), np.full(40, 3.0))
    np.testing.assert_allclose(constant_log_likelihood(rows), 6 * np.log(0.5), rtol=1e-12)
    assert constant_log_likelihood(LinearRows.of(ROWS[:40], LABELS[:40], Step(EPSILON))) == 0.0
