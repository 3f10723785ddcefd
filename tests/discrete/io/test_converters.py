"""networkx and pgmpy: the same distribution on both sides, by enumeration. Skipped where they are not installed."""

import math
import sys

import numpy as np
import pytest

from cavity.discrete import DiscreteGraph


def joint(graph):
    """All weights of a small graph, by enumeration, with an axis for every variable."""
    log_values = np.zeros(graph.cardinalities)
    count = len(graph.variables)
    for scope, table in graph:
        aligned = table.transpose(np.argsort(scope)) if scope else table
        shape = [graph.cardinalities[variable] if variable in scope else 1 for variable in range(count)]
        log_values = log_values + aligned.reshape(shape)
    unary = np.split(graph.flat_unary(), np.cumsum(graph.cardinalities)[:-1])
    bare = DiscreteGraph(graph.cardinalities)
    for own in graph.factors.by_shape:
        if len(own.shape) == 1:
            bare.add_factors(own.scopes, own.log_values, log=True)
    plain = np.split(bare.flat_unary(), np.cumsum(graph.cardinalities)[:-1])
    for variable in {*graph.evidence, *graph.likelihoods}:
        shape = [-1 if k == variable else 1 for k in range(count)]
        log_values = log_values + (unary[variable] - plain[variable]).reshape(shape)
    return np.exp(log_values)


def rain():
    """A network with names, a constant, zeros and both kinds of evidence."""
    graph = DiscreteGraph()
    graph.add_variable(["none", "some", "much"], "rain")
    graph.add_variable(["dry", "wet"], "grass")
    graph.add_variable(2, "sprinkler")
    graph.add_factor(["grass", "rain", "sprinkler"], np.arange(12.0).reshape(2, 3, 2))
    graph.add_factor([], 2.5)
    graph.add_factor(["rain"], [0.5, 0.25, 0.25])
    return graph.given({"grass": "wet"}, likelihoods={"sprinkler": [1, 3]})


@pytest.fixture
def networkx():
    return pytest.importorskip("networkx", reason="networkx is not installed")


class TestNetworkx:
    def test_spins_have_the_weights_of_the_formula(self, networkx):
        network = networkx.Graph()
        network.add_node("a", field=0.5)
        network.add_node("b")
        network.add_node(3, field=-1)
        network.add_edge("a", "b", coupling=0.75)
        network.add_edge(3, "b", coupling=-2)
        graph = DiscreteGraph.from_networkx(network)
        assert [graph.variables.name(number) for number in range(3)] == ["a", "b", "3"]
        assert graph.variables.states(0) == ("-1", "+1")
        s = np.array([-1.0, 1.0])
        a, b, c = s[:, None, None], s[None, :, None], s[None, None, :]
        np.testing.assert_allclose(joint(graph), np.exp(0.5 * a - c + 0.75 * a * b - 2 * b * c), rtol=1e-14)

    @pytest.mark.parametrize(
        ("kind", "nodes", "edges", "words"),
        [
            ("DiGraph", [], [("a", "b", {"coupling": 1})], "undirected graph with single edges; found a DiGraph"),
            ("MultiGraph", [], [("a", "b", {"coupling": 1})], "found a MultiGraph"),
            ("Graph", [], [("a", "b", {})], "the edge 'a', 'b' has none"),
            ("Graph", [], [("a", "a", {"coupling": 1})], "a loop at 'a'"),
            ("Graph", [], [("a", "b", {"coupling": math.nan})], "coupling of 'a', 'b' must be finite; found nan"),
            ("Graph", [("a", {"field": "x"})], [], "field of 'a' must be a number; found 'x'"),
            ("Graph", [(1, {}), ("1", {})], [], "already a variable named '1'"),
        ],
    )
    def test_what_is_no_model_of_spins_is_named(self, networkx, kind, nodes, edges, words):
        network = getattr(networkx, kind)()
        network.add_nodes_from(nodes)
        network.add_edges_from(edges)
        with pytest.raises(ValueError, match=words):
            DiscreteGraph.from_networkx(network)

    def test_the_factor_graph_is_bipartite_and_holds_everything(self, networkx):
        graph = rain()
        network = graph.to_networkx()
        assert networkx.is_bipartite(network) and len(network) == 6
        assert sorted(network[("factor", 0)]) == [("variable", 0), ("variable", 1), ("variable", 2)]
        assert sorted(network[("factor", 2)]) == [("variable", 0)] and not network[("factor", 1)]
        assert network.nodes[("variable", 1)]["observed"] == 1
        assert network.nodes[("variable", 0)]["states"] == ("none", "some", "much")
        assert network.nodes[("factor", 0)]["scope"] == (1, 0, 2)
        np.testing.assert_allclose(np.exp(network.nodes[("variable", 2)]["log_likelihood"]), [1, 3])
        np.testing.assert_allclose(np.exp(network.nodes[("factor", 2)]["log_values"]), [0.5, 0.25, 0.25])


@pytest.mark.filterwarnings("ignore")  # pgmpy and what it imports warn of their own future
class TestPgmpy:
    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("pgmpy", reason="pgmpy is not installed")

    def test_a_bayesian_network_keeps_axes_names_and_states(self):
        from pgmpy.factors.discrete import TabularCPD
        from pgmpy.models import DiscreteBayesianNetwork

        model = DiscreteBayesianNetwork([("rain", "wet"), ("on", "wet")])
        names = {"rain": ["no", "yes"], "on": ["a", "b", "c"], "wet": ["dry", "wet"]}
        table = [[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]]
        swapped = {"rain": ["yes", "no"], "on": names["on"], "wet": names["wet"]}
        model.add_cpds(
            TabularCPD("rain", 2, [[0.75], [0.25]], state_names={"rain": names["rain"]}),
            TabularCPD("on", 3, [[0.5], [0.25], [0.25]], state_names={"on": names["on"]}),
            TabularCPD("wet", 2, table, ["rain", "on"], [2, 3], state_names=swapped),
        )
        graph = DiscreteGraph.from_pgmpy(model)
        order = [graph.variables.number(name) for name in ("rain", "on", "wet")]
        assert [graph.variables.states(number) for number in order] == [tuple(names[n]) for n in ("rain", "on", "wet")]
        found = joint(graph).transpose(order)
        assert found.sum() == pytest.approx(1, rel=1e-14)
        assert found[1, 0, 0] == pytest.approx(0.25 * 0.5 * 0.1)  # rain = yes comes first in the table of wet
        assert found[0, 2, 1] == pytest.approx(0.75 * 0.25 * 0.4)

    def test_markov_networks_and_factor_graphs_give_the_same_graph(self):
        from pgmpy.factors.discrete import DiscreteFactor
        from pgmpy.models import DiscreteMarkovNetwork

        model = DiscreteMarkovNetwork([("a", "b")])
        model.add_factors(DiscreteFactor(["b", "a"], [3, 2], range(6)), DiscreteFactor(["a"], [2], [1, 4]))
        wanted = np.array([[0, 1], [2, 3], [4, 5]]) * np.array([1, 4])
        for network in (model, model.to_factor_graph()):
            graph = DiscreteGraph.from_pgmpy(network)
            order = [graph.variables.number("b"), graph.variables.number("a")]
            np.testing.assert_allclose(joint(graph).transpose(order), wanted, rtol=1e-14)

    def test_pgmpy_has_the_same_distribution(self):
        from pgmpy.inference import VariableElimination

        graph = rain()
        model = graph.to_pgmpy()
        assert model.check_model()
        weights = joint(graph)
        assert model.get_partition_function() == pytest.approx(weights.sum(), rel=1e-12)
        query = VariableElimination(model).query(["rain"], show_progress=False)
        query.normalize()
        exact = weights.sum(axis=(1, 2)) / weights.sum()
        for state, probability in zip(("none", "some", "much"), exact, strict=True):
            assert query.get_value(rain=state) == pytest.approx(probability, rel=1e-12)

    def test_there_and_back(self):
        graph = rain()
        again = DiscreteGraph.from_pgmpy(graph.to_pgmpy())
        assert [again.variables.name(number) for number in range(3)] == ["rain", "grass", "sprinkler"]
        assert again.variables.states(0) == ("none", "some", "much")
        np.testing.assert_allclose(joint(again), joint(graph), rtol=1e-14)

    def test_states_that_differ_and_tables_that_are_missing_are_named(self):
        from pgmpy.factors.discrete import DiscreteFactor, TabularCPD
        from pgmpy.models import DiscreteBayesianNetwork, DiscreteMarkovNetwork

        markov = DiscreteMarkovNetwork([("a", "b")])
        markov.add_factors(DiscreteFactor(["a", "b"], [2, 2], range(4)), DiscreteFactor(["a"], [3], range(3)))
        with pytest.raises(ValueError, match=r"'a' has the states \[0, 1\] in one factor, \[0, 1, 2\] in another"):
            DiscreteGraph.from_pgmpy(markov)
        markov.add_node("c")
        with pytest.raises(ValueError, match="'c' is in none"):
            DiscreteGraph.from_pgmpy(markov)
        bayesian = DiscreteBayesianNetwork([("a", "b")])
        bayesian.add_cpds(TabularCPD("b", 2, np.full((2, 2), 0.5), ["a"], [2]))
        with pytest.raises(ValueError, match="must have a table; 'a' has none"):
            DiscreteGraph.from_pgmpy(bayesian)

    def test_another_object_is_named(self):
        with pytest.raises(ValueError, match="must be a discrete network of pgmpy; found a dict"):
            DiscreteGraph.from_pgmpy({})


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("networkx", lambda: DiscreteGraph([2]).to_networkx()),
        ("networkx", lambda: DiscreteGraph.from_networkx(None)),
        ("pgmpy", lambda: DiscreteGraph([2]).to_pgmpy()),
        ("pgmpy", lambda: DiscreteGraph.from_pgmpy(None)),
    ],
)
def test_a_missing_package_is_named(monkeypatch, package, call):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"{package} is not installed: pip install {package}"):
        call()
