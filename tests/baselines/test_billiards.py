"""Billiards against exact centres of mass, and the laws a ball obeys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cavity.baselines import billiard, exact_bayes_point
from cavity.baselines.billiards import _launch, _play, lambert, pooled, walls

X = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
Y = np.array([1.0, -1.0, -1.0])


def direction(mean):
    return mean / np.linalg.norm(mean)


def test_the_ball_inside_finds_the_centre_within_its_error():
    truth = direction(exact_bayes_point(X, Y).mean)
    found = billiard(X, Y, bounces=4_000, trajectories=32, seed=1)
    assert found.error < 0.004 and found.escapes == 0
    assert np.linalg.norm(found.direction - truth) < 3.5 * found.error
    # All 32 single balls: mean square distance from the truth is 32 times that of their mean.
    spread = np.sqrt(np.mean(np.sum((found.trace[-1] - truth) ** 2, axis=1)))
    assert spread == pytest.approx(np.sqrt(32) * found.error, rel=0.4)
    assert found.trace_error[0] > 3 * found.trace_error[-1]


def test_in_two_dimensions_the_centre_is_the_middle_of_the_arc():
    rows = np.array([[1.0, 0.2], [0.5, 1.0]])
    middle = np.mean([np.arctan2(0.2, 1.0) + np.pi / 2, np.arctan2(1.0, 0.5) - np.pi / 2])
    found = billiard(rows, np.ones(2), bounces=2_000, trajectories=32)
    truth = np.array([np.cos(middle), np.sin(middle)])
    assert np.linalg.norm(found.direction - truth) < 3.5 * found.error < 0.03


def test_without_new_velocities_a_ball_stays_on_its_track():
    """The pool is not ergodic (5.8): more bounces bring a ball no nearer, unless its velocity is drawn anew."""
    truth = direction(exact_bayes_point(X, Y).mean)
    spread = {}
    for randomise in (100, 10**9):
        found = billiard(X, Y, bounces=20_000, trajectories=32, randomise=randomise, written=3)
        spread[randomise] = np.sqrt(np.mean(np.sum((found.trace - truth) ** 2, axis=2), axis=1))
    assert spread[100][-1] < 0.3 * spread[100][-2]
    assert spread[10**9][-1] > 0.8 * spread[10**9][-2] and spread[10**9][-1] > 5 * spread[100][-1]


def test_the_older_rules_escape_and_are_biased():
    truth = direction(exact_bayes_point(X, Y).mean)
    for rule, least in (("rujan", 0.05), ("herbrich", 0.005)):
        found = billiard(X, Y, rule=rule, bounces=20_000, trajectories=16)
        assert 0.1 < found.escapes < 0.9
        assert np.linalg.norm(found.direction - truth) > max(least, 3 * found.error)


def test_energy_is_kept_and_walls_hold():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(12, 5)) + np.array([2.0, 0, 0, 0, 0])
    normals = walls(rows, np.ones(12), None).normals
    keys = jax.random.split(jax.random.key(0), 4)
    start = jnp.asarray(direction(np.array([1.0, 0, 0, 0, 0])))
    assert np.min(normals @ np.asarray(start)) > 0
    balls = _launch("inside", start, keys)
    for stop in (1, 2, 7, 3_000):
        balls = _play("inside", normals, start, keys, balls, stop, 10**9)
        np.testing.assert_allclose(np.linalg.norm(balls.v, axis=1), 1.0, rtol=1e-12)
        assert np.linalg.norm(balls.w, axis=1).max() < 1 + 1e-9
        assert np.min(balls.w @ normals.T) > -1e-9
        # A ball that has just bounced moves away from what it touches.
        touching = np.abs(balls.w @ normals.T) < 1e-9
        assert np.all((balls.v @ normals.T)[touching] > 0)
        surface = np.abs(np.linalg.norm(balls.w, axis=1) - 1) < 1e-9
        assert np.all(touching.any(axis=1) | surface)
        assert np.all(np.sum(balls.v * balls.w, axis=1)[surface] < 0)


@pytest.mark.parametrize("d", [2, 3, 6])
def test_lamberts_law(d):
    """cos θ has density ∝ cos θ sin^(d−2) θ on the half sphere: cos²θ is Beta(1, (d − 1)/2)."""
    normal = np.zeros(d)
    normal[0] = 1.0
    noise = np.random.default_rng(0).normal(size=(20_000, d + 2))
    v = np.asarray(jax.vmap(lambda own: lambert(normal, own))(noise))
    np.testing.assert_allclose(np.linalg.norm(v, axis=1), 1.0, rtol=1e-12)
    a, b = 1.0, 0.5 * (d - 1)
    assert np.mean(v[:, 0] ** 2) == pytest.approx(a / (a + b), abs=0.01)
    assert v[:, 0].min() > 0
    np.testing.assert_allclose(v[:, 1:].mean(axis=0), 0.0, atol=0.03)


def test_kernel_and_input_space_agree():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(8, 3))
    labels = np.sign(rows @ np.array([1.0, -0.5, 0.3]))
    alpha = np.linalg.lstsq(rows.T, np.array([1.0, -0.5, 0.3]))[0]
    both = [
        billiard(rows, labels, bounces=5_000, trajectories=24),
        billiard(y=labels, kernel_matrix=rows @ rows.T, bounces=5_000, trajectories=24, start=alpha),
    ]
    weights = direction(rows.T @ both[1].alpha)
    assert np.linalg.norm(weights - both[0].direction) < 3.5 * np.hypot(both[0].error, both[1].error)
    assert both[0].alpha is None and np.all(labels * (rows @ weights) > 0)


def test_any_separator_will_do_to_start():
    found = [
        billiard(X, Y, bounces=3_000, trajectories=16, start=start) for start in ([2.0, 0.0, -1.0], [1.0, -2.0, -0.1])
    ]
    gap = np.linalg.norm(found[0].direction - found[1].direction)
    assert gap < 3.5 * np.hypot(found[0].error, found[1].error)


def test_what_is_refused():
    with pytest.raises(ValueError, match="not separable"):
        billiard(np.array([[1.0, 1.0], [-1.0, 1.0], [0.0, 1.0]]), np.array([1, 1, -1]))
    with pytest.raises(ValueError, match="not separable"):
        billiard(y=np.array([1, 1, -1]), kernel_matrix=np.ones((3, 3)))
    with pytest.raises(ValueError, match="point 2 is on the wrong side"):
        billiard(X, Y, start=[2.0, 3.0, -1.0])
    with pytest.raises(ValueError, match="rule must be one of"):
        billiard(X, Y, rule="pool")
    with pytest.raises(ValueError, match="labels −1 and"):
        billiard(X, np.array([0, 1, 1]))


def test_the_last_estimate_is_written_after_all_bounces():
    for written in (1, 2, 7):
        assert billiard(X, Y, bounces=50, trajectories=2, written=written).bounces[-1] == 50


def test_one_ball_has_no_error_bar():
    assert np.isnan(pooled(np.ones((1, 3)), np.ones(1))[1])
