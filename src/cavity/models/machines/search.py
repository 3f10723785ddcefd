"""Maximising the log evidence over hyperparameters: L-BFGS-B, warm-started sites, refusals, restarts.

A run that did not reach a fixed point of EP has no gradient here. It is tried again from flat sites and damped; if that
fails too the point is refused: the optimiser is shown a bowl around the last good point, so it steps back towards it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize

from cavity.inference.infer import infer
from cavity.inference.methods import EP, Method, PowerEP
from cavity.inference.problem import Problem
from cavity.inference.solution import Solution

#: the search stops when the log evidence rises by less than this share of itself, or the gradient is this small
RELATIVE, GRADIENT = 1e-7, 1e-3
#: the moment mismatch asked of the runs of the search; the last one is made with the method's own
SEARCH_TOL, DEFAULT_TOL = 1e-6, 1e-8
#: curvature of the bowl shown for a refused point, in nats per squared unit of log parameters
BOWL = 1e3


def rungs(method: Method | None, tol: float) -> list[Method]:
    """What is tried in turn: the method asked for; or EP, damped EP, and Power EP, with a fixed point of its own."""
    if method is not None:
        return [dataclasses.replace(method, tol=max(method.tol, tol))]
    return [EP(max_sweeps=100, tol=tol), EP(damping=0.5, tol=tol), PowerEP(0.5, max_sweeps=500, tol=tol)]


def solve(problem: Problem, method: Method | None, init: Solution | None) -> tuple[Solution, Method]:
    """A solution by the method, or by the first of the default ones that converges; and which that was."""
    return first_converged(problem, rungs(method, DEFAULT_TOL if method is None else method.tol), init)


def first_converged(problem: Problem, methods: list[Method], init: Solution | None) -> tuple[Solution, Method]:
    """The first run that converges, of each method from `init` and then from flat sites; the last where none does."""
    runs = [(method, start) for method in methods for start in ((init, None) if init is not None else (None,))]
    for method, start in runs[:-1]:
        solution = infer(problem, method, init=start)
        if solution.converged:
            return solution, method
    method, start = runs[-1]
    return infer(problem, method, init=start), method


@dataclasses.dataclass
class Evaluation:
    """One evaluated point; `solution` is None where it was refused."""

    vector: np.ndarray
    solution: Solution | None
    log_evidence: float
    gradient: np.ndarray


@dataclasses.dataclass
class Search:
    """The function handed to the optimiser, with its memory: warm sites, the last good point, the best, the history.

    build: from a vector of hyperparameters to a problem. slope: gradient of the log evidence for a converged solution.
    """

    build: Callable[[np.ndarray], Problem]
    slope: Callable[[np.ndarray, Solution], np.ndarray]
    method: Method | None
    progress: Callable[[Evaluation], Any] | None = None
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    last: Evaluation | None = None
    best: Evaluation | None = None

    def run(self, vector: np.ndarray) -> Solution:
        """A solution at `vector`, from the last sites if there are any."""
        problem, warm = self.build(vector), None if self.last is None else self.last.solution
        methods = rungs(self.method, SEARCH_TOL)
        return first_converged(problem, methods[: 2 if self.method is None else 1], warm)[0]

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """(−log evidence, −gradient), or the bowl for a refused point."""
        vector = np.array(vector, float)
        solution = self.run(vector)
        value = float(solution.log_evidence)
        good = bool(solution.converged) and np.isfinite(value)
        gradient = self.slope(vector, solution) if good else np.full(vector.size, np.nan)
        good = good and bool(np.isfinite(gradient).all())
        self.history.append({"theta": vector.tolist(), "log_evidence": value if good else None, "refused": not good})
        evaluation = Evaluation(vector, solution if good else None, value, gradient)
        if self.progress is not None:
            self.progress(evaluation)
        if not good:
            if self.last is None:
                return 0.0, np.zeros(vector.size)
            away = vector - self.last.vector
            return -self.last.log_evidence + 1.0 + BOWL * float(away @ away), 2 * BOWL * away
        self.last = evaluation
        if self.best is None or value > self.best.log_evidence:
            self.best = evaluation
        return -value, -gradient


def maximise(search: Search, start: np.ndarray, bounds: np.ndarray, restarts: int, seed: int) -> Evaluation | None:
    """The best point found from `start` and from `restarts` further ones drawn uniformly within the bounds."""
    rng = np.random.default_rng(seed)
    starts = [np.clip(start, bounds[:, 0], bounds[:, 1])]
    starts += [rng.uniform(bounds[:, 0], bounds[:, 1]) for _ in range(restarts)]
    for point in starts:
        search.last = None
        minimize(
            search,
            point,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"ftol": RELATIVE, "gtol": GRADIENT, "maxiter": 100, "maxfun": 100},
        )
    return search.best
