"""Exact moments of cones against arcsines, sampling and the print; sampling within its own error."""

import numpy as np
import pytest

import cavity
from cavity.baselines import exact_bayes_point, sphere_sampling
from cavity.baselines.bayes_point import cone
from cavity.factors import Step

X = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
Y = np.array([1.0, -1.0, -1.0])


def test_the_three_points_are_those_of_the_thesis():
    truth = exact_bayes_point(X, Y)
    printed = [[0.366, 0.0551, -0.125], [0.0551, 0.533, -0.073], [-0.125, -0.073, 0.164]]
    np.testing.assert_allclose(truth.covariance, printed, atol=6e-4)
    assert truth.log_evidence == pytest.approx(np.log(1 / 12), abs=1e-12)
    solution = cavity.infer(cavity.models.latent_gaussian(Y, Step(), X=X), cavity.EP())
    printed = [[0.358, 0.0589, -0.118], [0.0589, 0.542, -0.0809], [-0.118, -0.0809, 0.163]]
    np.testing.assert_allclose(solution.covariance, printed, atol=6e-4)


def test_separators_of_the_three_points_range_from_0_to_135_degrees():
    """Section 5.5: the Bayes point's boundary lies in the middle of all that separate."""

    def angle(w):
        return np.degrees(np.arctan2(w[..., 0], -w[..., 1])) % 180

    draws = np.random.default_rng(0).normal(size=(500_000, 3))
    angles = angle(draws[np.all(draws @ (X * Y[:, None]).T > 0, axis=1)])
    assert 0 < angles.min() < 2 and 133 < angles.max() < 135
    assert angle(exact_bayes_point(X, Y).mean) == pytest.approx(135 / 2, abs=2)


def test_cones_that_fill_space():
    """Cells of four planes: probabilities add up to 1, first moments to 0, second ones to I."""
    normals = np.random.default_rng(0).normal(size=(4, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    signs = 2.0 * ((np.arange(16)[:, None] >> np.arange(4)) & 1) - 1
    cells = [cone(normals * own[:, None]) for own in signs]
    assert sum(cell.mass > 0 for cell in cells) == 14
    assert sum(cell.mass for cell in cells) == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_allclose(sum(cell.first for cell in cells), 0.0, atol=1e-13)
    np.testing.assert_allclose(sum(cell.second for cell in cells), np.eye(3), atol=1e-13)


@pytest.mark.parametrize("count", [1, 2])
def test_half_spaces_and_wedges(count):
    normals = np.array([[0.0, 0.0, 1.0], [0.6, 0.0, 0.8]])[:count]
    found = cone(normals)
    angle = np.pi if count == 1 else np.pi - np.arccos(0.8)
    assert found.mass == pytest.approx(angle / (2 * np.pi), rel=1e-12)
    expected = normals.sum(axis=0) / np.sqrt(2 * np.pi) * (1.0 if count == 1 else 0.5)
    np.testing.assert_allclose(found.first, expected, atol=1e-13)


@pytest.mark.parametrize("label_noise", [0.0, 0.1])
def test_sampling_agrees_with_the_exact_moments(label_noise):
    rng = np.random.default_rng(3)
    rows = np.column_stack([rng.normal(size=(5, 2)), np.ones(5)])
    labels = np.sign(rows @ np.array([1.0, 0.4, -0.2]))
    truth, found = exact_bayes_point(rows, labels, label_noise), sphere_sampling(rows, labels, label_noise, 300_000, 1)
    assert abs(found.log_evidence - truth.log_evidence) < 4 * found.log_evidence_error < 0.15
    np.testing.assert_array_less(np.abs(found.mean - truth.mean), 4.5 * found.mean_error)
    np.testing.assert_allclose(found.covariance, truth.covariance, atol=0.05)
    gap = np.linalg.norm(found.direction - truth.mean / np.linalg.norm(truth.mean))
    assert gap < 4 * found.direction_error < 0.1


def test_repeated_points_count_in_the_noise_only():
    rows, labels = np.concatenate([X, X[:1], X[:1]]), np.concatenate([Y, Y[:1], Y[:1]])
    np.testing.assert_allclose(exact_bayes_point(rows, labels).mean, exact_bayes_point(X, Y).mean, rtol=1e-12)
    assert exact_bayes_point(rows, labels, 0.1).mean[0] > exact_bayes_point(X, Y, 0.1).mean[0]


def test_votes_are_predictive_averages():
    """Two points fix the sign of w₁ and of w₂, so that at (1, 1, 0) and (1, −1, 0) symmetry knows the vote."""
    found = sphere_sampling(np.eye(3)[:2], np.ones(2), draws=40_000)
    probability, error = found.vote(np.array([[1.0, 1.0, 0.0], [1.0, -1.0, 0.0], [0.0, 0.0, 1.0]]))
    assert probability[0] == pytest.approx(1.0) and error[0] < 1e-12
    np.testing.assert_array_less(np.abs(probability[1:] - 0.5), 4 * error[1:])


def test_what_is_refused():
    rows, labels = np.array([[1.0, 0.0, 1.0], [-1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]), np.array([1.0, 1.0, -1.0])
    with pytest.raises(ValueError, match="not separable"):
        exact_bayes_point(rows, labels)
    with pytest.raises(ValueError, match="too few"):
        sphere_sampling(rows, labels, draws=1_000)
    with pytest.raises(ValueError, match="three weights"):
        exact_bayes_point(rows[:, :2], labels)
