"""The arithmetic of the experiments of chapter 5."""

import numpy as np
import pytest
from cavity_reproductions.base import Config
from cavity_reproductions.thesis import (
    benchmark_sets,
    figure_5_5,
    figure_5_6,
    figure_5_12,
    figure_5_13,
    figure_5_15,
    hopeless,
    random_points,
    sphere_view,
    split_contest,
)
from cavity_reproductions.thesis.three_points import (
    balls,
    bayes_point,
    direct_methods,
    distance,
    points,
    root_mean_square,
)
from scipy import stats
from sklearn.datasets import load_digits

import cavity
from cavity.baselines import svm
from cavity.factors import Step
from cavity.kernels import RBF, Polynomial


def test_every_way_ends_where_its_fixed_point_is():
    found = direct_methods(points())
    errors = {name: own["error"][-1] for name, own in found.items()}
    assert errors["EP"] == pytest.approx(errors["TAP"], rel=1e-6) and errors["EP"] < 1e-3
    assert errors["ADF"] == pytest.approx(found["EP"]["error"][0], rel=1e-9)
    assert errors["EP"] < errors["naive MF"] < errors["SVM, normalised"] < errors["SVM"]
    # A sweep over three points in three dimensions: 3 (2·9 + 4·3).
    assert found["EP"]["cost"][:2] == [90, 180]


def test_with_copies_ep_is_still_cheaper_than_the_billiard():
    """Chapter 6. With ten copies EP comes within 0.04 for a tenth of what a ball needs."""
    data = points(10)
    ep, play = direct_methods(data)["EP"], balls(data, "billiard inside", 3000, 32, seed=0)
    errors = root_mean_square([play])
    first = next(cost for cost, error in zip(ep["cost"], ep["error"], strict=True) if error < 0.04)
    assert 5 * first < min(play["cost"][errors < 0.04])


def test_an_svm_is_cheaper_than_ep_and_ep_than_the_billiard_on_digits():
    """Figure 5-7 says EP is the fastest. Multiplications by the formulas of `three_points`, on a set of its size."""
    digits = load_digits()
    kept = np.flatnonzero(np.isin(digits.target, (3, 5)))
    X = np.c_[np.where(digits.data[kept] >= 8, 1.0, 0.0), np.ones(len(kept))][:70]
    y = np.where(digits.target[kept] == 3, 1.0, -1.0)[:70]
    n, d = X.shape
    solution = cavity.infer(cavity.models.latent_gaussian(y, Step(), X=X), cavity.EP(tol=1e-4))
    ep = solution.sweeps * n * (2 * d**2 + 4 * d)
    assert solution.converged
    assert n**2 * d + 2 * n * svm(X @ X.T, y).iterations < ep < 2000 * (2 * n * d + 6 * d)


def test_copies_leave_the_bayes_point_where_it_is():
    assert distance(bayes_point(points(10, 2)), bayes_point(points())) < 1e-12
    assert points(10, 2).y.tolist() == [1.0] + [-1.0] * 11


def test_a_gaussian_bound_lies_below_the_evidence():
    data = points()
    bound, mean = hopeless.variational_gaussian(data, 0.1, starts=2, seed=0)
    exact = np.log(0.09833333333)
    assert exact - 0.5 < bound < exact
    assert hopeless.variational_gaussian(data, 0.0, starts=1, seed=0)[0] == -np.inf
    assert distance(mean, bayes_point(data, 0.1)) < 0.1
    assert "jumps" in hopeless.laplace_refusal(data)


def test_the_features_are_those_of_the_thesis():
    X, y = figure_5_13.sample(0, 20_000)
    assert X.shape == (20_000, 20)
    # 70 % of the time the first three say y with weights 1, 2, 3, else the next three do.
    np.testing.assert_allclose((y[:, None] * X[:, :6]).mean(axis=0), [0.7, 1.4, 2.1, 0.3, 0.6, 0.9], atol=0.06)
    np.testing.assert_allclose(X[:, 6:].var(axis=0), 20.0, rtol=0.06)


def test_a_criterion_takes_the_fewest_of_equally_good():
    result = {"evidence": [None, -3.0, -2.0, -2.0], "span": [None, 4, 1, 1]}
    assert figure_5_13.chosen(result, "evidence") == 3 and figure_5_13.chosen(result, "span") == 3


def test_wins_are_counted_and_tested_in_pairs():
    ep, rival = np.array([0.1, 0.2, 0.3, 0.1]), np.array([0.2, 0.2, 0.4, 0.05])
    found = split_contest.wins(ep, rival)
    assert [found[key] for key in ("better", "equal", "worse")] == [2, 1, 1]
    assert found["difference"] == pytest.approx(3.75)
    assert found["t"] == pytest.approx(stats.ttest_1samp(rival - ep, 0.0).pvalue)
    assert np.isnan(split_contest.wins(ep, ep)["t"])


def test_splits_are_the_same_for_all_and_standardised_by_training():
    first, again = (benchmark_sets.split_of("heart", 3, Config("tiny")) for _ in range(2))
    np.testing.assert_array_equal(first.X, again.X)
    assert (len(first.y), len(first.test_y)) == (24, 16)
    spread = first.X.std(axis=0)
    np.testing.assert_allclose(first.X.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(spread[spread > 0], 1.0)


def test_boundaries_are_measured():
    assert figure_5_5.angle([1.0, 0.0, -0.5]) == pytest.approx(90)
    assert figure_5_5.angle([1.0, 1.0, 0.0]) == pytest.approx(135)
    half = np.where(figure_5_6.lattice()[:, 0] > 0, 1.0, -1.0)
    assert figure_5_6.length(half) == pytest.approx(1.0)


def on_the_lattice(kernel, X, y):
    """Labels of the Bayes point by EP and of the SVM."""
    K, cross = np.asarray(kernel(X)), np.asarray(kernel(figure_5_6.lattice(), X))
    solution = cavity.infer(cavity.models.latent_gaussian(y, Step(), kernel_matrix=K), cavity.EP())
    assert solution.converged
    return np.sign(cross @ solution.q.weights), np.sign(svm(K, y).decide(cross))


def test_a_high_polynomial_is_a_wide_gaussian():
    """Section 5.5: p = 10 and σ = 0.5 agree on all but a hundredth of the square, two Gaussians less so."""
    X = np.random.default_rng(0).uniform(-1, 1, (40, 2))
    labels = [on_the_lattice(kernel, X, figure_5_6.truth(X))[0] for kernel in (Polynomial(10), RBF(0.5), RBF(0.2))]
    assert np.mean(labels[0] != labels[1]) < 0.012 < np.mean(labels[2] != labels[1])


def test_on_the_circle_ep_and_svm_are_alike():
    """Section 5.7, nearly identical: so with a narrow kernel, less so with σ = 0.9 and with the quadratic one."""
    apart = np.zeros((3, 3))
    for seed in range(3):
        X = np.random.default_rng(seed).uniform(-1, 1, (60, 2))
        for k, kernel in enumerate((RBF(0.1), RBF(0.9), Polynomial(2))):
            ep, machine = on_the_lattice(kernel, X, figure_5_12.inside(X))
            apart[seed, k] = np.mean(ep != machine)
    assert apart[:, 0].max() < 0.01 < apart[:, 1:].min() and apart.max() < 0.08


def test_the_last_decade_of_a_power_law():
    bounces = np.geomspace(10, 1e5, 20)
    result = {"bounces": bounces, "errors": (bounces**-0.5)[:, None]}
    left, power = figure_5_15.last_decade(result)
    assert power == pytest.approx(-0.5) and left == pytest.approx(10**-0.5, rel=1e-3)


def test_clusters_stay_separable_and_near():
    data = random_points.clustered_points(np.random.default_rng(0), 6, 4, 0.02)
    assert data.X.shape == (24, 3) and random_points.separable(data.X, data.y)
    assert np.ptp(data.X.reshape(6, 4, 3), axis=1).max() < 0.2


def test_an_ellipse_is_one_deviation_from_its_centre():
    solution = cavity.infer(cavity.models.latent_gaussian(points().y, Step(), X=points().X), cavity.EP())
    plane = sphere_view.view(np.array([1.0, 2.0, 0.5]))
    np.testing.assert_allclose(plane @ plane.T, np.eye(2), atol=1e-12)
    gaps = sphere_view.ellipse(solution.mean, solution.covariance, plane) - (plane @ solution.mean)[:, None]
    inverse = np.linalg.inv(plane @ solution.covariance @ plane.T)
    np.testing.assert_allclose(np.sum(gaps * (inverse @ gaps), axis=0), 1.0, rtol=1e-10)
