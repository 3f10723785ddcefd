"""Maximising the log evidence over hyperparameters: what is moved, as one vector, and the search for its best values.

L-BFGS-B, warm-started sites, refusals, restarts. Gradients of the log evidence are taken with the sites held fixed: at
a fixed point the evidence is stationary in them, so only the explicit dependence counts (numerics 4.2). For a parameter
φ of the likelihood

    ∂ log Z / ∂φ  =  Σᵢ multiplicityᵢ ∂ log Zᵢ(cavityᵢ; φ) / ∂φ,

where under Power EP log Zᵢ is that of the factor's power with the powered cavity, divided by the power. Away from a
fixed point they are not the gradient of anything: such a point is refused, and the optimiser is shown a bowl around the
last good one, so it steps back towards it.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from cavity._core.tiers import tiered_jit
from cavity.factors.base import Factor
from cavity.factors.wrappers import SiteWrapper
from cavity.inference.infer import infer
from cavity.inference.methods import Auto, Method
from cavity.inference.problem import Problem
from cavity.inference.solution import Solution
from cavity.inference.status import Status
from cavity.models._latent_gaussian.time_limit import NO_LIMIT, TimeLimit

#: bounds of positive parameters, searched by their logarithm
BOUNDS = {"label_noise": (1e-4, 0.45), "variance": (1e-8, 1e8), "scale": (1e-5, 1e5), "df": (1.0, 100.0)}
#: thresholds are searched by the first one and the logarithms of the gaps
FIRST, GAPS = (-100.0, 100.0), (np.log(1e-4), np.log(1e3))
#: the search stops when the log evidence rises by less than this share of itself, or the gradient is this small
RELATIVE, GRADIENT = 1e-7, 1e-3
#: the tolerance of the runs of the search; the last one is made with the method's own
SEARCH_TOL = 1e-6
#: points tried around a start that is refused
NEARBY = 8
#: curvature of the bowl shown for a refused point, in nats per squared unit of log parameters
BOWL = 1e3

#: a function like `map`
Mapped = Callable[[Callable[[np.ndarray], Any], list[np.ndarray]], Iterable[Any]]


@dataclasses.dataclass(frozen=True)
class SearchSpace:
    """The vector of a search is (theta, free parameters of the likelihood, others).

    Attributes:
        theta: logarithms of the prior's parameters, where the search starts.
        theta_bounds: a row (low, high) for each of them.
        factor: the likelihood, with the parameters the search starts from.
        free: names of the likelihood's parameters that the search moves.
        deviations: standard deviations of a normal prior on theta around its start; None or infinite: flat.
        others: further numbers, all in [0, 1], with a flat prior.
    """

    theta: np.ndarray
    theta_bounds: np.ndarray
    factor: Factor
    free: tuple[str, ...]
    deviations: Any = None
    others: np.ndarray = dataclasses.field(default_factory=partial(np.zeros, 0))

    @property
    def start(self) -> np.ndarray:
        """The vector of where the search starts."""
        parts = [self.theta]
        for name in self.free:
            value = np.atleast_1d(np.asarray(getattr(inner(self.factor), name), float))
            if name == "thresholds":
                parts += [value[:1], np.log(np.diff(value))]
            else:
                parts.append(np.log(np.clip(value, *BOUNDS[name])))
        return np.concatenate([*parts, self.others])

    @property
    def limits(self) -> np.ndarray:
        """A row (low, high) for each number of the vector."""
        rows = list(self.theta_bounds)
        for name in self.free:
            if name == "thresholds":
                rows += [FIRST] + [GAPS] * (np.size(getattr(inner(self.factor), name)) - 1)
            else:
                rows.append(np.log(BOUNDS[name]))
        return np.asarray(rows + [(0.0, 1.0)] * self.others.size, float).reshape(-1, 2)

    def split(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(theta, the likelihood's, the others) of a vector."""
        theta, likelihood, others = np.split(vector, [self.theta.size, vector.size - self.others.size])
        return theta, likelihood, others

    def parameters(self, vector: np.ndarray) -> tuple[np.ndarray, Factor, np.ndarray]:
        """(theta, the likelihood, its parameters plain numbers, the others) at a vector."""
        theta, likelihood, others = self.split(vector)
        found = unpack_likelihood(self.factor, self.free, likelihood) if self.free else self.factor
        return theta, as_numbers(found), others

    def log_prior(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Log density of a vector up to a constant, and its gradient: 1 − 2ε for label noise ε, else normal or flat.

        Few data explain any labels as noise, ε near ½; the prior says that most labels are right.
        """
        theta, likelihood, others = self.split(vector)
        wide = np.full(theta.size, np.inf) if self.deviations is None else np.asarray(self.deviations, float)
        away = (theta - self.theta) / wide
        value, gradient, start = -0.5 * float(away @ away), np.zeros(likelihood.size), 0
        for name in self.free:
            if name == "label_noise":
                noise = float(np.exp(likelihood[start]))
                value += float(np.log1p(-2.0 * noise))
                gradient[start] = -2.0 * noise / (1.0 - 2.0 * noise)
            start += np.size(getattr(inner(self.factor), name))
        return value, np.concatenate([-away / wide, gradient, np.zeros(others.size)])


def check_free(factor: Factor, free: tuple[str, ...]) -> None:
    """Refuse names the likelihood does not have or the search does not know."""
    for name in free:
        if not hasattr(inner(factor), name) or name not in (*BOUNDS, "thresholds"):
            raise ValueError(f"{type(inner(factor)).__name__} has no parameter {name!r} that can be learned.")


def inner(factor: Factor) -> Any:
    """The likelihood itself, without the weights of samples and the residuals of a basis around it."""
    return inner(factor.factor) if isinstance(factor, SiteWrapper) else factor


def with_inner(factor: Factor, likelihood: Factor) -> Factor:
    """The factor with another likelihood inside."""
    if not isinstance(factor, SiteWrapper):
        return likelihood
    return dataclasses.replace(factor, factor=with_inner(factor.factor, likelihood))  # type: ignore[type-var]


def as_numbers(factor: Factor) -> Factor:
    """The factor with its parameters as plain numbers, or arrays where they are vectors."""
    return jax.tree.map(lambda leaf: float(leaf) if np.ndim(leaf) == 0 else np.asarray(leaf, float), factor)


def unpack_likelihood(factor: Factor, free: tuple[str, ...], vector: Any) -> Factor:
    """The factor with its free parameters read from a vector, which may be traced."""
    changes, start = {}, 0
    for name in free:
        if name == "thresholds":
            size = np.size(getattr(inner(factor), name))
            gaps = jnp.concatenate([jnp.zeros(1), jnp.cumsum(jnp.exp(vector[start + 1 : start + size]))])
            changes[name], start = vector[start] + gaps, start + size
        else:
            changes[name], start = jnp.exp(vector[start]), start + 1
    return with_inner(factor, dataclasses.replace(inner(factor), **changes))


@tiered_jit(static_argnames=("free", "power"))
def likelihood_gradient(
    problem: Problem, q: Any, sites: jax.Array, free: tuple[str, ...], vector: jax.Array, power: float = 1.0
) -> Any:
    """∂ Σ multiplicity log Zᵢ / power in the vector of the likelihood's free parameters, cavities fixed."""
    (group,) = problem.groups
    local = problem.posterior.marginals(problem.prior, q, group.scope, jnp.arange(group.size))
    held = group.multiplicities > 0
    cavity = jnp.where(held[:, None], local - power * sites, local)

    def total(vector: jax.Array) -> jax.Array:
        factor: Factor = unpack_likelihood(group.factor, free, vector)

        def log_z(cavity: jax.Array, data: Any) -> jax.Array:
            key = jax.random.key(0)
            tilted, _ = group.moments.tilt(group.moments.init(group), factor, group.family, cavity, data, power, key)
            return tilted.log_z / power

        found = jax.vmap(log_z)(cavity, jax.tree.map(jnp.asarray, group.data))
        return jnp.sum(jnp.where(held, group.multiplicities * found, 0.0))

    return jax.jacfwd(total)(vector)


def rule_of(method: Method | None) -> Method:
    """The method asked for, or the default."""
    if method is not None and not isinstance(method, Method):
        raise TypeError(f"method must be made by Auto(), EP(), PowerEP(...) and the like; found {method!r}.")
    return Auto() if method is None else method


def solve_from(
    init: Any,
    problem: Problem,
    method: Method | None,
    callback: Callable[[Solution], Any] | None = None,
    limit: TimeLimit = NO_LIMIT,
) -> Solution:
    """A solution from `init` (a solution, or sites); where a method other than the default fails, from flat sites."""
    starts = (None,) if init is None else (init,) if method is None or method.restarts else (init, None)
    solution = None
    for start in starts:
        solution = infer(problem, method, init=start, callback=callback, max_seconds=limit.left)
        if solution.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if solution.converged or solution.status is Status.TIME_BUDGET:
            break
    assert solution is not None
    return solution


@dataclasses.dataclass
class Evaluation:
    """One evaluated point; `solution` is None where it was refused. target: log evidence plus log prior."""

    vector: np.ndarray
    solution: Solution | None
    log_evidence: float
    gradient: np.ndarray
    target: float


@dataclasses.dataclass
class EvidenceSearch:
    """The function handed to the optimiser, with its memory: warm sites, the last good point, the best, the history.

    build: from a vector of hyperparameters to a problem. gradient: of the log evidence, for a converged solution.
    log_prior: of a vector, with its gradient; what is maximised is evidence times prior. callback: called with every
    point. limit: the search ends by `OutOfTime`.
    """

    build: Callable[[np.ndarray], Problem]
    gradient: Callable[[np.ndarray, Solution], np.ndarray]
    method: Method | None
    log_prior: Callable[[np.ndarray], tuple[float, np.ndarray]]
    callback: Callable[[Evaluation], Any] | None = None
    limit: TimeLimit = NO_LIMIT
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    last: Evaluation | None = None
    best: Evaluation | None = None

    def run(self, vector: np.ndarray) -> Solution:
        """A solution at `vector`, from the last sites if there are any."""
        warm = None if self.last is None else self.last.solution
        # With the tolerance of a search, and fixed points of the evidence only.
        return solve_from(warm, self.build(vector), rule_of(self.method).loosen(SEARCH_TOL), limit=self.limit)

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """(−log evidence − log prior, its gradient), or the bowl for a refused point."""
        vector = np.array(vector, float)
        if self.last is not None and np.array_equal(vector, self.last.vector):
            return -self.last.target, -(self.last.gradient + self.log_prior(vector)[1])
        self.limit.check()
        solution = self.run(vector)
        value = float(solution.log_evidence)
        # A fixed point of the restricted projection is not one of the evidence: it has no gradient of this form.
        good = solution.status == Status.CONVERGED and bool(np.isfinite(value))
        gradient = self.gradient(vector, solution) if good else np.full(vector.size, np.nan)
        good = good and bool(np.isfinite(gradient).all())
        self.history.append({"theta": vector.tolist(), "log_evidence": value if good else None, "refused": not good})
        shift, tilt = self.log_prior(vector)
        evaluation = Evaluation(vector, solution if good else None, value, gradient, value + shift)
        if self.callback is not None:
            self.callback(evaluation)
        if not good:
            if self.last is None:
                return 0.0, np.zeros(vector.size)
            away = vector - self.last.vector
            return -self.last.target + 1.0 + BOWL * float(away @ away), 2 * BOWL * away
        self.last = evaluation
        if self.best is None or evaluation.target > self.best.target:
            self.best = evaluation
        return -evaluation.target, -(gradient + tilt)


def feasible_start(search: EvidenceSearch, start: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """`start`, or where a run from there reaches no fixed point, the first of some points around it that does.

    A refused point has no slope to leave it by. The points are fixed, so that a fit needs no random numbers.
    """
    around = np.random.default_rng(0).normal(size=(NEARBY, start.size))
    for point in (start, *np.clip(start + around, bounds[:, 0], bounds[:, 1])):
        search(point)
        if search.last is not None:
            return point
    return start


def ascend(
    search: EvidenceSearch, bounds: np.ndarray, start: np.ndarray
) -> tuple[list[dict[str, Any]], Evaluation | None]:
    """History and best point of the ascent from `start`. Ascents are independent and may be made anywhere."""
    search = copy.copy(search)
    search.history, search.last, search.best = [], None, None
    with search.limit.ends_search():
        first = feasible_start(search, np.clip(start, bounds[:, 0], bounds[:, 1]), bounds)
        # The first step of L-BFGS-B is as long as the gradient; scaled, it is about one unit of log parameters.
        scale = 1.0 / max(1.0, float(np.linalg.norm(search(first)[1])))
        minimize(
            lambda vector, scale=scale: tuple(scale * part for part in search(vector)),
            first,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"ftol": RELATIVE, "gtol": GRADIENT * scale, "maxiter": 100, "maxfun": 100},
        )
    return search.history, search.best


def maximise(
    search: EvidenceSearch, start: np.ndarray, bounds: np.ndarray, restarts: int, seed: int, mapped: Mapped = map
) -> Evaluation | None:
    """The best point found from `start` and from `restarts` further ones drawn uniformly within the bounds.

    mapped: makes the ascents, `map` or what does the same elsewhere, such as `cavity.distributed.map`.
    """
    rng = np.random.default_rng(seed)
    points = [start, *(rng.uniform(bounds[:, 0], bounds[:, 1]) for _ in range(restarts))]
    for history, best in mapped(partial(ascend, search, bounds), points):
        search.history += history
        if best is not None and (search.best is None or best.target > search.best.target):
            search.best = best
    return search.best


class SearchOptions(TypedDict, total=False):
    """What every fitting function hands on to `fit_evidence`, which says what it is."""

    method: Method | None
    restarts: int
    seed: int
    mapped: Mapped
    callback: Callable[[Solution], Any] | None
    search_callback: Callable[[Evaluation], Any] | None
    max_seconds: float | None


class EvidenceFit(NamedTuple):
    """Where a search ended: the prior's parameters, the likelihood, further numbers, the solution there, the points."""

    theta: np.ndarray
    factor: Factor
    others: np.ndarray
    solution: Solution
    history: list[dict[str, Any]]


def fit_evidence(
    space: SearchSpace,
    build: Callable[[np.ndarray, Factor, np.ndarray], Problem],
    gradient: Callable[[np.ndarray, np.ndarray, Solution], tuple[Any, Any]],
    *,
    optimize: bool,
    method: Method | None = None,
    restarts: int = 0,
    seed: int = 0,
    mapped: Mapped = map,
    callback: Callable[[Solution], Any] | None = None,
    search_callback: Callable[[Evaluation], Any] | None = None,
    max_seconds: float | None = None,
) -> EvidenceFit:
    """The best hyperparameters, or the given ones where nothing is to be searched, and a last run there.

    Args:
        space: what is searched, and where the search starts.
        build: from theta, likelihood and the others to a problem.
        gradient: of the log evidence in theta and in the others, for theta, the others and a converged solution.
        optimize: whether to search.
        method: of the last run; None is `Auto()`. The search itself is content with a wider tolerance.
        restarts: how many more searches to start, at random places within the bounds.
        seed: of these places.
        mapped: makes the searches from all starts, `map` or what does the same elsewhere, as `cavity.distributed.map`.
        callback: called with the solution after every sweep of the last run.
        search_callback: called with every `Evaluation` of the search.
        max_seconds: when the search ends with the best point so far, and the last run after its sweep.
    """
    limit = TimeLimit.of(max_seconds)

    def gradient_at(vector: np.ndarray, solution: Solution) -> np.ndarray:
        theta, likelihood, others = space.split(vector)
        by_theta, by_others = gradient(theta, others, solution)
        by_likelihood = np.zeros(0)
        if space.free:
            known = (solution.problem, solution.q, solution.sites[0], space.free)
            by_likelihood = likelihood_gradient(*known, jnp.asarray(likelihood), solution.method.power)
        return np.concatenate([np.asarray(by_theta), np.asarray(by_likelihood), np.asarray(by_others)])

    def problem_at(vector: np.ndarray) -> Problem:
        return build(*space.parameters(vector))

    search = EvidenceSearch(problem_at, gradient_at, method, space.log_prior, search_callback, limit)
    vector, warm = space.start, None
    if optimize and vector.size:
        best = maximise(search, vector, space.limits, restarts, seed, mapped)
        if best is not None:
            vector, warm = best.vector, best.solution
    parameters = space.parameters(vector)
    solution = solve_from(warm, build(*parameters), method, callback, limit)
    return EvidenceFit(*parameters, solution, search.history)
