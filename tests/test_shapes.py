"""The shapes in the contracts' annotations hold: methods of implementations are called under those of their base class.

Static checkers do not read shapes. Here every method that a base class annotates is wrapped, in all its subclasses, by
a check of what goes in and what comes out; then problems of several kinds are solved.
"""

import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype import beartype
from jaxtyping import TypeCheckError, jaxtyped

import cavity as cv
from cavity import families, kernels
from cavity.factors import Factor
from cavity.families import Family
from cavity.families.exponential import ExponentialFamily
from cavity.inference.schedule import Schedule
from cavity.inference.update_rule import Projection
from cavity.kernels import Kernel
from cavity.moments.base import Moments
from cavity.posteriors.base import Posterior

CONTRACTS = (ExponentialFamily, Factor, Family, Kernel, Moments, Posterior, Projection, Schedule)
RNG = np.random.default_rng(0)
POINTS = np.array([0.3, 1.8, 2.1, 2.4, -3.0, 0.1, 0.2])
ROWS = RNG.normal(size=(7, 2))
SIGNS = np.where(POINTS > 0.25, 1, -1)


def descendants(base):
    """The class and all classes derived from it."""
    return [base, *(found for own in base.__subclasses__() for found in descendants(own))]


def annotated_methods(base):
    """The methods of a contract that say what they take and return, by name."""
    found = {name: inspect.unwrap(own) for name, own in vars(base).items() if inspect.isfunction(own)}
    return {name: own for name, own in found.items() if "return" in own.__annotations__ and not name.startswith("__")}


def fields_hold(value):
    """Whether named tuples have fields of the shapes they announce, a dimension of one name being of one length."""
    if hasattr(value, "_fields"):
        with jaxtyped("context"):
            for name, hint in type(value).__annotations__.items():
                if hasattr(hint, "dim_str"):
                    assert isinstance(getattr(value, name), hint), (type(value).__name__, name, hint)
    if isinstance(value, tuple):
        for own in value:
            fields_hold(own)


def shapes_alone(signature):
    """The signature with the annotations that speak of shapes; all others are left to the static checker."""

    def shape(hint):
        return hint if "jaxtyping" in str(hint) else Any

    parameters = [own.replace(annotation=shape(own.annotation)) for own in signature.parameters.values()]
    return signature.replace(parameters=parameters, return_annotation=shape(signature.return_annotation))


def as_jax(value):
    """NumPy arrays, which methods take and hand on as well, as those of JAX."""
    if isinstance(value, dict):
        return {name: as_jax(own) for name, own in value.items()}
    return jnp.asarray(value) if isinstance(value, np.ndarray | np.generic) else value


def under_contract(method, contract, note):
    """The method, whose arguments and results must be of the shapes that the contract's annotations say."""
    results = []

    def result_of(*args, **kwargs):
        return results.pop()

    result_of.__qualname__, result_of.__signature__ = contract.__qualname__, shapes_alone(inspect.signature(contract))
    result_of.__annotations__ = {own.name: own.annotation for own in result_of.__signature__.parameters.values()}
    result_of.__annotations__["return"] = result_of.__signature__.return_annotation
    check = jaxtyped(typechecker=beartype)(result_of)

    @functools.wraps(method)
    def called(*args, **kwargs):
        found = method(*args, **kwargs)
        if found is NotImplemented:
            return found
        note()
        fields_hold((*args, found))
        results.append(as_jax(found))
        return check(*map(as_jax, args), **as_jax(kwargs))

    return called


@pytest.fixture
def called(monkeypatch):
    """Checks every contract while a test runs; the methods called so far, as Base.method."""
    seen = set()
    for base in CONTRACTS:
        for name, contract in annotated_methods(base).items():
            note = functools.partial(seen.add, f"{base.__name__}.{name}")
            for cls in descendants(base):
                if inspect.isfunction(vars(cls).get(name)):
                    monkeypatch.setattr(cls, name, under_contract(vars(cls)[name], contract, note))
    jax.clear_caches()  # what other tests have compiled is not traced, and so not checked, again
    with jax.enable_x64(True):  # outside, NumPy arrays are handed back
        yield seen


def expected_calls(*bases):
    """The methods of these contracts that speak of shapes, as Base.method."""
    return {
        f"{base.__name__}.{name}"
        for base in bases
        for name, method in annotated_methods(base).items()
        if "jaxtyping" in str(method.__annotations__)
    }


def members():
    """A distribution of every public family."""
    gaussian, vector, gamma = families.Gaussian(), families.FullGaussian(2), families.Gamma()
    parts = [gaussian.from_mean(0.3, 2.0), vector.from_mean(ROWS[0], np.eye(2)), gamma.from_shape_rate(2.0, 3.0)]
    return [
        (gaussian, parts[0]),
        (families.GaussianWithUniform(), parts[0]),
        (families.SphericalGaussian(2), families.SphericalGaussian(2).from_mean(ROWS[0], 2.0)),
        (families.DiagonalGaussian(2), families.DiagonalGaussian(2).from_mean(ROWS[0], np.ones(2))),
        (vector, parts[1]),
        (families.FullGaussianWithUniform(2), parts[1]),
        (families.Beta(), families.Beta().from_shapes(2.0, 3.0)),
        (gamma, parts[2]),
        (families.GammaWithUniform(), parts[2]),
        (families.Dirichlet(3), families.Dirichlet(3).from_concentration([1.0, 2.0, 3.0])),
        (families.Categorical(4), families.Categorical(4).from_probabilities([0.1, 0.2, 0.3, 0.4])),
        (families.Product((gaussian, vector, gamma)), jnp.concatenate(parts)),
    ]


def test_families_keep_to_the_shapes_of_their_contract(called):
    asked = members()
    assert {type(family).__name__ for family, _ in asked} == set(families.__all__) - {"Family", "Tilted"}
    for family, eta in asked:
        for batch in ((), (5,), (5, 3)):
            jax.eval_shape(functools.partial(ask_everything, family), jnp.zeros((*batch, family.size)))
        jax.eval_shape(functools.partial(project, family), eta)
    assert called == expected_calls(ExponentialFamily, Family)


def ask_everything(family, eta):
    """All questions that take leading axes."""
    for question in (
        *(family.log_partition, family.is_proper, family.is_allowed, family.is_negative, family.entropy),
        *(family.mean, family.covariance, family.coordinates, family.views),
    ):
        question(eta)
    for question in (
        *(family.distance, family.kl, family.product, family.ratio),
        *(family.to_local, family.local_moments, family.expected_exponent),
    ):
        question(eta, eta)
    assert family.uniform().shape == family.flat().shape == (family.size,)
    x = family.sample(jax.random.key(0), eta, (7,))
    family.statistics(x)
    assert family.log_density(eta, x).shape == (7, *eta.shape[:-1])
    family.natural(family.moments(eta))
    family.from_local(eta, jnp.zeros((*eta.shape[:-1], family.local_size)))
    family.power(eta, 0.5)


def project(family, cavity):
    """From a log normaliser to a message."""
    log_z, stats = family.tilted_stats(lambda *found: sum(jnp.sum(0.01 * own) for own in found), cavity)
    site = family.message(cavity, stats)
    fields_hold(families.Tilted(log_z, stats, site))
    if not isinstance(family, families.Categorical):
        family.keep_proper(cavity, stats, site, 0.1)


def test_kernels_keep_to_the_shapes_of_their_contract(called):
    rbf, linear = kernels.RBF([1.0, 2.0]), kernels.Linear(2.0)
    mixed = 2.0 * rbf + kernels.Matern(nu=2.5) * linear + kernels.Polynomial() + kernels.White(0.1)
    for kernel in (mixed, rbf, linear):
        assert kernel(ROWS).shape == (7, 7)
        assert kernel(ROWS, ROWS[:3]).shape == (7, 3)
        kernel.diagonal(ROWS)
        kernel.pullback(ROWS, np.eye(7))
    assert linear.features(jnp.asarray(ROWS), iter(())).shape == (7, 2)
    assert called >= expected_calls(Kernel)


def loop():
    """Three variables in a circle, one of three states."""
    graph = cv.DiscreteGraph([2, 3, 2])
    for scope in ((0, 1), (1, 2), (2, 0)):
        graph.add_factor(scope, RNG.uniform(0.5, 2.0, [graph.cardinalities[k] for k in scope]))
    return graph


def game():
    """Two skills, of which one shows to be greater."""
    graph = cv.FactorGraph()
    skill = graph.gaussian(25.0, 69.0, size=2, name="skill")
    graph.greater(graph.linear(skill[0], skill[1], weights=[1.0, -1.0], variance=17.0))
    return graph.problem()


@pytest.fixture
def problems():
    """Problems of every kind with methods that visit, project and schedule in every way.

    Asked for before `called`, which checks the classes that are imported by then.
    """
    clutter, vectors = cv.models.clutter(POINTS), cv.models.clutter(ROWS)
    mixture = cv.models.mixture_weights(RNG.uniform(size=(7, 3)))
    kernel = 2.0 * kernels.RBF(1.5) + kernels.White(0.1)

    def latent(*args, **kwargs):
        return cv.models.latent_gaussian(*args, X=ROWS, **kwargs).problem()

    return [
        (clutter, cv.EP(schedule=cv.Shuffled())),
        (clutter, cv.ConvergentEP()),
        (clutter, cv.RelaxedEP(c=1.0)),
        (clutter, cv.PowerEP(0.5, schedule=cv.Blocks(2, shuffled=True))),
        (vectors, cv.RestrictedEP(schedule=cv.Order((0, 3, 3, 2)))),
        (mixture, cv.EP(projection=cv.Cowell(), schedule=cv.LargestMismatchFirst())),
        (latent(SIGNS, cv.factors.Probit(), kernel=kernel), cv.EP()),
        (latent(np.arange(7), cv.factors.Poisson(), prior_variance=2.0, moments=cv.Quadrature()), cv.EP()),
        (latent(SIGNS, cv.factors.Probit(), prior_variance=1.0, moments=cv.Importance(draws=500)), cv.EP()),
        (loop().problem(), cv.EP(schedule=cv.OneMessage())),
        (loop().approximate(cv.Tree()).problem(), cv.EP()),
        (game(), cv.EP(schedule=cv.Parallel())),
    ]


def test_problems_keep_to_the_shapes_of_the_contracts(problems, called):
    ours = [cls for cls in descendants(Posterior) if cls.__module__.startswith("cavity.posteriors.")]
    own = {cls for cls in ours if not inspect.isabstract(cls)}
    assert {type(problem.posterior) for problem, _ in problems} == own
    for problem, method in problems:
        solution = cv.infer(problem, method)
        for view in problem.posterior.views(problem.prior, solution.q).values():
            view()
        solution.sample(jax.random.key(0), 3)
    clutter = cv.infer(problems[0][0])
    clutter.check()
    clutter.log_density(0.5)
    assert len(clutter.loo_log_predictive) == 1
    cv.factors.Probit().predict(POINTS, 1.0)
    assert called >= expected_calls(Factor, Moments, Posterior, Projection, Schedule)


def test_a_wrong_shape_is_found():
    """The check is a check: moments without their last number, one row too many, a scalar that is a vector."""

    def wrong(method, change):
        return under_contract(lambda *args: change(method(*args)), inspect.unwrap(method), lambda: None)

    gaussian, eta = families.Gaussian(), jnp.ones((5, 2))
    for method, change in (
        (Family.entropy, lambda found: found[:, None]),
        (Family.product, lambda found: jnp.concatenate([found, found])),
        (Family.to_local, lambda found: found[0]),
    ):
        args = (gaussian, eta, eta)[: len(inspect.signature(method).parameters)]
        wrong(method, lambda found: found)(*args)
        with pytest.raises(TypeCheckError, match=method.__name__):
            wrong(method, change)(*args)
    with pytest.raises(AssertionError, match="Tilted"):
        fields_hold(families.Tilted(jnp.ones(4), eta, eta))
