"""One of everything that a user may fit, infer or learn, with a question whose answers are compared bit by bit.

`KINDS` has for every name how it is made and what it is asked; `jax_arrays` finds arrays of JAX that an object holds.
"""

import functools
import operator
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import cavity as cv
from cavity import distributed
from cavity.distributed.gaussian import pack_naturals
from cavity.models.streaming import stream_linear_models, stream_sparse_gps

RNG = np.random.default_rng(5)
ROWS, NEW = RNG.normal(size=(30, 2)), RNG.normal(size=(5, 2))
VALUES = np.sin(2 * ROWS[:, 0]) + 0.1 * RNG.normal(size=30)
LABELS = np.where(ROWS[:, 0] > ROWS[:, 1], 1.0, -1.0)
BINARY, GRADES = ROWS[:, 0] - ROWS[:, 1] > 0, np.digitize(ROWS[:, 0], [-0.4, 0.4])
FIXED = {"kernel": cv.kernels.RBF(1.0), "optimize": False}


class Kind(NamedTuple):
    """make: a fitted object, which nobody has asked yet. ask: its answers, numbers and arrays of numbers."""

    make: Callable[[], Any]
    ask: Callable[[Any], Any]


def process(**changes):
    return cv.GPRegressor(**FIXED, noise=0.1, **changes).fit(ROWS, VALUES)


def machine():
    return cv.BayesPointMachine().fit(ROWS[:20], GRADES[:20]).partial_fit(ROWS[20:], GRADES[20:])


def streamed():
    (model,), _ = stream_linear_models((ROWS, LABELS), factor=cv.factors.Probit(), method=cv.EP())
    return model


def streamed_process():
    basis = cv.kernels.InducingInputs(ROWS[:5])
    (model,), _ = stream_sparse_gps(
        (ROWS, LABELS), kernel=cv.kernels.RBF(1.0), basis=basis, factor=cv.factors.Probit(), method=cv.EP()
    )
    return model


def on_shards():
    """As three shards have left it."""
    shift, precision = np.array([0.5, -1.0]), np.array([[2.0, 0.5], [0.5, 1.0]])
    return distributed.Fit(
        status=cv.Status.CONVERGED, log_evidence=-7.5, mismatch=1e-9, residuals=np.array([0.5, 1e-9]), seconds=1.5,
        prior=pack_naturals(np.zeros(2), np.eye(2) / 2.0),
        contributions=np.stack([pack_naturals(scale * shift, scale * precision) for scale in (1.0, 0.5, 2.0)]),
        shortened=1, factor=cv.factors.Probit(0.1), prior_variance=np.array([2.0]), rows=np.array([4, 3, 5]),
        balance=1e-13,
    )  # fmt: skip


def clutter(method=None):
    return cv.infer(cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0]), method)


def latent_model(**prior):
    return cv.models.latent_gaussian(np.where(BINARY, 1.0, -1.0), cv.factors.Probit(), **prior)


def abilities():
    graph = cv.FactorGraph()
    skill = graph.gaussian([0.0, 1.0, -1.0], 2.0, name="skill")
    graph.greater(graph.linear(skill[0], skill[1], weights=(1.0, -1.0), variance=1.0), 0.0)
    graph.greater(graph.linear(skill[1], skill[2], weights=(1.0, -1.0), variance=1.0), 0.0)
    return graph


def network():
    graph = cv.DiscreteGraph([2, 2, 3])
    for scope, shape in (([0, 1], (2, 2)), ([1, 2], (2, 3)), ([0, 2], (2, 3))):
        graph.add_factor(scope, 1.0 + np.arange(np.prod(shape)).reshape(shape) % 4)
    return graph


def walk(rng, x):
    """A program whose messages are learned."""
    return x + rng.normal(size=x.shape)


def logistic():
    """A learned factor, used once."""
    factor = cv.learned.just_in_time(cv.factors.Logistic(), oracle=cv.Quadrature())
    learned_solution(factor)
    return factor


def learned_solution(factor, shift=0.5):
    y = np.array([1.0, -1.0, 1.0])
    return cv.infer(cv.models.latent_gaussian(y, factor, kernel_matrix=np.eye(3) + shift), cv.EP())


def walked(factor):
    graph = cv.FactorGraph()
    graph.add(factor, graph.gaussian(0.0, 1.0), graph.gaussian(1.0, 1.0))
    return cv.infer(graph, cv.EP(max_sweeps=3))


def simulated():
    factor = cv.learned.just_in_time(walk, inputs=1, outputs=1, draws=512, tol_kl=0.1)
    walked(factor)
    return factor


def of_run(solution):
    return [solution.log_evidence, solution.mismatch, *solution.sites, *jax.tree.leaves(solution.q)]


def of_latents(solution):
    return of_run(solution) + list(solution.predict(NEW).values()) + list(solution.loo_log_predictive)


def of_graph(solution):
    found = [
        own for name in solution.marginals for own in (solution.marginals[name].mean, solution.marginals[name].variance)
    ]
    return of_run(solution) + found


def of_network(solution):
    return [*of_run(solution), *solution.marginals, solution.pair(0, 1)]


def of_learner(factor):
    """A further problem, which asks the oracle again, and what the operator has then seen."""
    report = factor.report()
    asked = walked(factor) if factor.factor.has_density(None) is False else learned_solution(factor, 0.2)
    return [report.queries, report.labels, *of_run(asked), factor.report().queries]


DESCRIBED = operator.methodcaller("predict_proba", NEW)
KINDS = {
    "GPRegressor": Kind(process, lambda m: [*m.predict(NEW, return_std=True), m.sample_posterior(NEW, 2, 3)]),
    "inducing": Kind(
        functools.partial(process, approximation="inducing", rank=6), lambda m: m.predict(NEW, return_std=True)
    ),
    "features": Kind(
        functools.partial(process, approximation="features", rank=9), lambda m: m.predict(NEW, return_std=True)
    ),
    "GPClassifier": Kind(lambda: cv.GPClassifier(**FIXED).fit(ROWS, BINARY), DESCRIBED),
    "one against the rest": Kind(lambda: cv.GPClassifier(**FIXED).fit(ROWS, GRADES), DESCRIBED),
    "GPOrdinal": Kind(lambda: cv.GPOrdinal(**FIXED).fit(ROWS, GRADES), DESCRIBED),
    "BayesPointMachine": Kind(machine, DESCRIBED),
    "stream": Kind(lambda: cv.BayesPointMachine().fit_stream((ROWS, BINARY), classes=[False, True]), DESCRIBED),
    "streamed model": Kind(streamed, lambda m: [m.mean, m.covariance, *m.predict(NEW).values()]),
    "streamed process": Kind(streamed_process, lambda m: [m.weight_mean, m.log_evidence, *m.predict(NEW).values()]),
    "fit on shards": Kind(on_shards, lambda fit: [fit.mean, fit.covariance, *fit.model().predict(NEW).values()]),
    "clutter": Kind(clutter, of_run),
    "truncation": Kind(lambda: cv.infer(cv.models.truncation(0.0, 1.0, -0.5, 2.0)), of_run),
    "mixture weights": Kind(lambda: cv.infer(cv.models.mixture_weights([[0.9, 0.1], [0.2, 0.7]])), of_run),
    "any posterior": Kind(
        lambda: cv.infer(cv.models.posterior(cv.factors.Poisson(), [2, 3, 4], prior_variance=4.0)), of_run
    ),
    "relaxed": Kind(lambda: clutter(cv.RelaxedEP(0.1)), of_run),
    "double loop": Kind(lambda: clutter(cv.ConvergentEP()), of_run),
    "kernel form": Kind(lambda: cv.infer(latent_model(X=ROWS, kernel=cv.kernels.RBF(1.0))), of_latents),
    "weight form": Kind(lambda: cv.infer(latent_model(X=ROWS)), of_latents),
    "basis form": Kind(
        lambda: cv.infer(latent_model(X=ROWS, kernel=cv.kernels.RBF(1.0), basis=cv.kernels.InducingInputs(ROWS[:6]))),
        of_latents,
    ),
    "latent model": Kind(lambda: latent_model(X=ROWS), lambda model: of_latents(cv.infer(model))),
    "FactorGraph": Kind(abilities, lambda graph: of_graph(cv.infer(graph))),
    "graph solution": Kind(lambda: cv.infer(abilities()), of_graph),
    "marginal": Kind(lambda: cv.infer(abilities()).marginals["skill"], lambda own: [own.mean, own.variance]),
    "DiscreteGraph": Kind(network, lambda graph: [*cv.exact(graph).marginals, *of_network(cv.infer(graph, cv.EP()))]),
    "belief propagation": Kind(lambda: cv.infer(network(), cv.EP()), of_network),
    "tree": Kind(lambda: cv.infer(network().approximate("tree"), cv.EP()), of_network),
    "clusters": Kind(lambda: cv.infer(network().approximate(cv.Clusters([[0, 1]])), cv.EP()), of_network),
    "exact": Kind(lambda: cv.exact(network()), lambda found: [found.log_evidence, *found.marginals]),
    "filtered": Kind(
        lambda: network().filter([[0], [1, 2]]), lambda found: jax.tree.leaves([found.log_evidence, found.marginals])
    ),
    "most probable": Kind(lambda: cv.max_product(network()), lambda found: [found.states, *found.max_marginals]),
    "learned factor": Kind(logistic, of_learner),
    "learned solution": Kind(lambda: learned_solution(logistic()), of_run),
    "learned program": Kind(simulated, of_learner),
    "sampled program": Kind(lambda: walked(cv.learned.every_time(walk, inputs=1, outputs=1, draws=512)), of_graph),
    "check": Kind(lambda: clutter().check(200), lambda check: [check.log_evidence]),
}


def bits(answers):
    """The answers as bytes, with their dtypes and shapes."""
    leaves = [np.asarray(own) for own in jax.tree.leaves(answers)]
    assert leaves
    return [(own.dtype.str, own.shape, own.tobytes()) for own in leaves]


def asked(name, instance):
    """What the object of this name answers, as bytes, where no scope of double precision is open."""
    with jax.enable_x64(False):
        return bits(KINDS[name].ask(instance))


def jax_arrays(instance, path=""):
    """Where an object, or anything that it holds, holds an array of JAX."""
    return list(search(instance, path, {}))


def search(own, path, seen):
    if id(own) in seen or isinstance(own, str | bytes | int | float | type | types.ModuleType | None):
        return
    seen[id(own)] = own
    if isinstance(own, jax.Array):
        yield f"{path}: {own.dtype}{own.shape}"
        return
    parts = []
    if isinstance(own, dict):
        parts += [(f"[{key!r}]", value) for key, value in own.items()] + [(" key", key) for key in own]
    elif isinstance(own, list | tuple | set | frozenset) or (isinstance(own, np.ndarray) and own.dtype == object):
        parts += [(f"[{number}]", value) for number, value in enumerate(list(own))]
    elif isinstance(own, functools.partial):
        parts += [(" partial", (own.func, own.args, own.keywords))]
    elif isinstance(own, types.MethodType):
        parts += [(" self", own.__self__)]
    elif isinstance(own, types.FunctionType):
        parts += [(" closure", cell.cell_contents) for cell in own.__closure__ or ()]
    else:
        slots = [name for kind in type(own).__mro__ for name in np.atleast_1d(getattr(kind, "__slots__", ())).tolist()]
        parts += [
            (f".{name}", getattr(own, name)) for name in slots if hasattr(own, name) and not name.startswith("__")
        ]
    parts += [(f".{name}", value) for name, value in getattr(own, "__dict__", {}).items()]
    for name, value in parts:
        yield from search(value, path + name, seen)
