"""The ladder behind `Auto`: EP, and where it fails what has the same fixed points, then what has others."""

import dataclasses
import time
from collections.abc import Iterator
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.pytrees import pytree_dataclass, static
from cavity.factors.base import MissingClosedForm, MissingDensity
from cavity.inference._loop import Start
from cavity.inference.methods.base import Limits, Method
from cavity.inference.methods.convergent import ConvergentEP, can_solve, newton
from cavity.inference.methods.sweeps import EP, PowerEP, RelaxedEP, RestrictedEP, Sweeps
from cavity.inference.problem import Problem
from cavity.inference.schedule import Schedule
from cavity.inference.solution import Solution
from cavity.inference.status import Attempt, Status

#: sweeps before which no run is given up, and sweeps over which progress is judged
GRACE, WINDOW = 24, 8
#: sweeps that may still be to go at the present rate
WORTH = 40
#: how a run ends that no other method can mend: nothing can be integrated, or the caller has stopped waiting
FINAL = (Status.NONFINITE_FACTOR, Status.UNSURE_FACTOR, Status.INTERRUPTED, Status.TIME_BUDGET)
#: step and sweeps of the first fallback
DAMPING, DAMPED_SWEEPS = 0.5, 200
#: step and sweeps where no equations can be solved and no cavity is ever improper
SHORT_STEP, SHORT_SWEEPS = 0.2, 500
#: weights of relaxation, and sweeps with each
WEIGHTS, RELAXED_SWEEPS = (0.1, 0.01), 300
#: power whose solution the double loop starts from, sweeps to find it, outer steps from each start
POWER, POWER_SWEEPS, OUTER_STEPS = 0.5, 300, 120
#: candidates its inner problems look at from each start: those on the border of proper cavities take a hundred each
INNER_TURNS = 1500


def is_hopeless(residuals: np.ndarray, tol: float) -> bool:
    """Whether sweeps oscillate, creep or meet improper cavities again and again: too many would still be to make."""
    if residuals.size < GRACE:
        return False
    recent, before = np.min(residuals[-WINDOW:]), np.min(residuals[-2 * WINDOW : -WINDOW])
    if not np.isfinite(recent):
        return True
    with np.errstate(divide="ignore"):
        return not WORTH / WINDOW * np.log(before / recent) > np.log(recent / tol)


@dataclasses.dataclass
class LadderRun:
    """One way up the ladder: what was tried and how it went. best: the state of EP's own sweeps that agrees best."""

    problem: Problem
    first: Sweeps
    key: jax.Array
    limits: Limits
    attempts: list[Attempt] = dataclasses.field(default_factory=list)
    made: int = 0
    best: Solution | None = None

    def attempt(
        self, method: Method, init: Start | None, origin: str = "", patient: bool = False, own: bool = False
    ) -> Solution:
        """One attempt: sweeps are counted on, and unless `patient` are given up when they lead nowhere.

        Sites of many copies take short steps and creep: they are not given up.
        origin: words for where it begins. own: whether these are EP's own sweeps.
        """
        creeping = not all(map(attrgetter("at_most_one"), self.problem.groups))
        made, callback = self.made, self.limits.callback

        def count_on(solution: Solution) -> None:
            assert callback is not None
            callback(dataclasses.replace(solution, sweeps=solution.sweeps + made))

        limits = Limits(
            self.limits.deadline,
            None if callback is None else count_on,
            None if patient or creeping else partial(is_hopeless, tol=self.first.tol),
            INNER_TURNS,
        )
        began = time.perf_counter()
        found = method.solve(self.problem, init, self.key, limits)
        self.record(f"{method}{origin}", found, began)
        if own and (self.best is None or found.mismatch < self.best.mismatch):
            self.best = found
        return found

    def record(self, name: str, found: Solution | None, began: float) -> None:
        """Put the outcome of an attempt on record, and in words why it was left for the next."""
        seconds = time.perf_counter() - began
        if found is None:
            self.attempts.append(Attempt(name, "", 0, float("nan"), seconds, "did not lead to a fixed point"))
            return
        sweeps, mismatch, left = int(found.sweeps), float(found.mismatch), ""
        if found.status is Status.SITES_SKIPPED:
            count = sum(int(np.isinf(own).sum()) for own in found.site_mismatch)
            left = f"improper cavities at {count} sites after {sweeps} sweeps"
        elif not found.converged and found.status not in FINAL:
            residuals = np.asarray(found.residuals)
            recent = np.min(residuals[-WINDOW:], initial=np.inf)
            before = np.min(residuals[-2 * WINDOW : -WINDOW], initial=np.inf)
            manner = "came nearer too slowly" if recent < 0.5 * before < np.inf else "did not come nearer"
            left = f"{manner}, mismatch {mismatch:.1e} after {sweeps} sweeps"
        self.attempts.append(Attempt(name, str(found.status), sweeps, mismatch, seconds, left))
        self.made += sweeps

    def polish(self, solution: Solution) -> Solution | None:
        """Newton's method from where sweeps were left."""
        if not can_solve(self.problem) or not np.isfinite(solution.mismatch):
            return None
        began = time.perf_counter()
        found = newton(self.problem, self.first, solution.sites, self.key, self.limits)
        self.record("Newton", found, began)
        return found

    def minimise(self) -> Iterator[Solution]:
        """The double loop from the solution of a power, whose sites are mild, and from flat ones."""
        if not can_solve(self.problem):
            return
        try:
            mild = self.attempt(PowerEP(POWER, tol=self.first.tol, max_sweeps=POWER_SWEEPS), None)
        except (MissingClosedForm, MissingDensity):
            mild = None
        except TypeError:  # messages of whole factors only, asked for on the host: too dear for the double loop
            return
        if mild is not None and mild.status in FINAL:
            yield mild
            return
        known = () if mild is None or not np.isfinite(mild.log_evidence) else (Start(sites_of(mild)),)
        for start in (*known, None):
            origin = " from flat sites" if start is None else f" from PowerEP({POWER:g})"
            yield self.attempt(ConvergentEP(tol=self.first.tol, max_sweeps=OUTER_STEPS), start, origin)


def sites_of(solution: Solution) -> tuple[jax.Array, ...]:
    """The sites as arrays a run may take over."""
    return jax.tree.map(partial(jnp.array, dtype=float, copy=True), tuple(solution.sites))


def fallbacks(run: LadderRun, plain: Solution, compromise: bool) -> Iterator[Solution | None]:
    """Methods after the first, `plain`: those whose fixed points are EP's, then, as a compromise, those of others."""
    tol = run.first.tol
    yield run.polish(plain)
    # In the same order, so that nothing is compiled: a random one solved 17 of 270 hard problems, this one 18.
    order = run.first.schedule
    slow = run.attempt(EP(schedule=order, damping=DAMPING, max_sweeps=DAMPED_SWEEPS, tol=tol), None, own=True)
    yield slow
    yield run.polish(slow)
    yield from run.minimise()
    if not can_solve(run.problem) and all(group.family.cavities_proper for group in run.problem.groups):
        # Nothing is improper and no other fallback is left: short steps, without losing patience.
        shorter = EP(schedule=order, damping=SHORT_STEP, max_sweeps=SHORT_SWEEPS, tol=tol)
        yield run.attempt(shorter, Start(sites_of(slow)), patient=True, own=True)
    if compromise:
        yield from other_fixed_points(run)


def other_fixed_points(run: LadderRun) -> Iterator[Solution]:
    """Fallbacks with fixed points of their own; with the last of them there is nothing to lose patience for."""
    tol = run.first.tol
    relaxed = [RelaxedEP(c, tol=tol, max_sweeps=RELAXED_SWEEPS) for c in WEIGHTS]
    for method in (*relaxed, RestrictedEP(tol=tol)):
        try:
            method.validate(run.problem)
            yield run.attempt(method, None, patient=method not in relaxed)
        except TypeError:  # a family or factor that this projection does not know
            continue


@pytree_dataclass
class Ladder(Method):
    """Made by `Auto`.

    first: the method tried first, and alone inside `vmap` or `jit`.
    compromise: whether fixed points other than EP's are acceptable.
    """

    first: Sweeps
    compromise: bool = static()

    restarts: ClassVar[bool] = True

    @property
    def tol(self) -> float:  # type: ignore[override]
        """Bound on the moment mismatch, the same for every attempt."""
        return self.first.tol

    @property
    def sweeps(self) -> Sweeps:
        return self.first

    def validate(self, problem: Problem) -> None:
        self.first.validate(problem)

    def loosen(self, tol: float) -> "Ladder":
        return Ladder(self.first.loosen(tol), compromise=False)

    def solve(self, problem: Problem, init: Start | None, key: jax.Array, limits: Limits) -> Solution:
        """The first fixed point found; the best state of EP's own kind where there is none, with its own status."""
        began, run = time.perf_counter(), LadderRun(problem, self.first, key, limits)
        answer, stopped = None, None
        try:
            plain = run.attempt(self.first, init, own=True)
            for found in chain((plain,), fallbacks(run, plain, self.compromise)):
                if found is not None and (found.converged or found.status in FINAL):
                    answer, stopped = found if found.converged else None, found.status
                    break
                if limits.late:
                    stopped = Status.TIME_BUDGET
                    break
        except KeyboardInterrupt:  # between two sweeps, or where there are none
            if run.best is None:
                raise
            stopped = Status.INTERRUPTED
        answer = run.best if answer is None else answer
        assert answer is not None
        if stopped is not None and stopped in FINAL:
            answer = answer.ended(stopped)
        changes: dict[str, Any] = {"attempts": tuple(run.attempts), "sweeps": np.asarray(run.made)}
        if len(run.attempts) > 1:
            changes["seconds"] = np.asarray(time.perf_counter() - began)
        return dataclasses.replace(answer, **changes)

    def solve_traced(self, problem: Problem, init: Start | None, key: jax.Array) -> Solution:
        return self.first.solve_traced(problem, init, key)

    def __str__(self) -> str:
        return "Auto"


def Auto(
    *, schedule: Schedule | None = None, max_sweeps: int = 200, tol: float = 1e-8, compromise: bool = True
) -> Ladder:
    """EP, and where it fails one method after another that does not: the default.

    EP → EP damped → the double loop from a Power EP solution, each finished by Newton's method where that
    helps: these have the same fixed points, status `converged`. Then relaxed EP (`converged_relaxed`), restricted EP
    (`converged_restricted`), which have others. `solution.attempts` says what was tried and why it was left.

    Args:
        schedule: the order in which sites are visited, such as `cavity.Parallel()`; None leaves it to the problem.
        max_sweeps: of the first method.
        tol: bound on the moment mismatch of every site at the state returned.
        compromise: whether fixed points other than EP's are acceptable.

    Returns:
        The method, for `infer`.

    Raises:
        TypeError, ValueError: one of these cannot be run.

    Examples:
        >>> import cavity as cv
        >>> print(cv.infer(cv.models.clutter([0.8, 1.6, 2.1]), cv.Auto()).status)
        converged
    """
    return Ladder(EP(schedule=schedule, max_sweeps=max_sweeps, tol=tol), bool(compromise))
