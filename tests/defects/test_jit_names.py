"""Names of variables under `jax.jit` and `jax.vmap`: what a compiled run says must not depend on earlier graphs."""

import ast
import math
from pathlib import Path

import jax
import numpy as np
import pytest

import cavity as cv

MEANS = {"a": 0.0, "b": 9.0}
#: of N(0, 1) and of N(9, 1) above 0
POSTERIOR_MEANS = {"a": math.sqrt(2 / math.pi), "b": 9.0}
#: weights of x (rows) and y (columns)
TABLE = np.array([[1.0, 2.0], [3.0, 10.0]])


def truncated(order, names=None):
    """Variables N(0, 1) and N(9, 1) above zero, made in this order, under names of their own."""
    names = names or {own: own for own in order}
    graph = cv.FactorGraph()
    for own in order:
        graph.greater(graph.gaussian(MEANS[own], 1.0, name=names[own]), 0.0)
    return graph


def table(order):
    """x and y in this order, with one factor."""
    graph = cv.DiscreteGraph()
    for name in order:
        graph.add_variable(2, name)
    graph.add_factor(["x", "y"], TABLE)
    return graph


def mean(graph, solution, name):
    return float(graph.interpret(solution).marginals[name].mean)


def test_one_compiled_run_tells_two_orders_of_variables_apart():
    run = jax.jit(lambda p: cv.infer(p, cv.EP()))
    for order in ("ab", "ba"):
        graph = truncated(order)
        solution = run(graph.problem())
        for own, right in POSTERIOR_MEANS.items():
            assert mean(graph, solution, own) == pytest.approx(right, abs=1e-6), (order, own)


def test_one_compiled_run_knows_the_names_of_every_graph():
    run = jax.jit(lambda p: cv.infer(p, cv.EP()))
    run(truncated("ab").problem())
    names = {"a": "left", "b": "right"}
    graph = truncated("ab", names)
    solution = run(graph.problem())
    for own, right in POSTERIOR_MEANS.items():
        assert mean(graph, solution, names[own]) == pytest.approx(right, abs=1e-6)


def test_a_stack_of_graphs_is_read_by_the_names_of_each():
    graphs = [truncated("ab"), truncated("ba")]
    stack = jax.tree.map(lambda *leaves: np.stack(leaves), *(graph.problem() for graph in graphs))
    solutions = jax.vmap(lambda p: cv.infer(p, cv.EP()))(stack)
    for number, graph in enumerate(graphs):
        solution = jax.tree.map(lambda leaf, k=number: leaf[k], solutions)
        for own, right in POSTERIOR_MEANS.items():
            assert mean(graph, solution, own) == pytest.approx(right, abs=1e-6), (number, own)


def test_pairs_of_a_compiled_run_are_not_transposed():
    run = jax.jit(lambda p: cv.infer(p, cv.EP()))
    right = TABLE / TABLE.sum()
    for order in ("xy", "yx"):
        graph = table(order)
        found = graph.interpret(run(graph.problem()))
        np.testing.assert_allclose(found.pair("x", "y"), right, atol=1e-6, err_msg=order)
        np.testing.assert_allclose(found.pair("y", "x"), right.T, atol=1e-6, err_msg=order)


def test_no_class_has_one_hash_for_all_its_objects():
    constant = []
    for path in sorted(Path(cv.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == "__hash__":
                itself = node.args.args[0].arg
                if not any(isinstance(own, ast.Name) and own.id == itself for own in ast.walk(node)):
                    constant.append(f"{path.name}:{node.lineno}")
    assert not constant
