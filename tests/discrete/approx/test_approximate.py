"""Trees, clusters and grouped factors (thesis 4.2), against sums over all states."""

import numpy as np
import pytest
from small_graphs import enumerated, grid_edges, joint_table, random_graph, spin_graph

import cavity as cv

SQUARES = [[0, 1, 2, 3], [4, 5, 6]]
CLUSTERS = cv.Clusters([[0, 1], [2, 3], [4, 5]])
CHAIN = cv.Tree([(0, 1), (1, 3), (3, 2), (2, 4), (4, 5)])


def worst(found, graph):
    """Largest error of the marginals and of log Z."""
    log_z, marginals = enumerated(graph)
    errors = [np.abs(own - true).max() for own, true in zip(found.marginals, marginals, strict=True)]
    return max(errors), abs(found.log_evidence - log_z)


def test_the_six_nodes(six_nodes):
    bp = cv.infer(six_nodes, cv.EP(tol=1e-12))
    assert worst(bp, six_nodes)[0] > 1e-4
    for exactly in (
        six_nodes.approximate(CHAIN),
        six_nodes.approximate(CLUSTERS, groups=SQUARES),
        six_nodes.approximate(groups=[range(7)]),
    ):
        found = cv.infer(exactly, cv.EP())
        assert found.status == "converged"
        assert max(worst(found, six_nodes)) < 1e-10


def test_clusters_alone_are_belief_propagation_on_the_edges_between(six_nodes):
    """Without grouping, messages between clusters are those of BP where edges inside clusters are exact."""
    found = cv.infer(six_nodes.approximate(CLUSTERS), cv.EP(tol=1e-13))
    bp = cv.infer(six_nodes, cv.EP(tol=1e-13))
    np.testing.assert_allclose(found.marginals, bp.marginals, atol=1e-10)
    assert abs(found.log_evidence - bp.log_evidence) < 1e-10


def test_one_pass_over_the_chain_is_exact_where_nothing_comes_later(six_nodes):
    found = cv.infer(six_nodes.approximate(CHAIN), cv.ADF())
    _, marginals = enumerated(six_nodes)
    assert found.status == "single_pass"
    np.testing.assert_allclose(found.marginals[5], marginals[5], atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_a_single_cycle_is_exact_on_a_tree(seed):
    rng = np.random.default_rng(seed)
    graph = cv.DiscreteGraph(np.full(5, 3))
    for i in range(5):
        graph.add_factor([i, (i + 1) % 5], rng.normal(size=(3, 3)), log=True)
    found = cv.infer(graph.approximate("tree"), cv.EP())
    assert max(worst(found, graph)) < 1e-12


def test_trees_with_zeros_larger_factors_and_evidence():
    rng = np.random.default_rng(7)
    done = 0
    while done < 3:
        graph = random_graph(rng)
        if not np.isfinite(joint_table(graph)).any():
            continue
        found = cv.infer(graph.approximate("tree"), cv.EP(max_sweeps=100))
        assert all(abs(own.sum() - 1) < 1e-12 for own in found.marginals)
        if found.converged:
            assert worst(found, graph)[1] < 0.3
        done += 1


def test_a_tree_beats_belief_propagation_on_grids():
    rng = np.random.default_rng(8)
    errors = []
    for _ in range(5):
        graph = spin_graph(grid_edges(3, 3), rng.normal(size=12), 0.3 * rng.normal(size=9))
        tree, bp = (cv.infer(own, cv.EP()) for own in (graph.approximate("tree"), graph))
        assert tree.converged
        if bp.converged:
            errors.append((worst(tree, graph)[0], worst(bp, graph)[0]))
    assert np.mean([tree < bp for tree, bp in errors]) > 0.7
    assert 3 * np.mean([tree for tree, _ in errors]) < np.mean([bp for _, bp in errors])


def test_trees_of_one_size_share_few_shapes():
    rng = np.random.default_rng(0)
    edges, shapes = grid_edges(5, 5), set()
    for _ in range(20):
        graph = spin_graph(edges, 2.0 * rng.normal(size=len(edges)), 0.3 * rng.normal(size=25))
        shapes.add(graph.approximate("tree").problem().prior.rows.shape)
    assert len(shapes) <= 4


def test_pairs_on_a_tree_and_in_a_cluster(six_nodes):
    table = enumerated(six_nodes)
    chain = cv.infer(six_nodes.approximate(CHAIN), cv.EP())
    for i, j in ((3, 2), (0, 5), (4, 2)):
        pair = chain.pair(i, j)
        np.testing.assert_allclose(pair.sum(axis=1), table[1][i], atol=1e-10)
        np.testing.assert_allclose(pair.sum(axis=0), table[1][j], atol=1e-10)
    clusters = cv.infer(six_nodes.approximate(CLUSTERS, groups=SQUARES), cv.EP())
    np.testing.assert_allclose(clusters.pair(2, 3), chain.pair(2, 3), atol=1e-10)
    np.testing.assert_allclose(clusters.pair("x3", "x2"), chain.pair(2, 3).T, atol=1e-10)
    with pytest.raises(ValueError, match="numbered 0 to 5"):
        clusters.pair(0, 6)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda g: g.approximate("forest"), "form must be"),
        (lambda g: g.approximate(3), "form must be"),
        (lambda g: g.approximate(groups=[[0, 9]]), "groups name factors 0 to 6"),
        (lambda g: g.approximate(groups=[[0, 1], [1]]), "twice"),
        (lambda g: g.approximate(cv.Clusters([[0, 1], [1, 2]])).problem(), "disjoint"),
        (lambda g: g.approximate(cv.Tree([(0, 1), (1, 2), (0, 2)])).problem(), "loop"),
        (lambda g: g.approximate(cv.Tree([(0, 0)])).problem(), "pairs of different"),
        (lambda g: g.approximate(cv.Tree([(0, 17)])).problem(), "numbered 0 to 5"),
    ],
)
def test_bad_requests_are_refused(six_nodes, make, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        make(six_nodes)
