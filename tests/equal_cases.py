"""Trials of whether equal means equal: rows that are merged, labels that are looked up, graphs that grow, variables of
another graph, matrices that are nearly symmetric, arguments in disguise. Each is compared with an oracle of its own.

A trial of `TRIALS` takes a generator and returns *right* or *refused*; an assertion fails where it went wrong.
`tests/test_equal.py` makes tens of them, `benchmarks/fuzz_equal.py` thousands.
"""

import copy
import functools
import itertools
from collections.abc import Callable
from typing import Any

import equal_inputs
import numpy as np
from equal_inputs import ESTIMATORS, MAYBE, OTHER, QUESTIONS, SAME, refused_by
from rank_one_ep import probit, rank_one_ep
from right_or_refused import assert_refused
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import kernels as sk

import cavity as cv

# ---------------------------------------------------------------- arguments


def try_disguise(rng: np.random.Generator) -> str:
    """One argument of one call, written in another way or replaced by what only looks like it."""
    name = str(rng.choice(list(QUESTIONS)))
    return equal_inputs.outcome(name, str(rng.choice([*SAME, *MAYBE, *OTHER])))


def try_written(rng: np.random.Generator) -> str:
    """One array that is written to after it was handed over."""
    return equal_inputs.written_to(str(rng.choice([name for name in QUESTIONS if name not in ESTIMATORS])))


# ---------------------------------------------------------------- rows

#: names of kernels, with their covariances of rows and points, and whether rows are the same rows
FORMS = {
    "smooth": lambda v, X, Z, same: v[0] * np.exp(-0.5 * squared(X, Z)),
    "smooth + white": lambda v, X, Z, same: v[0] * np.exp(-0.5 * squared(X, Z)) + v[1] * same,
    "linear × white": lambda v, X, Z, same: v[0] * np.exp(-0.5 * squared(X, Z)) + X @ Z.T * v[1] * same,
    "white": lambda v, X, Z, same: v[1] * same + 0.0 * squared(X, Z),
    "white × 0 + linear": lambda v, X, Z, same: v[0] * X @ Z.T + 1e-6 * v[1] * same,
}


def squared(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    return ((X[:, None] - Z[None]) ** 2).sum(axis=-1)


def kernel_of(form: str, v: np.ndarray, foreign: bool) -> Any:
    """The kernel of this name, of the library or of scikit-learn."""
    smooth = v[0] * (sk.RBF(1.0) if foreign else cv.kernels.RBF(1.0))
    linear = sk.DotProduct(0.0, "fixed") if foreign else cv.kernels.Linear(1.0)
    white = sk.WhiteKernel(v[1]) if foreign else cv.kernels.White(v[1])
    tiny = sk.WhiteKernel(1e-6 * v[1]) if foreign else cv.kernels.White(1e-6 * v[1])
    found = {
        "smooth": smooth,
        "smooth + white": smooth + white,
        "linear × white": smooth + linear * white,
        "white": white,
        "white × 0 + linear": v[0] * linear + tiny,
    }[form]
    return found if foreign else found.fix()


def draw_rows(rng: np.random.Generator, n: int = 10) -> np.ndarray:
    """Rows of which several are equal, and one is 0."""
    places = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, -0.5], [1.5, 1.0]])
    return places[rng.integers(0, len(places), n)] * np.where(rng.random((n, 1)) < 0.1, -1.0, 1.0)


def try_regression(rng: np.random.Generator) -> str:
    """Equal rows with weights, under kernels in some of which each has noise of its own, by the closed form."""
    form, v, noise = str(rng.choice(list(FORMS))), rng.uniform(0.2, 2.0, 2), float(rng.uniform(0.2, 1.0))
    X, new, y = draw_rows(rng), draw_rows(rng, 4), rng.integers(-1, 2, 10).astype(float)
    weights = np.ones(10) if rng.random() < 0.5 else rng.integers(1, 4, 10).astype(float)
    model = cv.GPRegressor(kernel_of(form, v, rng.random() < 0.5), noise=noise, normalize_y=False, optimize=False)
    model.fit(X, y, weights)
    prior = FORMS[form](v, X, X, np.eye(10))
    seen = prior + np.diag(noise**2 / weights)
    # N(y; f, s²)^w is N(y; f, s²/w) but for a constant.
    extra = 0.5 * np.log(2 * np.pi * noise**2 / weights) - 0.5 * weights * np.log(2 * np.pi * noise**2)
    evidence = multivariate_normal.logpdf(y, np.zeros(10), seen) + extra.sum()
    assert abs(model.log_evidence_ - evidence) < 1e-6 * (1 + abs(evidence)), (form, model.log_evidence_, evidence)
    mean = FORMS[form](v, new, X, np.zeros((4, 10))) @ np.linalg.solve(seen, y)
    np.testing.assert_allclose(model.predict(new), mean, atol=1e-6)
    order = rng.permutation(10)
    again = model.fit(X[order], y[order], weights[order]).log_evidence_
    assert again == model.log_evidence_, "another order of the rows"
    return "right"


def try_classification(rng: np.random.Generator) -> str:
    """The same with labels, by rank-one EP on every row for itself."""
    form, v = str(rng.choice(["smooth", "smooth + white", "linear × white"])), rng.uniform(0.2, 2.0, 2)
    X = draw_rows(rng)
    y = np.where(np.arange(10) < 2, [1.0, -1.0] * 5, rng.choice([-1.0, 1.0], 10))
    model = cv.GPClassifier(kernel_of(form, v, False), likelihood="probit", label_noise=0.1, optimize=False).fit(X, y)
    right = rank_one_ep(FORMS[form](v, X, X, np.eye(10)) + 1e-12 * np.eye(10), probit(y, 0.1))
    assert right.converged and abs(model.log_evidence_ - right.log_evidence) < 1e-5, (form, model.log_evidence_)
    return "right"


def try_weights(rng: np.random.Generator) -> str:
    """A weight of two is the row written twice, for models that hold weights or a basis."""
    X, weights = draw_rows(rng) + 0.25, rng.integers(1, 4, 10)
    y = np.where(np.arange(10) < 2, [1.0, -1.0] * 5, rng.choice([-1.0, 1.0], 10))
    inducing = {"approximation": "inducing", "rank": 3, "optimize": False, "random_state": 0}
    makes: list[Callable[[], Any]] = [
        lambda: cv.BayesPointMachine(likelihood="probit"),
        lambda: cv.BayesPointMachine(likelihood="logistic", degree=2),
        lambda: cv.GPClassifier(cv.kernels.RBF(1.0), likelihood="probit", **inducing),
    ]
    make, twice = makes[int(rng.integers(len(makes)))], np.repeat(np.arange(10), weights)
    one, other = make().fit(X, y, weights), make().fit(X[twice], y[twice])
    assert abs(one.log_evidence_ - other.log_evidence_) < 1e-8, (one, one.log_evidence_, other.log_evidence_)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-8)
    return "right"


# ---------------------------------------------------------------- labels

LABELS: list[list[Any]] = [
    [False, True], [0, 1], [-1, 1], [0.5, 0.75], [1.0, 2.0], ["no", "yes"], ["", " "], ["0", "1"], [b"a", b"b"],
    [-(2**62), 2**62], [0, 255], [1e-300, 2e-300], ["ä", "ö"], [0, 1, 2], [0.1, 0.2, 0.30000000000000004],
    ["Yes", "no", "yes"], [2**53, 2**53 + 1, 2**53 + 2],
]  # fmt: skip


@functools.cache
def probabilities(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes of labels, and the probabilities of a machine that is fitted to them."""
    codes = np.arange(12) % classes
    X = label_rows(codes)
    return codes, cv.BayesPointMachine(likelihood="probit").fit(X, codes).predict_proba(X)


def label_rows(codes: np.ndarray) -> np.ndarray:
    return np.column_stack([codes - 0.75, np.linspace(-1.0, 1.0, len(codes))])


def try_labels(rng: np.random.Generator) -> str:
    """Labels of odd types are themselves: kept in `classes_`, never cast, found again in later rows."""
    labels = LABELS[rng.integers(len(LABELS))]
    codes, expected = probabilities(len(labels))
    dtypes = [None, object] + [kind for kind in ("i1", "u1", "f4", ">i8", ">f8") if holds(labels, kind)]
    dtype = dtypes[rng.integers(len(dtypes))]
    y = np.array(labels, dtype)[codes]
    X, machine = label_rows(codes), cv.BayesPointMachine(likelihood="probit")
    half = len(y) // 2
    try:
        if rng.random() < 0.5:
            machine.fit(X, y.tolist() if dtype is None and rng.random() < 0.3 else y)
            np.testing.assert_array_equal(machine.predict_proba(X), expected)
        else:
            machine.partial_fit(X[:half], y[:half], classes=np.array(labels, dtype))
    except (TypeError, ValueError) as error:
        # Scikit-learn takes fractions for measurements, and no bytes among objects.
        return refused_by(error, "Unknown label type", "represented as bytes")
    found = machine.classes_.tolist()
    assert found == labels and list(map(type, found)) == list(map(type, np.array(labels, dtype).tolist())), found
    assert set(machine.predict(X).tolist()) <= set(labels)
    others = [value for other in LABELS for value in other if not any(value == own for own in labels)]
    strange = others[rng.integers(len(others))]
    before = machine.predict_proba(X)
    later = np.array([*labels, strange], object)[[0, 1, -1]]
    if type(strange) is type(labels[0]):
        later = np.array(later.tolist())
    assert_refused(lambda: machine.partial_fit(X[half : half + 3], later), "class")
    np.testing.assert_array_equal(machine.predict_proba(X), before)
    return "right"


def holds(labels: list[Any], kind: str) -> bool:
    """Whether numbers of this type are these labels."""
    try:
        return not isinstance(labels[0], bool) and np.array(labels).astype(kind).tolist() == labels
    except (ValueError, OverflowError):
        return False


# ---------------------------------------------------------------- graphs that grow


def enumerated(states: list[int], tables: list[Any], evidence: dict[int, int]) -> tuple[float, list[np.ndarray]]:
    """log Z and marginals of tables (scope, weights) by summing over all states."""
    total, found = 0.0, [np.zeros(count) for count in states]
    for own in itertools.product(*map(range, states)):
        if all(own[variable] == state for variable, state in evidence.items()):
            weight = np.prod([values[tuple(own[variable] for variable in scope)] for scope, values in tables])
            total += weight
            for variable, state in enumerate(own):
                found[variable][state] += weight
    return float(np.log(total)), [own / total for own in found]


def try_network(rng: np.random.Generator) -> str:
    """A network is changed and asked in turn, a copy of it and older answers with it."""
    graph, states, tables, evidence, older = cv.DiscreteGraph([2, 2]), [2, 2], [], {}, []
    for _ in range(8):
        kind = int(rng.integers(0, 5))
        if kind == 0 and len(states) < 5:
            states.append(int(rng.integers(1, 4)))
            graph.add_variable(states[-1], f"n{len(states)}" if rng.random() < 0.5 else None)
        elif kind in (1, 2):
            scope = rng.choice(len(states), int(rng.integers(1, 3)), replace=False).tolist()
            weights = rng.uniform(0.2, 2.0, [states[variable] for variable in scope])
            graph.add_factor([graph.variables.name(variable) for variable in scope], weights)
            tables.append((scope, weights.copy()))
            weights[...] = 0.0  # the graph has its own
        elif kind == 3:
            evidence = {v: int(rng.integers(states[v])) for v in range(len(states)) if rng.random() < 0.3}
            graph = graph.given(evidence)
        elif kind == 4:
            other = copy.copy(graph) if rng.random() < 0.5 else copy.deepcopy(graph)
            other.add_variable(3)
            other.add_factor([0], [0.0, 1.0])
        answer, (log_z, marginals) = cv.exact(graph), enumerated(states, tables, evidence)
        older.append((answer, log_z, marginals))
        for given, right, own in older:
            assert abs(given.log_evidence - right) < 1e-10, (given.log_evidence, right)
            for one, two in zip(given.marginals, own, strict=True):
                np.testing.assert_allclose(one, two, atol=1e-12)
    if rng.random() < 0.2 and tables:
        try:
            found = cv.infer(graph.approximate(cv.Clusters([range(len(states))])), cv.EP())
        except ValueError as error:
            return refused_by(error, "cluster", "Cluster")
        assert abs(found.log_evidence - log_z) < 1e-8, (found.log_evidence, log_z)
    return "right"


def try_factor_graph(rng: np.random.Generator) -> str:
    """A tree of Gaussian variables grows between two runs; the joint Gaussian has the right answer."""
    graph, means, rows, handles = cv.FactorGraph(), [], [], []

    def observe(place: int) -> None:
        y, variance = rng.normal(), float(rng.uniform(0.5, 2.0))
        graph.linear(handles[place], variance=variance, out=y)
        rows.append((place, y, variance))

    covariance = np.zeros((0, 0))
    for step in range(2):
        for _ in range(2):
            if handles and rng.random() < 0.6:
                parent, slope, variance = int(rng.integers(len(handles))), rng.uniform(0.5, 1.5), rng.uniform(0.5, 2.0)
                handles.append(graph.linear(handles[parent], weights=[slope], variance=variance))
                column = slope * covariance[:, parent]
                corner = slope**2 * covariance[parent, parent] + variance
                means.append(slope * means[parent])
            else:
                means.append(rng.normal())
                corner, column = float(rng.uniform(0.5, 2.0)), np.zeros(len(handles))
                handles.append(graph.gaussian(means[-1], corner))
            covariance = np.block([[covariance, column[:, None]], [column[None], np.array([[corner]])]])
            observe(int(rng.integers(len(handles))))
        found = cv.infer(graph, cv.EP())
        places, y, noise = (np.array(own) for own in zip(*rows, strict=True))
        seen = covariance[np.ix_(places, places)] + np.diag(noise)
        gap = y - np.array(means)[places]
        gain = np.linalg.solve(seen, covariance[places]).T
        mean, variance = np.array(means) + gain @ gap, np.diag(covariance - gain @ covariance[places])
        assert found.status == "converged", (step, found.status)
        assert abs(found.log_evidence - multivariate_normal.logpdf(gap, np.zeros(len(gap)), seen)) < 1e-8
        np.testing.assert_allclose([found.marginals[own].mean for own in handles], mean, atol=1e-8)
        np.testing.assert_allclose([found.marginals[own].variance for own in handles], variance, rtol=1e-7)
    return "right"


# ---------------------------------------------------------------- foreign variables, matrices


def kinds_of_variables(graph: Any) -> dict[str, Any]:
    return {
        "x": graph.gaussian([0.0, 1.0], 1.0, name="x"),
        "v": graph.vector([0.0, 1.0], np.eye(2), name="v"),
        "p": graph.beta(1.0, 2.0, name="p"),
        "w": graph.dirichlet([1.0, 2.0], name="w"),
        "r": graph.gamma(1.0, 2.0, name="r"),
        "s": graph.categorical([0.5, 0.5], name="s"),
    }


RELATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "linear": lambda g, own, f: g.linear(own["x"], f["x"], variance=1.0),
    "linear, out": lambda g, own, f: g.linear(own["x"], variance=1.0, out=f["x"]),
    "inner": lambda g, own, f: g.inner(f["v"], [1.0, 2.0]),
    "inner, out": lambda g, own, f: g.inner(own["v"], [1.0, 2.0], out=f["x"][0]),
    "product": lambda g, own, f: g.product(np.eye(2), f["v"], covariance=np.eye(2)),
    "product, out": lambda g, own, f: g.product(np.eye(2), own["v"], covariance=np.eye(2), out=f["v"]),
    "within": lambda g, own, f: g.within(f["x"], 0.0),
    "greater": lambda g, own, f: g.greater(f["x"], 0.0),
    "equal": lambda g, own, f: g.equal(own["x"], f["x"]),
    "normal": lambda g, own, f: g.normal(0.0, f["r"], out=1.0),
    "normal, mean": lambda g, own, f: g.normal(f["x"], own["r"], out=1.0),
    "normal, out": lambda g, own, f: g.normal(0.0, own["r"], out=f["x"]),
    "logistic": lambda g, own, f: g.logistic(f["x"]),
    "bernoulli": lambda g, own, f: g.bernoulli(f["p"], out=1),
    "bernoulli, out": lambda g, own, f: g.bernoulli(own["p"], out=f["s"]),
    "choice": lambda g, own, f: g.choice(f["w"], out=1),
    "choice, out": lambda g, own, f: g.choice(own["w"], out=f["s"]),
    "gamma_from": lambda g, own, f: g.gamma_from(1.0, f["r"], out=1.0),
    "add": lambda g, own, f: g.add(cv.factors.Probit(), f["x"][0], data=1.0),
}


def try_foreign(rng: np.random.Generator) -> str:
    """A variable of another graph, or of a copy after it was taken, is refused, though it bears the same name."""
    graph, other = cv.FactorGraph(), cv.FactorGraph()
    own, foreign = kinds_of_variables(graph), kinds_of_variables(other)
    if rng.random() < 0.3:
        copied = copy.deepcopy(graph)
        late, name = copied.gaussian([0.0, 1.0], 1.0, name="late"), str(rng.choice(["linear", "within", "logistic"]))
        graph.gaussian([0.0, 1.0], 1.0, name="late")
        foreign = own | {"x": late}
    else:
        name = str(rng.choice(list(RELATIONS)))
    before = repr(graph).split(" variables")[1]
    assert_refused(lambda: RELATIONS[name](graph, own, foreign), "another graph")
    assert repr(graph).split(" variables")[1] == before, f"{name}: a factor was left in the graph"
    return "refused"


MATRICES = ("vector, covariance", "product, covariance", "posterior, covariance", "latents, kernel matrix",
            "latents, prior")  # fmt: skip
#: what passes for rounding must be taken, what is more must not, relative to the standard deviations
ROUNDING, MORE = 1e-14, 1e-9


def try_matrix(rng: np.random.Generator) -> str:
    """One entry of a covariance differs from its mirror image, or the matrix is not positive."""
    name = str(rng.choice(MATRICES))
    question = QUESTIONS[name]
    matrix, size = question.good.copy(), len(question.good)
    one, other = rng.choice(size, 2, replace=False)
    if rng.random() < 0.2:
        matrix[one, one] = -matrix[one, one]
        assert_refused(lambda: question.ask(question.make(matrix)), question.words[0])
        return "refused"
    gap = 10.0 ** rng.uniform(-17.0, 1.0)
    matrix[one, other] += gap * np.sqrt(matrix[one, one] * matrix[other, other])
    try:
        found = question.ask(question.make(matrix))
    except ValueError as error:
        return refused_by(error, question.words[0] if gap > ROUNDING else f"a gap of {gap:.1e} is rounding")
    assert gap < MORE, f"{name}: taken with a gap of {gap:.1e}"
    for mine, right in zip(found, question.ask(question.make(question.good)), strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-7, atol=1e-7)
    return "right"


TRIALS: dict[str, Callable[[np.random.Generator], str]] = {
    "arguments in disguise": try_disguise,
    "arrays written to later": try_written,
    "equal rows, regression": try_regression,
    "equal rows, classification": try_classification,
    "weights and repeated rows": try_weights,
    "labels of odd types": try_labels,
    "networks that grow": try_network,
    "graphs that grow": try_factor_graph,
    "variables of another graph": try_foreign,
    "matrices nearly symmetric": try_matrix,
}
