"""Arguments in disguise: the same numbers in another garb give the same bits, what only looks alike is refused by name.

`QUESTIONS` has the arrays that users hand over, `SAME` ways to write the same numbers, `OTHER` what looks like them and
is something else: masked, complex, text, without a value. What was handed over may be written to afterwards.
"""

import decimal
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import cavity as cv
from cavity.models.streaming import stream_linear_models

ROWS = np.array([[0.5, -1.0], [1.25, 0.5], [-0.75, 2.0], [0.25, 0.25], [-1.5, -0.5], [2.0, 1.0]])
VALUES = np.array([0.5, 1.25, -1.0, 0.75, -0.25, 1.5])
SIGNS = np.array([1.0, 1.0, -1.0, 1.0, -1.0, 1.0])
WEIGHTS = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 1.0])
COUNTS = np.array([1.0, 2.0, 1.0, 3.0, 1.0, 1.0])
SPREAD = np.array([[2.0, 0.5], [0.5, 1.0]])
GRAM = np.eye(6) + 0.25
TABLE = np.array([[0.5, 2.0, 1.0], [1.5, 0.25, 3.0]])
PAIR = [0.5, 2.0]
RBF = cv.kernels.RBF(1.0)


class Question(NamedTuple):
    """good: an array, all of its numbers with few digits. make: what is asked, from the array. ask: its answers.

    words: a refusal has one of them.
    """

    good: np.ndarray
    make: Callable[[Any], Any]
    ask: Callable[[Any], Any]
    words: tuple[str, ...]


def solved(problem: Any) -> Any:
    """All numbers of a run."""
    found = cv.infer(problem, cv.EP())
    return [found.log_evidence, *found.sites, *jax.tree.leaves(found.q)]


def exactly(graph: Any) -> Any:
    """The answers of a network, those of belief propagation with them."""
    found = cv.exact(graph)
    return [found.log_evidence, *found.marginals, *solved(graph)]


def in_graph(good: Any, state: Callable[[Any, Any], Any], *words: str) -> Question:
    """A statement that a graph is given."""

    def make(value: Any) -> Any:
        graph = cv.FactorGraph()
        state(graph, value)
        return graph

    return Question(np.asarray(good), make, solved, words)


def see(graph: Any, variable: Any) -> None:
    """Observe every entry with noise."""
    graph.linear(variable, variance=0.5, out=np.arange(variable.rows.size).reshape(variable.shape) / 4)


def see_vector(graph: Any, vector: Any) -> None:
    see(graph, graph.inner(vector, [[1.0, 0.5], [0.25, 1.0]]))


def see_through(graph: Any, **given: Any) -> None:
    graph.greater(graph.linear(graph.gaussian(0.0, [1.0, 2.0]), **{"variance": 1.0} | given), 0.0)


def see_product(graph: Any, **given: Any) -> None:
    given = {"matrix": ROWS[:2], "covariance": SPREAD, "out": [0.5, 1.0]} | given
    graph.product(given.pop("matrix"), graph.vector([0.0, 1.0], SPREAD), **given)


def quadratic(x: Any, y: Any) -> Any:
    return -0.5 * (x - y) ** 2


def between(pair: Any, y: Any) -> Any:
    return -0.5 * (pair[0] - pair[1] - y) ** 2


GRAPHS = {
    "gaussian, mean": in_graph(VALUES, lambda g, v: see(g, g.gaussian(v, 1.0)), "mean"),
    "gaussian, variance": in_graph(PAIR, lambda g, v: see(g, g.gaussian(0.0, v)), "variance"),
    "vector, mean": in_graph(PAIR, lambda g, v: see_vector(g, g.vector(v, SPREAD)), "mean"),
    "vector, covariance": in_graph(SPREAD, lambda g, v: see_vector(g, g.vector([0.0, 1.0], v)), "covariance"),
    "gamma, shape": in_graph(PAIR, lambda g, v: g.normal(0.0, g.gamma(v, 1.0), out=PAIR), "shape"),
    "gamma, rate": in_graph(PAIR, lambda g, v: g.normal(0.0, g.gamma(2.0, v), out=PAIR), "rate"),
    "beta, a": in_graph(PAIR, lambda g, v: g.bernoulli(g.beta(v, 1.0), out=[0, 1]), "a must", "a has"),
    "beta, b": in_graph(PAIR, lambda g, v: g.bernoulli(g.beta(1.0, v), out=[0, 1]), "b must", "b has"),
    "dirichlet": in_graph(TABLE[0], lambda g, v: g.choice(g.dirichlet(v), out=[2, 0, 1]), "concentration"),
    "categorical": in_graph(
        TABLE[0], lambda g, v: g.choice(g.dirichlet([1.0, 2.0, 1.5]), out=g.categorical(v)), "probabilities"
    ),
    "variables": in_graph([PAIR], lambda g, v: g.bernoulli(g.variables(cv.families.Beta(), v), out=[1]), "prior"),
    "linear, weights": in_graph(PAIR, lambda g, v: see_through(g, weights=[v]), "weights"),
    "linear, offset": in_graph(PAIR, lambda g, v: see_through(g, offset=v), "offset"),
    "linear, variance": in_graph(PAIR, lambda g, v: see_through(g, variance=v), "variance"),
    "linear, out": in_graph(PAIR, lambda g, v: g.linear(g.gaussian(0.0, PAIR), variance=1.0, out=v), "out"),
    "inner, x": in_graph(ROWS[:2], lambda g, v: see(g, g.inner(g.vector([0.0, 1.0], SPREAD), v)), "x must", "x has"),
    "product, matrix": in_graph(ROWS[:2], lambda g, v: see_product(g, matrix=v), "matrix"),
    "product, covariance": in_graph(SPREAD, lambda g, v: see_product(g, covariance=v), "covariance"),
    "product, offset": in_graph(PAIR, lambda g, v: see_product(g, offset=v), "offset"),
    "product, out": in_graph(PAIR, lambda g, v: see_product(g, out=v), "out"),
    "within, lower": in_graph(PAIR, lambda g, v: g.within(g.gaussian(0.0, [1.0, 2.0]), v, 3.0), "lower"),
    "within, upper": in_graph(PAIR, lambda g, v: g.within(g.gaussian(0.0, [1.0, 2.0]), -3.0, v), "upper"),
    "greater": in_graph(PAIR, lambda g, v: g.greater(g.gaussian(0.0, [1.0, 2.0]), v), "than", "lower"),
    "normal, mean": in_graph(PAIR, lambda g, v: g.normal(v, g.gamma(2.0, PAIR), out=[1.0, 0.5]), "mean"),
    "normal, out": in_graph(PAIR, lambda g, v: g.normal(0.0, g.gamma(2.0, PAIR), out=v), "out"),
    "bernoulli": in_graph([0.0, 1.0], lambda g, v: g.bernoulli(g.beta(2.0, PAIR), out=v), "out"),
    "choice": in_graph([0.0, 2.0], lambda g, v: g.choice(g.dirichlet([[1.0, 2.0, 1.0]] * 2), out=v), "out"),
    "gamma_from, shape": in_graph(PAIR, lambda g, v: g.gamma_from(v, g.gamma(2.0, PAIR), out=1.5), "shape"),
    "gamma_from, out": in_graph(PAIR, lambda g, v: g.gamma_from(2.0, g.gamma(2.0, PAIR), out=v), "out"),
    "labels of a factor": in_graph(
        [1.0, -1.0], lambda g, v: g.add(cv.factors.Probit(), g.gaussian(0.0, PAIR), data=v), "data", "y must"
    ),
    "data of a density": in_graph(
        PAIR, lambda g, v: g.add(cv.factors.from_log_density(quadratic), g.gaussian(0.0, PAIR), data=v), "data"
    ),
    "argument of a density": in_graph(
        PAIR,
        lambda g, v: g.add(cv.factors.from_log_density(between), g.gaussian(0.0, PAIR), v, data=0.5),
        "argument",
        "numbers",
    ),
}


def tables(values: Any = TABLE) -> Any:
    graph = cv.DiscreteGraph([2, 3])
    graph.add_factor([0, 1], values)
    return graph


def many_tables(scopes: Any, values: Any) -> Any:
    graph = cv.DiscreteGraph([2, 3])
    graph.add_factors(scopes, values)
    return graph


def latent(y: Any = SIGNS, likelihood: Any = None, **given: Any) -> Any:
    return cv.models.latent_gaussian(y, likelihood or cv.factors.Probit(), **given)


def clutter_of(mean: Any = (0.5, 1.0), covariance: Any = SPREAD) -> Any:
    return cv.models.posterior(cv.factors.Clutter(0.5, 8.0), ROWS, mean, covariance)


MODELS = {
    "network, states": Question(np.array([2, 3]), cv.DiscreteGraph, lambda g: g.cardinalities, ("cardinalities",)),
    "network, weights": Question(TABLE, tables, exactly, ("values",)),
    "network, many weights": Question(TABLE[None], lambda v: many_tables([[0, 1]], v), exactly, ("values",)),
    "network, scopes": Question(np.array([[0, 1]]), lambda v: many_tables(v, TABLE[None]), exactly, ("scopes",)),
    "network, soft evidence": Question(
        TABLE[0], lambda v: tables().given(likelihoods={1: v}), exactly, ("likelihood",)
    ),
    "clutter": Question(VALUES, cv.models.clutter, solved, ("x must", "x has")),
    "mixture weights": Question(TABLE, cv.models.mixture_weights, solved, ("densities",)),
    "mixture weights, prior": Question(TABLE[0], lambda v: cv.models.mixture_weights(TABLE, v), solved, ("prior",)),
    "truncation, lower": Question(VALUES, lambda v: cv.models.truncation(0.0, 1.0, v, 3.0), solved, ("lower",)),
    "truncation, upper": Question(VALUES, lambda v: cv.models.truncation(0.0, 1.0, -2.0, v), solved, ("upper",)),
    "posterior, data": Question(
        VALUES, lambda v: cv.models.posterior(cv.factors.Gaussian(0.5), v), solved, ("data", "y must")
    ),
    "posterior, mean": Question(np.array(PAIR), clutter_of, solved, ("prior_mean",)),
    "posterior, covariance": Question(SPREAD, lambda v: clutter_of(covariance=v), solved, ("prior_variance",)),
    "posterior, multiplicity": Question(
        COUNTS,
        lambda v: cv.models.posterior(cv.factors.Gaussian(0.5), VALUES, multiplicity=v),
        solved,
        ("multiplicity",),
    ),
    "latents, y": Question(SIGNS, lambda v: latent(v, kernel_matrix=GRAM), solved, ("y must", "y has")),
    "latents, kernel matrix": Question(GRAM, lambda v: latent(kernel_matrix=v), solved, ("kernel_matrix",)),
    "latents, X": Question(ROWS, lambda v: latent(X=v, kernel=RBF), solved, ("X",)),
    "latents, X of weights": Question(ROWS, lambda v: latent(X=v), solved, ("X",)),
    "latents, prior": Question(SPREAD, lambda v: latent(X=ROWS, prior_variance=v), solved, ("prior_variance",)),
    "latents, inducing inputs": Question(
        ROWS[:3],
        lambda v: latent(X=ROWS, kernel=RBF, basis=cv.kernels.InducingInputs(v)),
        solved,
        ("inputs", "InducingInputs"),
    ),
    "latents, multiplicity": Question(
        COUNTS, lambda v: latent(kernel_matrix=GRAM, multiplicity=v), solved, ("multiplicity",)
    ),
    "kernel, length scales": Question(
        np.array(PAIR), lambda v: latent(X=ROWS, kernel=cv.kernels.RBF(v)), solved, ("length_scale",)
    ),
}


def predicted(estimator: Any) -> Any:
    return estimator._predictions(ROWS[:2])


def regressor(X: Any = ROWS, y: Any = VALUES) -> Any:
    return cv.GPRegressor(RBF, noise=0.5, optimize=False).fit(X, y)


def classifier(X: Any = ROWS, weights: Any = None) -> Any:
    return cv.GPClassifier(RBF, likelihood="probit", label_noise=0.125, optimize=False).fit(X, SIGNS, weights)


def machine(X: Any = ROWS, weights: Any = None) -> Any:
    return cv.BayesPointMachine(likelihood="probit").fit(X, SIGNS, weights)


def ordinal(thresholds: Any) -> Any:
    return cv.GPOrdinal(RBF, thresholds=thresholds, optimize=False).fit(ROWS, [0, 1, 2, 1, 0, 2])


def streamed(X: Any = ROWS, y: Any = SIGNS, weights: Any = WEIGHTS) -> Any:
    return stream_linear_models([(X, y, weights)], factor=cv.factors.Probit(), method=cv.EP())[0][0]


def of_model(model: Any) -> Any:
    return [model.mean, model.covariance, model.log_evidence]


#: what scikit-learn says of all that it is given
FOREIGN = ("contains NaN", "Complex data not supported", "not 'complex'", "0 sample", "inconsistent numbers of samples")
ESTIMATORS = {
    "regressor, X": Question(ROWS, regressor, predicted, ("X",)),
    "regressor, y": Question(VALUES, lambda v: regressor(y=v), predicted, ("y",)),
    "regressor, new X": Question(ROWS, lambda v: v, lambda v: regressor().predict(v, return_std=True), ("X",)),
    "classifier, X": Question(ROWS, classifier, predicted, ("X",)),
    "classifier, weights": Question(WEIGHTS, lambda v: classifier(weights=v), predicted, ("sample_weight",)),
    "machine, X": Question(ROWS, machine, predicted, ("X",)),
    "machine, weights": Question(WEIGHTS, lambda v: machine(weights=v), predicted, ("sample_weight",)),
    "machine, more rows": Question(ROWS, lambda v: machine().partial_fit(v, SIGNS), predicted, ("X",)),
    "ordinal, thresholds": Question(np.array([-0.5, 0.5]), ordinal, predicted, ("thresholds",)),
    "stream, X": Question(ROWS, streamed, of_model, ("X",)),
    "stream, y": Question(SIGNS, lambda v: streamed(y=v), of_model, ("y",)),
    "stream, weights": Question(WEIGHTS, lambda v: streamed(weights=v), of_model, ("weights",)),
}
QUESTIONS = GRAPHS | MODELS | ESTIMATORS
#: data that may be a tree of arrays, of which a tuple is one
TREES = {"labels of a factor", "data of a density", "posterior, data", "latents, y"}


def strided(values: np.ndarray) -> np.ndarray:
    """A view with gaps in every axis."""
    held = np.full([2 * length for length in values.shape], 77, values.dtype)
    held[tuple(slice(None, None, 2) for _ in values.shape)] = values
    return held[tuple(slice(None, None, 2) for _ in values.shape)]


def frozen(values: np.ndarray) -> np.ndarray:
    found = values.copy()
    found.flags.writeable = False
    return found


def with_one(values: np.ndarray, other: Any, dtype: Any) -> np.ndarray:
    """The values with another one in the last place."""
    found = values.astype(dtype)
    found[(-1,) * found.ndim] = other
    return found


def masked(values: np.ndarray) -> Any:
    found = np.ma.array(values.copy())
    found[(-1,) * found.ndim] = np.ma.masked
    return found


#: the same numbers; those that must be answered, and those that may be refused by name
SAME = {
    "list": lambda v: v.tolist(),
    "tuple": lambda v: tuple(v.tolist()),
    "rows of a list": list,
    "strided": strided,
    "Fortran order": np.asfortranarray,
    "read only": frozen,
    "single precision": lambda v: v.astype(np.float32 if v.dtype.kind == "f" else np.int16),
    "big endian": lambda v: v.astype(v.dtype.newbyteorder(">")),
    "array of JAX": lambda v: jnp.asarray(v, v.dtype),
    "nothing masked": lambda v: np.ma.array(v, mask=np.zeros(v.shape, bool)),
}
MAYBE = {
    "objects": lambda v: v.astype(object),
    "decimals": lambda v: np.vectorize(lambda own: decimal.Decimal(str(own)), otypes=[object])(v),
    "complex without imaginary part": lambda v: v.astype(complex),
}
OTHER = {
    "masked": masked,
    "list of masked rows": lambda v: list(masked(v)),
    "complex": lambda v: with_one(v, 1.0 + 0.5j, complex),
    "list of complex": lambda v: with_one(v, 1.0 + 0.5j, complex).tolist(),
    "objects with a complex number": lambda v: with_one(v, 1.0 + 0.5j, object),
    "objects with nothing": lambda v: with_one(v, None, object),
    "text": lambda v: v.astype(str),
    "objects of text": lambda v: v.astype(str).astype(object),
    "bytes": lambda v: v.astype(str).astype(bytes),
    "dates": lambda v: v.astype("M8[s]"),
    "durations": lambda v: v.astype("m8[s]"),
    "not a number": lambda v: with_one(v, np.nan, float),
    "records": lambda v: v.astype([("a", float)]),
    "nothing": lambda v: v[:0],
}


def bits(answers: Any) -> list[tuple[Any, ...]]:
    """The answers as bytes, with their shapes."""
    leaves = [np.asarray(own) for own in jax.tree.leaves(answers)]
    return [(own.dtype.str, own.shape, own.tobytes()) for own in leaves]


def answer(name: str) -> list[tuple[Any, ...]]:
    question = QUESTIONS[name]
    return bits(question.ask(question.make(question.good.copy())))


def refused_by(error: Exception, *words: str) -> str:
    """*refused*, if the sentence has one of these words."""
    said = str(error)
    assert any(word in said for word in words) and "\n" not in said, f"refused, but not for {words}: {said}"
    return "refused"


def outcome(name: str, disguise: str) -> str:
    """*right* or *refused*; an assertion fails where something was taken for what it is not."""
    question = QUESTIONS[name]
    if (disguise == "tuple" and name in TREES) or (disguise == "nothing" and name == "network, states"):
        return "right"  # what is another thing, and allowed
    disguised = (SAME | MAYBE | OTHER)[disguise](question.good.copy())
    try:
        found = bits(question.ask(question.make(disguised)))
    except (TypeError, ValueError) as error:
        if disguise in SAME:
            raise AssertionError(f"{name}: {disguise} was refused: {error}") from error
        if name in ESTIMATORS and any(word in str(error) for word in FOREIGN):
            return "refused"
        # Without any entries, what is wrong is the shape of something.
        return refused_by(error, *("" if disguise == "nothing" else word for word in question.words))
    assert disguise not in OTHER, f"{name}: {disguise} was accepted"
    assert found == answer(name), f"{name}: {disguise}: other numbers"
    return "right"


def written_to(name: str) -> str:
    """The array is written to after it was handed over, and what was asked before is asked again."""
    question, expected = QUESTIONS[name], answer(name)
    own = question.good.copy()
    made = question.make(own)
    if made is own:
        return "right"
    own[...] = 7
    assert bits(question.ask(made)) == expected, f"{name}: an array that was written to afterwards"
    own[...] = 0
    assert bits(question.ask(made)) == expected, f"{name}: an array that was written to between two questions"
    return "right"
