"""Maximising the log evidence over hyperparameters: L-BFGS-B, warm-started sites, refusals, restarts.

A run that did not reach a fixed point of EP has no gradient here. It is tried again from flat sites and damped; if that
fails too the point is refused: the optimiser is shown a bowl around the last good point, so it steps back towards it.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize

from cavity.inference.infer import infer
from cavity.inference.methods import EP, Method, PowerEP
from cavity.inference.problem import IN_ORDER, Problem
from cavity.inference.solution import Solution, Status

#: the search stops when the log evidence rises by less than this share of itself, or the gradient is this small
RELATIVE, GRADIENT = 1e-7, 1e-3
#: the moment mismatch asked of the runs of the search; the last one is made with the method's own
SEARCH_TOL, DEFAULT_TOL = 1e-6, 1e-8
#: sweeps made at a time; a run of the search is given up unless the mismatch of their second half is below this share
#: of that of the first. Runs have stood still for 30 sweeps and then converged.
STRETCH, NEARER = 60, 0.5
#: points tried around a start that is refused
NEARBY = 8
#: curvature of the bowl shown for a refused point, in nats per squared unit of log parameters
BOWL = 1e3

Watch = Callable[[Solution], Any] | None


def rungs(problem: Problem, method: Method | None, tol: float) -> list[Method]:
    """What is tried in turn: the method asked for; or EP, ever more damped, then Power EP, with another fixed point.

    Where the problem suggests parallel visits, sequential ones follow before Power EP.
    """
    if method is not None and not isinstance(method, Method):
        raise TypeError(f"method must be made by EP(), ADF(), PowerEP(...) or RestrictedEP(); found {method!r}.")
    if method is not None:
        return [dataclasses.replace(method, tol=max(method.tol, tol))]
    # Plain and damped share a compiled program: they differ in their damping alone.
    steps = [EP(max_sweeps=3 * STRETCH, damping=step, tol=tol) for step in (1.0, 0.5, 0.2)]
    if problem.schedule != IN_ORDER:
        steps += [dataclasses.replace(step, schedule=IN_ORDER) for step in steps]
    return [*steps, PowerEP(0.5, max_sweeps=9 * STRETCH, tol=tol)]


def led_by(methods: list[Method], rung: int) -> list[Method]:
    """The methods with that of a given rung first: where plain EP circled once, it circles at the points nearby."""
    return [methods[rung], *methods[:rung], *methods[rung + 1 :]]


def solve(
    problem: Problem, method: Method | None, init: Any, watch: Watch = None, *, rung: int = 0
) -> tuple[Solution, Method]:
    """A solution by the method, or by the first of the default ones that converges; and which that was."""
    methods = rungs(problem, method, DEFAULT_TOL if method is None else 0.0)
    return first_converged(problem, led_by(methods, rung), init, watch)


def first_converged(
    problem: Problem, methods: list[Method], init: Any, watch: Watch = None, *, patient: bool = True
) -> tuple[Solution, Method]:
    """The first run that converges, of all methods from `init` and then from flat sites; the last where none does.

    init: a solution, or sites. watch: called after every sweep. patient: see `approach`.
    """
    runs = [(method, start) for start in ((None,) if init is None else (init, None)) for method in methods]
    run = infer if len(methods) == 1 else partial(approach, patient=patient)
    (method, start), *others = runs
    solution = run(problem, method, init=start, callback=watch)
    for other, start in others:
        if solution.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if solution.converged:
            break
        solution, method = run(problem, other, init=start, callback=watch), other
    return solution, method


def approach(problem: Problem, method: Method, *, init: Any, callback: Watch, patient: bool) -> Solution:
    """A run of the method in stretches of sweeps, given up, unless `patient`, after one in which no fixed point neared.

    Where EP converges in the sweeps it has, the mismatch falls much faster; where it circles, the rest would be wasted.
    """
    solution, made = None, np.zeros(0)
    while solution is None or (goes_on(solution, made, patient) and made.size < method.max_sweeps):
        short = dataclasses.replace(method, max_sweeps=min(STRETCH, method.max_sweeps - made.size))
        heard = None if callback is None else lambda found, made=made: callback(later(found, made))
        found = infer(problem, short, init=init if solution is None else solution, callback=heard)
        solution, made = later(found, made), np.append(made, found.residuals)
    return solution


def goes_on(solution: Solution, residuals: np.ndarray, patient: bool) -> bool:
    """Whether the sweeps were all that was missing: in the second half of the stretch q came much nearer."""
    if solution.converged or solution.status is Status.INTERRUPTED or residuals.size % STRETCH:
        return False
    first, second = residuals[-STRETCH:].reshape(2, -1).min(axis=1)
    return patient or bool(second < NEARER * first)


def later(solution: Solution, residuals: np.ndarray) -> Solution:
    """The solution of a run that went on where an earlier one, with these residuals, had ended."""
    together = np.append(residuals, solution.residuals)
    return dataclasses.replace(solution, sweeps=np.asarray(together.size), residuals=together)


@dataclasses.dataclass
class Evaluation:
    """One evaluated point; `solution` is None where it was refused. target: log evidence plus log prior."""

    vector: np.ndarray
    solution: Solution | None
    log_evidence: float
    gradient: np.ndarray
    target: float


@dataclasses.dataclass
class Search:
    """The function handed to the optimiser, with its memory: warm sites, the last good point, the best, the history.

    rung: which of the methods answered last, and is asked first at the next point.
    build: from a vector of hyperparameters to a problem. slope: gradient of the log evidence for a converged solution.
    log_prior: of a vector, with its gradient; what is maximised is evidence times prior.
    """

    build: Callable[[np.ndarray], Problem]
    slope: Callable[[np.ndarray, Solution], np.ndarray]
    method: Method | None
    log_prior: Callable[[np.ndarray], tuple[float, np.ndarray]]
    progress: Callable[[Evaluation], Any] | None = None
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    last: Evaluation | None = None
    best: Evaluation | None = None
    rung: int = 0

    def run(self, vector: np.ndarray) -> Solution:
        """A solution at `vector`, from the last sites if there are any."""
        problem, warm = self.build(vector), None if self.last is None else self.last.solution
        methods = [
            each for each in rungs(problem, self.method, SEARCH_TOL) if each.power == 1 or self.method is not None
        ]
        solution, used = first_converged(problem, led_by(methods, self.rung), warm, patient=False)
        if solution.converged:
            self.rung = next(number for number, each in enumerate(methods) if each is used)
        return solution

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """(−log evidence − log prior, its gradient), or the bowl for a refused point."""
        vector = np.array(vector, float)
        if self.last is not None and np.array_equal(vector, self.last.vector):
            return -self.last.target, -(self.last.gradient + self.log_prior(vector)[1])
        solution = self.run(vector)
        value = float(solution.log_evidence)
        # A fixed point of the restricted projection is not one of the evidence: it has no gradient of this form.
        good = solution.status == Status.CONVERGED and bool(np.isfinite(value))
        gradient = self.slope(vector, solution) if good else np.full(vector.size, np.nan)
        good = good and bool(np.isfinite(gradient).all())
        self.history.append({"theta": vector.tolist(), "log_evidence": value if good else None, "refused": not good})
        shift, tilt = self.log_prior(vector)
        evaluation = Evaluation(vector, solution if good else None, value, gradient, value + shift)
        if self.progress is not None:
            self.progress(evaluation)
        if not good:
            if self.last is None:
                return 0.0, np.zeros(vector.size)
            away = vector - self.last.vector
            return -self.last.target + 1.0 + BOWL * float(away @ away), 2 * BOWL * away
        self.last = evaluation
        if self.best is None or evaluation.target > self.best.target:
            self.best = evaluation
        return -evaluation.target, -(gradient + tilt)


def usable_start(search: Search, start: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """`start`, or where a run from there reaches no fixed point, the first of some points around it that does.

    A refused point has no slope to leave it by. The points are fixed, so that a fit needs no random numbers.
    """
    around = np.random.default_rng(0).normal(size=(NEARBY, start.size))
    for point in (start, *np.clip(start + around, bounds[:, 0], bounds[:, 1])):
        search(point)
        if search.last is not None:
            return point
    return start


def maximise(search: Search, start: np.ndarray, bounds: np.ndarray, restarts: int, seed: int) -> Evaluation | None:
    """The best point found from `start` and from `restarts` further ones drawn uniformly within the bounds."""
    rng = np.random.default_rng(seed)
    points = [start, *(rng.uniform(bounds[:, 0], bounds[:, 1]) for _ in range(restarts))]
    for point in points:
        search.last = None
        first = usable_start(search, np.clip(point, bounds[:, 0], bounds[:, 1]), bounds)
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
    return search.best
