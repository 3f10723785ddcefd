"""The contract of docs/jit.md: what `jit`, `vmap`, `jvp` and `grad` may do with `infer`, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import cavity as cv
from cavity.inference.energy import energy

X = np.array([0.3, 1.2, 2.5])
LABELS = np.array([1.0, -1.0, 1.0])
KERNEL = np.exp(-0.5 * (X[:, None] - X) ** 2) + 0.1 * np.eye(3)


def skills(names=("a", "b"), winner=0):
    """Two players and one match."""
    graph = cv.FactorGraph()
    players = [graph.gaussian(mean, 4.0, name=name) for name, mean in zip(names, (1.0, 2.5), strict=True)]
    graph.greater(graph.linear(players[winner], players[1 - winner], weights=(1.0, -1.0), variance=1.0), 0.0)
    return graph


def rain(order=("rain", "wet"), evidence=None):
    """P(rain) and P(wet | rain), with the variables made in this order."""
    graph = cv.DiscreteGraph()
    for name in order:
        graph.add_variable(2, name)
    graph.add_factor(["rain"], [0.8, 0.2])
    graph.add_factor(["rain", "wet"], [[0.9, 0.1], [0.3, 0.7]])
    return graph.given(evidence)


JOINT = np.array([[0.72, 0.08], [0.06, 0.14]])

MODELS = {
    "clutter": lambda: cv.models.clutter(X),
    "mixture": lambda: cv.models.mixture_weights(np.array([[0.2, 0.5], [0.7, 0.1], [0.4, 0.4]])),
    "kernel": lambda: cv.models.latent_gaussian(LABELS, cv.factors.Probit(), kernel_matrix=KERNEL),
    "weights": lambda: cv.models.latent_gaussian(LABELS, cv.factors.Probit(), X=np.stack([X, X**2], axis=1)),
    "skills": skills,
    "rain": rain,
}


@pytest.fixture(params=list(MODELS))
def model(request):
    return MODELS[request.param]()


def alike(found, alone):
    np.testing.assert_allclose(found.log_evidence, alone.log_evidence, rtol=1e-12, atol=1e-12)
    for own, right in zip(jax.tree.leaves(found.q), jax.tree.leaves(alone.q), strict=True):
        np.testing.assert_allclose(own, right, rtol=1e-12, atol=1e-12)


def test_jit_and_vmap_answer_as_outside(model):
    alone = cv.infer(model, cv.EP())
    compiled = jax.jit(lambda problem: cv.infer(problem, cv.EP()))(model.problem())
    assert type(compiled) is cv.Solution
    alike(compiled, alone)
    stack = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), model.problem())
    mapped = jax.vmap(lambda problem: cv.infer(problem, cv.EP()))(stack)
    alike(jax.tree.map(lambda leaf: leaf[1], mapped), alone)


def test_vmap_alone_keeps_all_digits_outside_a_scope():
    sets = np.stack([X, X + 1 / 3])
    with jax.enable_x64(False):
        mapped = jax.vmap(lambda x: cv.infer(cv.models.clutter(x)))(sets)
        alone = [cv.infer(cv.models.clutter(x), cv.EP()).log_evidence for x in sets]
        np.testing.assert_allclose(np.asarray(mapped.log_evidence), alone, rtol=1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda: jax.jit(lambda x: cv.infer(cv.models.clutter(x)))(X),
        lambda: jax.jit(lambda w: cv.infer(cv.models.clutter(X, w=w)))(0.3),
        lambda: jax.jit(cv.infer)(cv.models.clutter(X)),
        lambda: jax.jit(cv.infer)(skills().problem()),
        lambda: jax.jit(jax.vmap(lambda x: cv.infer(cv.models.clutter(x))))(np.stack([X, X])),
        lambda: jax.vmap(jax.jit(lambda x: cv.infer(cv.models.clutter(x))))(np.stack([X, X])),
    ],
)
def test_single_precision_at_a_jit_is_refused_with_the_line_to_write(call):
    with jax.enable_x64(False), pytest.raises(TypeError, match=r"with jax\.enable_x64\(True\): \.\.\."):
        call()
    with jax.enable_x64(True):
        assert np.all(call().converged)


@pytest.mark.parametrize(
    "call",
    [
        lambda p, s: cv.stepping.init(p, cv.EP()).q,
        lambda p, s: energy(p, s.sites).value,
        lambda p, s: s.energy().value,
        lambda p, s: s.loo_log_predictive[0],
        lambda p, s: s.mean,
        lambda p, s: s.log_density(0.5),
    ],
    ids=["stepping", "energy", "energy of a solution", "leave one out", "mean", "log density"],
)
def test_whatever_computes_refuses_single_precision_at_a_jit(call):
    problem = cv.models.truncation(1000.3, 1.0, lower=1000.0)
    solution = cv.infer(problem, cv.EP())
    with jax.enable_x64(False), pytest.raises(TypeError, match=r"float32.*jax.enable_x64\(True\)"):
        jax.jit(call)(problem, solution)
    np.testing.assert_allclose(jax.jit(call)(problem, solution), call(problem, solution), rtol=1e-12)


def test_forward_derivatives_are_those_of_the_evidence():
    """log P(x > 0) of N(m, 1) is log Φ(m); its slope is φ/Φ, that of clutter comes from differences."""

    def truncated(mean):
        return cv.infer(cv.models.truncation(mean, 1.0, lower=0.0), cv.EP()).log_evidence

    def clutter(shift):
        return cv.infer(cv.models.clutter(X + shift), cv.EP(tol=1e-12)).log_evidence

    right = norm.pdf(0.7) / norm.cdf(0.7)
    for slope in (
        jax.jvp(truncated, (0.7,), (1.0,))[1],
        jax.jacfwd(truncated)(0.7),
        jax.jit(jax.jacfwd(truncated))(0.7),
    ):
        assert float(slope) == pytest.approx(right, rel=1e-10)
    difference = (clutter(0.1 + 1e-4) - clutter(0.1 - 1e-4)) / 2e-4
    assert float(jax.jacfwd(clutter)(0.1)) == pytest.approx(float(difference), rel=1e-6)
    sites = cv.infer(cv.models.clutter(X + 0.1), cv.EP(tol=1e-12)).sites
    by_energy = jax.grad(lambda shift: -energy(cv.models.clutter(X + shift), sites).value)(0.1)
    assert float(by_energy) == pytest.approx(float(difference), rel=1e-6)


@pytest.mark.parametrize("wrap", [jax.grad, lambda f: jax.jit(jax.grad(f)), lambda f: jax.grad(jax.jit(f)), jax.jacrev])
def test_reverse_mode_is_refused_with_what_to_write(wrap):
    with pytest.raises(TypeError, match=r"jax\.jacfwd.*energy\(problem, solution\.sites\)"):
        wrap(lambda shift: cv.infer(cv.models.clutter(X + shift), cv.EP()).log_evidence)(0.1)


def test_one_program_serves_graphs_of_other_names_and_orders():
    traces = []

    @jax.jit
    def run(problem):
        traces.append(None)
        return cv.infer(problem, cv.EP())

    for names, winner in ((("a", "b"), 0), (("left", "right"), 0), (("b", "a"), 1)):
        graph = skills(names, winner)
        found, alone = graph.interpret(run(graph.problem())), cv.infer(graph, cv.EP())
        assert list(found.marginals)[:2] == list(names)
        for name in names:
            assert found.marginals[name].mean == pytest.approx(alone.marginals[name].mean, rel=1e-12)
    assert len(traces) == 1


def test_one_program_serves_other_evidence_and_pairs_are_not_transposed():
    traces = []

    @jax.jit
    def run(problem):
        traces.append(None)
        return cv.infer(problem, cv.EP())

    for order in (("rain", "wet"), ("wet", "rain")):
        graph = rain(order)
        found = graph.interpret(run(graph.problem()))
        np.testing.assert_allclose(found.pair("rain", "wet"), JOINT, atol=1e-12)
        np.testing.assert_allclose(found.pair("wet", "rain"), JOINT.T, atol=1e-12)
        observed = rain(order, {"wet": 1})
        found = observed.interpret(run(observed.problem()))
        np.testing.assert_allclose(found.marginals[order.index("rain")], JOINT[:, 1] / JOINT[:, 1].sum(), atol=1e-12)
        assert float(found.log_evidence) == pytest.approx(np.log(JOINT[:, 1].sum()), abs=1e-12)
    assert len(traces) == 1


def test_a_stack_is_read_as_a_whole_and_one_by_one():
    graphs = [rain(evidence={"wet": state}) for state in (0, 1)]
    stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(graph.problem() for graph in graphs))
    solutions = jax.vmap(lambda problem: cv.infer(problem, cv.EP()))(stack)
    together = graphs[0].interpret(solutions)
    assert together.marginals.shape == (2, 2, 2)
    with pytest.raises(ValueError, match="one solution at a time"):
        together.pair("rain", "wet")
    for state, graph in enumerate(graphs):
        alone = graph.interpret(jax.tree.map(lambda leaf, k=state: leaf[k], solutions))
        right = JOINT[:, state] / JOINT[:, state].sum()
        np.testing.assert_allclose(alone.marginals[0], right, atol=1e-12)
        np.testing.assert_allclose(together.marginals[state, 0], right, atol=1e-12)
    games = skills()
    mapped = jax.vmap(lambda problem: cv.infer(problem, cv.EP()))(
        jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), games.problem())
    )
    np.testing.assert_allclose(
        games.interpret(mapped).marginals["b"].mean, [cv.infer(games, cv.EP()).marginals["b"].mean] * 3, rtol=1e-12
    )


def test_nothing_that_travels_knows_a_name():
    for one, other in ((skills(), skills(("left", "right"))), (rain(), rain(("wet", "rain")))):
        first, second = (jax.tree.structure(graph.problem()) for graph in (one, other))
        assert first == second and hash(first) == hash(second)
        assert "rain" not in str(first) and "left" not in str(second)


@pytest.mark.parametrize("question", ["marginals", "pair", "predict"])
def test_a_bare_solution_names_the_line_that_answers(question):
    bare = cv.infer(skills().problem(), cv.EP())
    with pytest.raises(AttributeError, match=rf"graph\.interpret\(solution\)\.{question}"):
        getattr(bare, question)


def test_a_solution_of_another_graph_is_refused():
    for own, other in ((skills(), cv.infer(rain(), cv.EP())), (rain(), cv.infer(cv.DiscreteGraph([2, 2, 2])))):
        with pytest.raises(ValueError, match="another graph"):
            own.interpret(other)


def test_what_the_model_says_is_a_start_and_a_callback_sees_it():
    for graph in (skills(), rain()):
        seen = []
        first = cv.infer(graph, cv.EP(), callback=lambda solution, seen=seen: seen.append(solution.marginals))
        assert seen and cv.infer(graph, cv.EP(), init=first).sweeps <= first.sweeps


def test_a_known_graph_inside_jit_is_solved_while_it_is_traced():
    graph = skills()
    found = jax.jit(lambda shift: shift + cv.infer(graph, cv.EP()).log_evidence)(1.0)
    assert float(found) == pytest.approx(1.0 + cv.infer(graph, cv.EP()).log_evidence, rel=1e-12)


def test_a_solution_made_inside_jit_predicts_outside():
    rows, new = np.stack([X, X**2], axis=1), np.array([[0.5, 0.2], [1.0, -3.0]])

    def solved(y):
        model = cv.models.latent_gaussian(y, cv.factors.Probit(), X=rows)
        return model, cv.infer(model, cv.EP())

    with jax.enable_x64(True):
        inside = jax.jit(lambda y: solved(y)[1])(LABELS)
    model, outside = solved(LABELS)
    found = model.interpret(inside).predict(new)
    for name, value in outside.predict(new).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12)
    with pytest.raises(TypeError, match="predict works on the host"), jax.enable_x64(True):
        jax.jit(lambda y: model.interpret(solved(y)[1]).predict(new))(LABELS)


def test_what_is_driven_from_the_host_is_refused_inside():
    with pytest.raises(TypeError, match="driven from the host"):
        jax.jit(lambda x: cv.infer(cv.models.clutter(x), cv.ConvergentEP()))(X)
