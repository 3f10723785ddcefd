"""The arithmetic of the experiments on graphs: belief propagation by hand, structures, groups, coupled chains."""

import itertools

import numpy as np
import pytest
from cavity_reproductions import REGISTRY, Config
from cavity_reproductions.thesis import network_files, networks, random_grids, six_nodes
from cavity_reproductions.thesis.coupled_chains import CHAINS, LENGTH, coupled_chains
from cavity_reproductions.thesis.spin_graphs import KINDS, between_clusters, cycle_groups, forms, spins, structure
from cavity_reproductions.thesis.sum_product import sum_product

import cavity
from cavity.discrete import DiscreteGraph, exact_discrete
from cavity.discrete.io.uai import write_mar, write_pr


def test_sum_product_is_exact_on_a_tree():
    rng = np.random.default_rng(0)
    scopes, tables = np.array([[0, 1], [1, 2], [3, 1], [3, 4]]), rng.random((4, 3, 3))
    graph = DiscreteGraph([3] * 5)
    graph.add_factors(scopes, tables)
    truth, found = exact_discrete(graph), sum_product(scopes, tables, 5)
    assert found.settled
    np.testing.assert_allclose(found.marginals, truth.marginals, rtol=1e-10)
    np.testing.assert_allclose(found.log_z, truth.log_evidence, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_cycles_share_no_edge_and_are_cycles(kind):
    made = structure(kind, np.random.default_rng(3))
    groups = cycle_groups(made)
    flat = [edge for own in groups for edge in own]
    assert groups and len(set(flat)) == len(flat)
    for own in groups:
        degrees = np.bincount(made.edges[own].ravel())
        assert set(degrees[degrees > 0]) == {2} and np.count_nonzero(degrees) == len(own)
    assert sorted(node for own in made.clusters for node in own) == list(range(made.nodes))
    assert all(len(own) > 1 for own in between_clusters(made))


def test_faces_of_the_grid_are_its_groups():
    made = structure("grid 4×4", np.random.default_rng(0))
    groups = cycle_groups(made)
    assert [len(own) for own in groups] == [4] * len(groups) and len(groups) >= 4
    assert len(forms(made)["tree"][0].edges) == 15


def test_a_regular_graph_is_regular():
    made = structure("regular 16", np.random.default_rng(5))
    assert np.bincount(made.edges.ravel()).tolist() == [3] * 16


def test_spins_have_the_couplings_asked_for():
    made = structure("complete 8", np.random.default_rng(1))
    graph = spins(made, 2.0, 0.5, np.random.default_rng(2))
    log_values = np.stack([table.log_values for table in graph if len(table.scope) == 2])
    np.testing.assert_allclose(np.abs(log_values[:, 0, 0]), 2.0 * made.sizes)
    np.testing.assert_allclose(log_values[:, 0, 0], -log_values[:, 0, 1])


def test_evidence_of_coupled_chains_is_a_probability():
    model = coupled_chains(np.random.default_rng(0), 1.0)
    assert len(model.graph.variables) == CHAINS * LENGTH
    seen = {v: weights for v, weights in model.graph.likelihoods.items() if v < 2 * CHAINS}
    short = {v: np.zeros(2) for v in model.graph.likelihoods}
    total = 0.0
    for flips in itertools.product([False, True], repeat=2 * CHAINS):
        short |= {v: seen[v][::-1] if flip else seen[v] for v, flip in zip(seen, flips, strict=True)}
        total += np.exp(
            exact_discrete(model.graph.given(likelihoods={v: np.exp(w) for v, w in short.items()})).log_evidence
        )
    assert total == pytest.approx(1.0, rel=1e-9)


def test_the_network_is_the_thesis_one():
    graph = six_nodes.network(np.random.default_rng(0), 1.0)
    assert [table.scope for table in graph] == list(six_nodes.EDGES)
    first = {node for edge in six_nodes.GROUPS[0] for node in six_nodes.EDGES[edge]}
    second = {node for edge in six_nodes.GROUPS[1] for node in six_nodes.EDGES[edge]}
    assert first == {0, 1, 2, 3} and second == {2, 3, 4, 5}


def test_a_fixed_point_of_belief_propagation_has_agreeing_beliefs():
    graph = random_grids.random_grid(3, 0.3, np.random.default_rng(0))
    found = [random_grids.against(graph, "disconnected", cavity.EP(max_sweeps=sweeps)) for sweeps in (1, 200)]
    assert [run["converged"] for run in found] == [False, True]
    assert found[0]["gap"] > 1e-4 and found[1]["gap"] < 1e-8


def test_the_experiment_on_networks_says_which_folder_it_needs(monkeypatch):
    monkeypatch.delenv("CAVITY_DATA", raising=False)
    experiment, config = REGISTRY["thesis-4-networks"], Config("full")
    with pytest.raises(FileNotFoundError, match="set CAVITY_DATA to a folder that holds graphs/bif"):
        experiment.run_unit(experiment.units(config)[0], config)


def test_networks_are_read_with_their_answers(monkeypatch, tmp_path):
    monkeypatch.setenv("CAVITY_DATA", str(tmp_path))
    for folder in ("uai", "exact"):
        (tmp_path / "graphs" / folder).mkdir(parents=True)
    known = network_files.built_in(1)
    for name in ("one", "two"):
        known.graph.given({0: 1}).write(tmp_path / "graphs" / "uai" / f"{name}.uai")
    truth = exact_discrete(known.graph.given({0: 1}))
    lines = [f"x{v},{state},{p}" for v, own in enumerate(truth.marginals) for state, p in enumerate(own)]
    answers = tmp_path / "graphs" / "exact"
    (answers / "one.uai.csv").write_text("\n".join(["variable,state,probability", *lines]), encoding="utf-8")
    (answers / "logz.csv").write_text(f"model,log_z\none.uai,{truth.log_evidence!r}\n", encoding="utf-8")
    (tmp_path / "graphs" / "uai" / "two.uai.MAR").write_text(write_mar(truth.marginals), encoding="ascii")
    (tmp_path / "graphs" / "uai" / "two.uai.PR").write_text(write_pr(truth.log_evidence), encoding="ascii")
    for name in ("one", "two"):
        found = network_files.stored(f"uai/{name}.uai")
        assert found.graph.evidence == {0: 1} and found.log_z == pytest.approx(truth.log_evidence)
        assert network_files.distances(truth.marginals, found) == pytest.approx(np.zeros(8), abs=1e-12)


def test_clusters_of_a_network_join_the_factors_between_them():
    graph = network_files.built_in(1).graph
    made = network_files.approximation(graph, "clusters")
    assert sorted(v for own in made.form.clusters for v in own) == list(range(9))
    assert made.groups and all(len(own) > 1 for own in made.groups)


def test_a_refusal_is_part_of_the_table(monkeypatch):
    def refuse(graph, form):
        raise ValueError("too large.")

    monkeypatch.setattr(networks, "approximation", refuse)
    config = Config("tiny")
    units = networks.units(config)
    results = {unit.name: networks.run_unit(unit, config) for unit in units}
    tables = {table.title: table for table in networks.summarise(results, config).tables}
    assert [row[-1] for row in tables["Refused"].rows] == ["too large."] * len(units)
