"""Forests on messages: exact where their leaves can be, honest where there are no labels."""

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor

from cavity.baselines.forests import MessageForest, MondrianForest
from cavity.baselines.forests.message_forest import (
    LEAST,
    averaged_trees,
    best_split,
    message_columns,
    polynomials,
    regression_parameters,
)
from cavity.families import Beta, Gaussian, Product
from cavity.learned.message_coordinates import Target


def cavities(count, seed=0):
    rng = np.random.default_rng(seed)
    m, v = rng.normal(size=count), np.exp(rng.normal(size=count))
    return np.column_stack([m / v, 1 / v])


def quadratic(rows):
    """Projections whose (mean, log variance) are polynomials of those of the cavity."""
    m, log_v = rows[:, 0] / rows[:, 1], -np.log(rows[:, 1])
    mean, spread = 0.3 * m**2 - 0.5 * m * log_v + 1.0, np.exp(0.1 * log_v**2 - 0.2 * m)
    return np.column_stack([mean / spread, 1 / spread])


def test_columns_are_the_common_parameters():
    rows = message_columns(Product((Beta(), Gaussian())), np.array([[2.0, 1.0, 3.0, 2.0]]))
    beta, normal = [2 / 3, 1 / 18, 2.0, 1.0, np.log(2.0), 0.0], [1.5, 0.5, 3.0, 2.0, np.log(0.5)]
    np.testing.assert_allclose(rows, [beta + normal])
    rows = regression_parameters(Product((Beta(), Gaussian())), np.array([[2.0, 1.0, 3.0, 2.0]]))
    np.testing.assert_allclose(rows, [[np.log(2.0), 0.0, 1.5, np.log(0.5)]])
    np.testing.assert_allclose(polynomials(np.array([[2.0, 3.0]])), [[1, 2, 3, 4, 6, 9]])
    assert polynomials(np.zeros((1, 4))).shape[1] == 15


def test_standard_forests_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)), rng.normal(size=(60, 2))
    found = averaged_trees("extremely randomised", x, y, trees=5, seed=1)(x)
    np.testing.assert_allclose(found, ExtraTreesRegressor(5, random_state=1).fit(x, y).predict(x))
    np.testing.assert_allclose(found, y)  # without a bootstrap a tree knows its labels
    steps = np.where(x[:, :1] > 0, 2.0, -1.0)
    assert np.mean(np.abs(averaged_trees("breiman", x, steps, trees=10)(x) - steps)) < 0.1


def test_polynomials_in_leaves_are_exact_for_polynomials():
    rows, new = cavities(300), cavities(20, 1)
    forest = MessageForest(Target(Gaussian(), 0), rows, quadratic(rows), trees=4)
    found, disagreement = forest.predict(new)
    np.testing.assert_allclose(found, quadratic(new), rtol=1e-5)
    assert np.all(disagreement < 1e-9)


def test_trees_average_in_moments_and_disagree_by_divergence():
    rows = cavities(100)
    forest = MessageForest(Target(Gaussian(), 0), rows, quadratic(rows), trees=2)
    forest.votes = lambda of: np.array([[[1.0, np.log(2.0)]], [[3.0, np.log(4.0)]]])
    found, disagreement = forest.predict(rows[:1])
    mean, variance = 2.0, (2 + 4 + 1 + 9) / 2 - 4
    np.testing.assert_allclose(found, [[mean / variance, 1 / variance]])
    gaps = [0.5 * (v / variance - 1 - np.log(v / variance) + (m - mean) ** 2 / variance) for m, v in ((1, 2), (3, 4))]
    np.testing.assert_allclose(disagreement, [np.mean(gaps)])


def test_the_best_split_is_where_the_step_is():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(200, 2))
    y = np.where(x[:, :1] > 0.4, 1.0, 0.0)
    column, border = best_split(rng, x, y)
    assert column == 0 and abs(border - 0.4) < 0.1
    assert best_split(rng, x[: 2 * LEAST - 1], y[: 2 * LEAST - 1]) is None
    assert best_split(rng, x, np.ones((200, 1))) is None


def test_new_labels_split_leaves():
    rows = cavities(400, 3)
    kinked = np.column_stack([np.abs(rows[:, 0] / rows[:, 1]) * rows[:, 1], rows[:, 1]])
    forest = MessageForest(Target(Gaussian(), 0), rows[:60], kinked[:60], trees=8)

    def error():
        found, _ = forest.predict(rows[:300])
        return np.mean(np.asarray(Gaussian().kl(kinked[:300], found)))

    before, nodes = error(), len(forest.trees[0])
    forest.with_more(rows[60:], kinked[60:])
    assert error() < before and len(forest.trees[0]) > nodes
    for tree in forest.trees:  # every label lies in the leaf it is sent to
        places = tree.leaves(forest.columns)
        assert sum(len(own.rows) for own in tree) == 400
        assert all(np.all(places[own.rows] == leaf) for leaf, own in enumerate(tree))


@pytest.fixture(scope="module")
def wave():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (300, 2))
    return x, np.column_stack([np.sin(3 * x[:, 0]), x[:, 1]])


def test_labels_that_drift_make_trees_into_chains():
    """Jitkrittum et al., section 2.2: splitting leaves as labels come can cost O(N) a prediction, not O(log N)."""

    def depth(tree, node=0):
        pair = tree[node].children
        return 0 if pair[0] < 0 else 1 + max(depth(tree, child) for child in pair)

    def deepest(count):
        means = np.linspace(0, 50, count)
        rows = np.column_stack([means, np.ones(count)])
        whole = MessageForest(Target(Gaussian(), 0), rows, rows, trees=1)
        growing = MessageForest(Target(Gaussian(), 0), rows[:LEAST], rows[:LEAST], trees=1)
        for at in range(LEAST, count, 2 * LEAST):
            growing.with_more(rows[at : at + 2 * LEAST], rows[at : at + 2 * LEAST])
        return [depth(own.trees[0]) for own in (growing, whole)]

    (short, balanced), (long, also_balanced) = deepest(11 * LEAST), deepest(41 * LEAST)
    assert short > 1.5 * balanced and long > 3 * also_balanced
    assert long > 2.5 * short and also_balanced < 2 * balanced


def test_mondrian_predicts_and_returns_to_the_prior(wave):
    x, y = wave
    forest = MondrianForest(x, y, trees=16)
    mean, variance = forest.predict(x)
    assert np.mean((mean - y) ** 2) < 0.1 * y.var()
    far_mean, far_variance = forest.predict(np.array([[1e6, -1e6], [3.0, 3.0]]))
    # The prior: mean and variance of the targets, and the noise.
    np.testing.assert_allclose(far_mean[0], y.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(far_variance[0], y.var(axis=0) * (1 + forest.noise), rtol=1e-4)
    assert np.all(far_variance[1] > 2 * np.median(variance, axis=0))


def test_mondrian_posterior_is_that_of_the_joint_gaussian(wave):
    """All nodes' means and all labels as one Gaussian, conditioned by hand."""
    x, y = wave
    forest = MondrianForest(x[:25], y[:25], trees=1, least=4)
    tree, nodes = forest.flat[0], [forest.roots[0]]
    for node in nodes:
        nodes += node.children
    start, end = (np.array([getattr(n, k) for n in nodes]) for k in ("start", "time"))
    step = forest.walk(end) - forest.walk(start)
    above = np.eye(len(nodes))
    for k in range(1, len(nodes)):
        above[k] += above[tree["parent"][k]]
    prior = (above * step) @ above.T
    leaf_of = np.zeros(25, int)
    for k, node in enumerate(nodes):
        leaf_of[node.rows] = k
    across = prior[:, leaf_of]
    inside = prior[np.ix_(leaf_of, leaf_of)] + forest.noise * np.eye(25)
    np.testing.assert_allclose(tree["mean"], across @ np.linalg.solve(inside, forest.y), atol=1e-7)
    variance = np.diag(prior - across @ np.linalg.solve(inside, across.T))
    np.testing.assert_allclose(tree["variance"], variance, rtol=1e-5, atol=1e-9)


def test_mondrian_boxes_hold_their_labels_after_new_ones(wave):
    x, y = wave
    forest = MondrianForest(x[:100], y[:100], trees=4)
    forest.with_more(2.0 * x[100:], y[100:])
    for root in forest.roots:
        waiting, rows = [root], []
        while waiting:
            node = waiting.pop()
            waiting += node.children
            rows.append(node.rows)
            assert all(child.parent is node and child.time > node.time for child in node.children)
            held = forest.x[below(node)]
            np.testing.assert_allclose([held.min(axis=0), held.max(axis=0)], [node.low, node.high])
        assert sorted(np.concatenate(rows)) == list(range(300))
    mean, _ = forest.predict(2.0 * x[100:])
    assert np.mean((mean - y[100:]) ** 2) < 0.2 * y.var()


def below(node):
    return np.concatenate([node.rows, *(below(child) for child in node.children)]).astype(int)


def test_mondrian_split_times_are_exponential():
    """The first split of a square of side 1 comes at rate 2, whether labels come together or one by one."""
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    together = MondrianForest(corners, corners, trees=800, least=2)
    later = MondrianForest(corners[:2], corners[:2], trees=800, least=2)
    later.low, later.range = np.zeros(2), np.ones(2)
    later.with_more(corners[2:], corners[2:])
    for forest in (together, later):
        times = np.array([root.time for root in forest.roots])
        assert abs(times.mean() - 0.5) < 4 * 0.5 / np.sqrt(800)
