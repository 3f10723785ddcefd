"""The arithmetic of relaxed EP's figures: the circle integral, the printed algorithms, the contest."""

import numpy as np
import pytest
from cavity_reproductions.base import Config
from cavity_reproductions.relaxed import contest, figure_2, five_points, printed, printed_check, two_classes
from cavity_reproductions.relaxed.five_points import LABELS, POINTS
from rank_one_ep import rank_one_ep, step
from relaxed_reference import relaxed_ep

KERNEL = POINTS @ POINTS.T


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_the_circle_integral_is_the_posterior(epsilon):
    """Against a sum over the plane, with the printed prior N(0, I)."""
    rows = five_points.random_sets(1, 2)[1] if epsilon else (POINTS * LABELS[:, None])[:4]
    side = (np.arange(640) + 0.5) / 40 - 8
    w = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    mass = np.exp(-0.5 * np.sum(w**2, axis=1)) * np.prod(np.where(w @ rows.T > 0, 1 - epsilon, epsilon), axis=1)
    mean = mass @ w / mass.sum()
    found = five_points.exact_posterior(rows, epsilon)
    np.testing.assert_allclose(found.mean, mean, atol=4e-3)
    np.testing.assert_allclose(found.covariance, (w.T * mass) @ w / mass.sum() - np.outer(mean, mean), atol=5e-3)


@pytest.mark.parametrize("runner", ["relaxed", "power"])
def test_the_printed_loops_are_ep_where_they_should_be(runner):
    if runner == "relaxed":
        found = printed.printed_rep(KERNEL, LABELS, 0.2, 1e4, tol=1e-10)
        assert not found.b.any()
    else:
        found = printed.printed_power(KERNEL, LABELS, 0.2, 1.0, tol=1e-10)
    plain = rank_one_ep(KERNEL, step(LABELS, 0.2))
    assert found.converged
    np.testing.assert_allclose(found.tau, plain.tau, atol=1e-7)
    np.testing.assert_allclose(LABELS * found.nu, plain.nu, atol=1e-7)


@pytest.mark.parametrize("c", [0.01, 0.1])
def test_the_printed_relaxation_does_not_settle(c):
    with np.errstate(all="ignore"):
        found = printed.printed_rep(KERNEL, LABELS, 0.2, c)
    assert not found.converged and found.b.max() > 0


def test_the_printed_power_is_not_power_ep():
    """Power EP: q has the moments of t^u × q / site^u. True at power 1, not at 0.5; by sums over f."""

    def mismatch(power: float) -> float:
        found = printed.printed_power(KERNEL, LABELS, 0.2, power, tol=1e-10)
        signed = KERNEL * np.outer(LABELS, LABELS)
        A = np.linalg.solve(np.eye(5) + signed * found.tau, signed)
        h = A @ found.nu
        gaps = []
        for i in range(5):
            precision = 1 / A[i, i] - power * found.tau[i]
            mean = (h[i] / A[i, i] - power * found.nu[i]) / precision
            f = mean + (np.arange(-60_000, 60_000) + 0.5) * 2e-4 / np.sqrt(precision)
            mass = np.where(f > 0, 0.8, 0.2) ** power * np.exp(-0.5 * precision * (f - mean) ** 2)
            gaps.append(abs(mass @ f / mass.sum() - h[i]) / np.sqrt(A[i, i]))
        return max(gaps)

    assert mismatch(1.0) < 1e-3
    assert mismatch(0.5) > 1e-2


def test_the_printed_cost_is_not_the_divergence():
    """At b = 0 the print lacks half of α h (h the cavity mean), worked out by hand from (36)."""
    for site in printed_check.PLACES:
        _, tau, m = printed.matched(site.h, site.lam, 0.2)
        alpha = tau * (m - printed.matched(site.h, site.lam, 0.2)[0])
        true = printed_check.divergence(site, 0.0, 0.2)
        assert printed.cost(site, 0.0, 0.2, 0.0) == pytest.approx(true - 0.5 * alpha * site.h, abs=1e-8)


def test_grids_are_equally_large_and_folds_equally_shaped(monkeypatch):
    assert {len(contest.grid(name, Config())) for name in contest.NAMES} == {4}
    seen = []

    def fit(squares, y, epsilon, width, how):
        seen.append((squares.shape, width))
        return width

    monkeypatch.setattr(contest, "fit", fit)
    # Width 0.7 gets everything right, others nothing.
    monkeypatch.setattr(contest, "wrong", lambda found, cross, width, y: np.full(len(y), width != 0.7))
    chosen = contest.tune("EP", np.zeros((31, 31)), np.ones(31), 0.1, Config())
    assert chosen == contest.Candidate(0.7, None)
    assert {shape for shape, _ in seen} == {(21, 21)} and len(seen) == 12


@pytest.mark.parametrize("epsilon", [0.1, 0.2])
def test_above_the_largest_weight_nothing_is_relaxed(epsilon):
    """Thirty points: some of them come near the steepest place."""
    x = np.random.default_rng(0).normal(size=(30, 2))
    y = np.where(x[:, 0] + 0.7 * np.random.default_rng(1).normal(size=30) > 0, 1.0, -1.0)
    K = np.exp(-0.5 * np.sum((x[:, None] - x[None]) ** 2, axis=2))
    c = contest.largest_weight(epsilon)
    above, below = (
        relaxed_ep(K, y, epsilon, share * c, form="message", penalty="strength", max_sweeps=60, tol=1e-6)
        for share in (1.01, 0.9)
    )
    assert not above.b.any()
    assert below.b.any()


def test_a_share_of_the_labels_is_flipped_in_training_only():
    clean, noisy = (two_classes.data_set(3, noise, Config("quick")) for noise in (0.0, 0.2))
    np.testing.assert_array_equal(clean.X, noisy.X)
    assert np.sum(clean.y != noisy.y) == 0.2 * len(clean.y) > 0
    np.testing.assert_array_equal(clean.test_y, noisy.test_y)
    assert np.sum(clean.y > 0) == len(clean.y) / 2


def test_the_sweep_from_which_on_a_curve_is_low():
    assert two_classes.first_below([1.0, 1e-4, 1.0, 1e-4, 1e-5], 1e-3) == 4
    assert two_classes.first_below([1e-4], 1e-3) == 1
    assert two_classes.first_below([1e-4, float("nan")], 1e-3) is None


def test_a_straight_boundary_crosses_a_lattice_once_a_row():
    x = np.meshgrid(*figure_2.SIDES)[0]
    assert figure_2.crossings((x - 0.01).ravel()).sum() == len(figure_2.SIDES[1]) - 1


def test_two_standard_errors():
    difference = np.array([-1.0, -1.2, -0.8, -1.1])
    assert contest.beats(difference, np.zeros(4))
    assert not contest.beats(np.array([-1.0, 1.2, -0.8, 0.5]), np.zeros(4))


def test_a_state_without_numbers_is_wrong_everywhere():
    class Found:
        class q:
            weights = np.full(3, np.nan)

    assert contest.wrong(Found, np.zeros((2, 3)), 1.0, np.array([1.0, -1.0])).all()
