"""The arithmetic of the experiments on learned messages: EP's messages, splits, scores."""

import jax
import jax.numpy as jnp
import numpy as np
from cavity_reproductions.learned import experiment_2, figure_1
from cavity_reproductions.learned.default_operator import scrambled_labels
from cavity_reproductions.learned.logistic_messages import (
    FAMILY,
    Labelled,
    P,
    Z,
    collected,
    labelled,
    log_kl,
    random_problem,
    run_ep,
    slices_of,
    split,
)

from cavity.families import Beta, Gaussian
from cavity.learned.embedding_operator import Settings, fit_embedding, predict_projections
from cavity.learned.message_coordinates import Target


def test_messages_are_those_of_ep():
    """The first come from the prior alone; the last belong to marginals with the moments of σ(y z) × cavity."""
    X, y = random_problem(0, 3, 40)
    found = run_ep(X, y, 40)
    first = slices_of(found.cavities[0], Z)
    np.testing.assert_allclose(first, np.column_stack([np.zeros(40), 1 / np.sum(X**2, axis=1)]), atol=1e-12)
    np.testing.assert_array_equal(slices_of(found.cavities[3], P), np.where(y[:, None] > 0, [2.0, 1.0], [1.0, 2.0]))
    nu, tau = slices_of(found.cavities[-1], Z).T
    z = (nu / tau)[:, None] + np.linspace(-12, 12, 4001) / np.sqrt(tau)[:, None]
    mass = np.exp(-0.5 * tau[:, None] * (z - (nu / tau)[:, None]) ** 2) / (1 + np.exp(-y[:, None] * z))
    mean = (mass * z).sum(axis=1) / mass.sum(axis=1)
    variance = (mass * (z - mean[:, None]) ** 2).sum(axis=1) / mass.sum(axis=1)
    np.testing.assert_allclose(X @ found.mean, mean, atol=1e-6)
    np.testing.assert_allclose(np.sum((X @ found.covariance) * X, axis=1), variance, rtol=1e-6)


def test_whole_problems_are_held_out():
    problems = collected(1, 3, 10, 5, kept_sweeps=2)
    assert [own.shape for own in problems] == [(20, 4)] * 5
    train, test = split(0, problems, 40, 30)
    owner = {tuple(row): number for number, own in enumerate(problems) for row in own}
    assert {owner[tuple(row)] for row in train} <= {0, 1, 2}
    assert {owner[tuple(row)] for row in test} <= {3, 4}
    assert len(np.unique(train, axis=0)) == 40


def test_scores_are_divergences_and_never_nan():
    labels = Labelled(np.zeros((2, 4)), np.array([[2.0, 1.0, 0.5, 2.0]] * 2), np.zeros(2))
    found = log_kl(Z, labels, np.array([[1.0, 1.0], [1.0, -1.0]]))
    np.testing.assert_allclose(found[0], np.log(0.5 * (0.5 - 1 + np.log(2.0) + 0.75**2)))
    assert found[1] > 600
    np.testing.assert_allclose(log_kl(Z, labels, labels.of(Z)), np.log(1e-40))


def test_scrambled_labels_are_near_exact_ones():
    """Sixteen times as many points, and errors far less than a quarter: what random draws would leave of them."""
    rows = collected(2, 3, 30, 1, kept_sweeps=3)[0]
    exact, errors = labelled(rows), []
    for points in (256, 4096):
        found, spread = scrambled_labels(0, rows, points)
        errors.append(np.sqrt(np.mean((found.log_z - exact.log_z) ** 2)))
        assert (spread >= 1 / points).all() and (spread < 20 / points).all()
        np.testing.assert_allclose(found.cavities, rows)
    assert errors[1] < 0.15 * errors[0]
    assert np.mean(np.asarray(Gaussian().kl(exact.of(Z), found.of(Z)))) < 1e-6
    assert np.mean(np.asarray(Beta().kl(exact.of(P), found.of(P)))) < 1e-6


def test_roughness_counts_ups_and_downs():
    assert experiment_2.roughness(np.array([0.0, 1.0, 3.0])) == 1.0
    assert experiment_2.roughness(np.array([0.0, 2.0, 0.0, 2.0])) == 3.0


def test_curves_are_the_papers():
    rows = experiment_2.curve("second", 3)
    np.testing.assert_allclose(np.log(rows[:, 3]), [1.6 - 0.02 * 169, 1.6, 1.6 - 0.02 * 169])
    np.testing.assert_allclose(rows[:, 2] / rows[:, 3], [-13.0, 0.0, 13.0], atol=1e-12)


def test_rows_keep_the_shares_of_both_classes():
    X, y = figure_1.rows_of(figure_1.BUNDLED, 0, 100)
    assert len(X) == 100 and abs(np.mean(y > 0) - 0.5) < 0.02
    assert np.all(np.isfinite(X))
    histogram = figure_1.histogram(np.array([[0.0, 0.0], [99.0, -99.0]]))
    assert histogram.sum() == 1.0 and np.count_nonzero(histogram) == 2


def test_more_than_a_thousand_features_bring_little():
    """Experiment 1 of the paper: no improvement worth the name beyond 1,000 outer features."""
    train, test = (labelled(rows) for rows in split(0, collected(0, 10, 100, 10), 1000, 300))
    target, error = Target(FAMILY, Z), {}
    for count in (125, 1000, 2000):
        settings = Settings(500, count, (0.5,), (1e-4,))
        now = fit_embedding(jax.random.key(0), target, train.cavities, train.of(Z), settings)
        found = predict_projections(now, target, jnp.asarray(test.cavities)).projected
        error[count] = np.mean(log_kl(Z, test, np.asarray(found)))
    assert error[125] - error[1000] > 0.5
    assert abs(error[1000] - error[2000]) < 0.2
