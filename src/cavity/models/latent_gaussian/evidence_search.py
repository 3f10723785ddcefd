"""Maximising the log evidence over hyperparameters: L-BFGS-B, warm-started sites, refusals, restarts.

A run that did not reach a fixed point of EP has no gradient here, and the point is refused: the optimiser is shown a
bowl around the last good point, so it steps back towards it.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypedDict

import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from cavity.factors.base import Factor
from cavity.inference.infer import infer
from cavity.inference.methods import Auto, Method
from cavity.inference.problem import Problem
from cavity.inference.solution import Solution
from cavity.inference.status import Status
from cavity.models.latent_gaussian.hyperparameters import SearchSpace, likelihood_gradient

#: the search stops when the log evidence rises by less than this share of itself, or the gradient is this small
RELATIVE, GRADIENT = 1e-7, 1e-3
#: the moment mismatch asked of the runs of the search; the last one is made with the method's own
SEARCH_TOL = 1e-6
#: points tried around a start that is refused
NEARBY = 8
#: curvature of the bowl shown for a refused point, in nats per squared unit of log parameters
BOWL = 1e3

#: a function like `map`
Mapped = Callable[[Callable[[np.ndarray], Any], list[np.ndarray]], Iterable[Any]]


def rule_of(method: Method | None) -> Method:
    """The method asked for, or the default."""
    if method is not None and not isinstance(method, Method):
        raise TypeError(f"method must be made by Auto(), EP(), PowerEP(...) and the like; found {method!r}.")
    return Auto() if method is None else method


def search_method(method: Method | None) -> Method:
    """The method as the search uses it: its tolerance, and fixed points of the evidence only."""
    return rule_of(method).loosen(SEARCH_TOL)


def solve_from(
    init: Any, problem: Problem, rule: Method, callback: Callable[[Solution], Any] | None = None
) -> Solution:
    """A solution from `init` (a solution, or sites); where a method other than the default fails, from flat sites."""
    starts = (None,) if init is None else (init,) if rule.restarts else (init, None)
    solution = None
    for start in starts:
        solution = infer(problem, rule, init=start, callback=callback)
        if solution.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if solution.converged:
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
    point.
    """

    build: Callable[[np.ndarray], Problem]
    gradient: Callable[[np.ndarray, Solution], np.ndarray]
    method: Method | None
    log_prior: Callable[[np.ndarray], tuple[float, np.ndarray]]
    callback: Callable[[Evaluation], Any] | None = None
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    last: Evaluation | None = None
    best: Evaluation | None = None

    def run(self, vector: np.ndarray) -> Solution:
        """A solution at `vector`, from the last sites if there are any."""
        warm = None if self.last is None else self.last.solution
        return solve_from(warm, self.build(vector), search_method(self.method))

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """(−log evidence − log prior, its gradient), or the bowl for a refused point."""
        vector = np.array(vector, float)
        if self.last is not None and np.array_equal(vector, self.last.vector):
            return -self.last.target, -(self.last.gradient + self.log_prior(vector)[1])
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
    """History and best point of the climb from `start`. Climbs know nothing of each other and may be made anywhere."""
    search = copy.copy(search)
    search.history, search.last, search.best = [], None, None
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

    mapped: makes the climbs, `map` or what does the same elsewhere, such as `cavity.distributed.map`.
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
    """

    def problem_at(vector: np.ndarray) -> Problem:
        theta, _, others = space.split(vector)
        return build(theta, space.likelihood(vector), others)

    def gradient_at(vector: np.ndarray, solution: Solution) -> np.ndarray:
        theta, likelihood, others = space.split(vector)
        by_theta, by_others = gradient(theta, others, solution)
        by_likelihood = np.zeros(0)
        if space.free:
            known = (solution.problem, solution.q, solution.sites[0], space.free)
            by_likelihood = likelihood_gradient(*known, jnp.asarray(likelihood), solution.method.power)
        return np.concatenate([np.asarray(by_theta), np.asarray(by_likelihood), np.asarray(by_others)])

    search = EvidenceSearch(problem_at, gradient_at, method, space.log_prior, search_callback)
    vector, warm = space.start, None
    if optimize and vector.size:
        best = maximise(search, vector, space.limits, restarts, seed, mapped)
        if best is not None:
            vector, warm = best.vector, best.solution
    solution = solve_from(warm, problem_at(vector), rule_of(method), callback)
    theta, _, others = space.split(vector)
    return EvidenceFit(theta, space.likelihood(vector), others, solution, search.history)
