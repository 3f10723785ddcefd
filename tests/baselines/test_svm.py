"""Support vector machines: known margins, leave-one-out by refitting, smallest balls."""

import numpy as np
import pytest
from scipy import optimize

from cavity.baselines import exact_bayes_point, smallest_ball, svm
from cavity.kernels import RBF

X = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
Y = np.array([1.0, -1.0, -1.0])


def separable(seed, n):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 2))
    return rows, np.where(rows[:, 0] + rows[:, 1] ** 2 > 0.7, 1.0, -1.0)


def test_the_three_points():
    found = svm(X @ X.T, Y)
    np.testing.assert_allclose(X.T @ found.alpha, [2.0, 0.0, -1.0], atol=1e-6)
    assert found.margin == pytest.approx(1 / np.sqrt(5), rel=1e-6) and found.bias == 0
    free = svm(X[:, :2] @ X[:, :2].T, Y, bias=True)
    assert free.margin == pytest.approx(0.5, rel=1e-6) and free.bias == pytest.approx(-1.0, rel=1e-6)
    normalised = svm(X @ X.T, Y, normalise=True)
    w = X.T @ (normalised.alpha / normalised.scales)
    np.testing.assert_allclose(Y * (X @ w) / np.linalg.norm(X, axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(np.sign(normalised.decide(X @ X.T)), Y)


def test_two_points_have_a_bayes_point_other_than_the_svm():
    """Without the topmost point both boundaries are vertical, at x = 0.41 and 0.5; normalised inputs make them one."""
    truth = exact_bayes_point(X[:2], Y[:2]).mean
    w = X[:2].T @ svm(X[:2] @ X[:2].T, Y[:2]).alpha
    for own, edge in ((truth, np.sqrt(2) - 1), (w, 0.5)):
        np.testing.assert_allclose([own[1], -own[2] / own[0]], [0.0, edge], atol=1e-6)
    found = svm(X[:2] @ X[:2].T, Y[:2], normalise=True)
    w = X[:2].T @ (found.alpha / found.scales)
    np.testing.assert_allclose(w / np.linalg.norm(w), truth / np.linalg.norm(truth), atol=1e-6)


def test_a_machine_without_bias_against_its_dual():
    rows, y = separable(0, 15)
    K = np.asarray(RBF(0.5)(rows))
    C = K * np.outer(y, y)
    dual = optimize.minimize(
        lambda a: 0.5 * a @ C @ a - a.sum(), np.ones(15), jac=lambda a: C @ a - 1, bounds=[(0, None)] * 15, tol=1e-14
    )
    found = svm(K, y)
    np.testing.assert_allclose(K @ found.alpha, K @ (y * dual.x), atol=1e-4)
    assert np.min(y * found.decide(K)) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_the_span_bound_against_machines_fitted_without_the_point(bias):
    """Exact for a support vector whose leaving does not change which others support, an estimate for the rest."""
    exact = stayed = wrong = 0
    for seed in range(6):
        rows, y = separable(seed, 14)
        K = np.asarray(RBF(0.4)(rows)) + 1e-9 * np.eye(14)
        whole = svm(K, y, bias=bias)
        for i, flag in zip(whole.support, whole.span_errors, strict=True):
            rest = np.delete(np.arange(14), i)
            left = svm(K[np.ix_(rest, rest)], y[rest], bias=bias)
            if set(rest[left.support]) == set(whole.support) - {i}:
                stayed += 1
                error = y[i] * left.decide(K[[i]][:, rest])[0] <= 0
                exact += bool(error == flag)
                wrong += bool(error)
        assert whole.span_bound == whole.span_errors.sum()
    assert exact == stayed > 30 and 5 < wrong < stayed - 5


def test_smallest_balls():
    assert smallest_ball(np.eye(4)) == pytest.approx(0.75, rel=1e-8)
    rows = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 0.3]])
    assert smallest_ball(rows @ rows.T) == pytest.approx(1.0, rel=1e-8)
    rows = np.random.default_rng(0).normal(size=(30, 2))
    centre = optimize.minimize(
        lambda c: np.max(np.sum((rows - c) ** 2, axis=1)), rows.mean(axis=0), method="Nelder-Mead", tol=1e-10
    )
    assert smallest_ball(rows @ rows.T) == pytest.approx(centre.fun, rel=1e-6)


def test_what_is_refused_and_what_slack_allows():
    rows, y = np.array([[1.0], [2.0], [3.0]]), np.array([1.0, -1.0, 1.0])
    with pytest.raises(ValueError, match="not separable"):
        svm(rows @ rows.T, y, bias=True)
    soft = svm(rows @ rows.T, y, C=2.0)
    assert np.abs(soft.alpha).max() <= 2.0 + 1e-6
