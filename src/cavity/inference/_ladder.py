"""The ladder behind `Auto`: EP, and where it fails what has the same fixed points, then what has others."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity.factors.base import MissingClosedForm, MissingDensity
from cavity.inference._convergent import can_solve, converge, newton
from cavity.inference._loop import Start
from cavity.inference._run import Limits, drive
from cavity.inference.methods import EP, ConvergentEP, Ladder, Method, PowerEP, RelaxedEP, RestrictedEP
from cavity.inference.problem import Problem
from cavity.inference.schedule import InOrder, Shuffled
from cavity.inference.solution import Solution
from cavity.inference.status import Rung, Status

#: sweeps before which nobody loses patience, and sweeps over which progress is judged
GRACE, WINDOW = 24, 8
#: sweeps that may still be to go at the present rate
WORTH = 40
#: how a run ends that no other method can mend: nothing is integrated, or nobody waits any more
FINAL = (Status.NONFINITE_FACTOR, Status.UNSURE_FACTOR, Status.INTERRUPTED, Status.TIME_BUDGET)
#: step and sweeps of the second rung
DAMPING, DAMPED_SWEEPS = 0.5, 200
#: step and sweeps where no equations can be solved and no cavity is ever improper
SHORT_STEP, SHORT_SWEEPS = 0.2, 500
#: weights of relaxation, and sweeps with each
WEIGHTS, RELAXED_SWEEPS = (0.1, 0.01), 300
#: power whose solution the double loop starts from, sweeps to find it, outer steps from each start
POWER, POWER_SWEEPS, OUTER_STEPS = 0.5, 300, 120


def is_hopeless(residuals: np.ndarray, tol: float) -> bool:
    """Whether sweeps oscillate, creep or meet improper cavities again and again: too many would still be to make."""
    if residuals.size < GRACE:
        return False
    recent, before = map(np.min, windows(residuals))
    if not np.isfinite(recent):
        return True
    with np.errstate(divide="ignore"):
        return not WORTH / WINDOW * np.log(before / recent) > np.log(recent / tol)


def windows(residuals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The last residuals and those before them."""
    return residuals[-WINDOW:], residuals[-2 * WINDOW : -WINDOW]


def why_left(solution: Solution) -> str:
    """Why a rung was not the last, in words."""
    sweeps = int(solution.sweeps)
    if solution.status is Status.SITES_SKIPPED:
        count = sum(int(np.isinf(own).sum()) for own in solution.site_mismatch)
        return f"improper cavities at {count} sites after {sweeps} sweeps"
    recent, before = (np.min(own, initial=np.inf) for own in windows(np.asarray(solution.residuals)))
    falling = bool(recent < 0.5 * before < np.inf)
    manner = "came nearer too slowly" if falling else "did not come nearer"
    return f"{manner}, mismatch {float(solution.mismatch):.1e} after {sweeps} sweeps"


class Way:
    """One way up the ladder: what was tried and how it went."""

    def __init__(self, problem: Problem, ladder: Ladder, key: jax.Array, limits: Limits) -> None:
        self.problem, self.ladder, self.key, self.limits = problem, ladder, key, limits
        self.rungs: list[Rung] = []
        self.sweeps = 0

    def within(self, patient: bool = False) -> Limits:
        """Limits of a rung: sweeps are counted on, and unless `patient` are given up when they lead nowhere.

        Sites of many copies take short steps and creep: there nobody loses patience.
        """
        creeping = not all(group.at_most_one for group in self.problem.groups)
        done, callback = self.sweeps, self.limits.callback

        def counted_on(solution: Solution) -> None:
            assert callback is not None
            callback(dataclasses.replace(solution, sweeps=solution.sweeps + done))

        return Limits(
            self.limits.deadline,
            None if callback is None else counted_on,
            None if patient or creeping else lambda residuals: is_hopeless(residuals, self.ladder.tol),
        )

    def tried(self, name: str, run: Callable[[], Solution | None]) -> Solution | None:
        """The outcome of a rung, put on record."""
        began = time.perf_counter()
        found = run()
        seconds = time.perf_counter() - began
        if found is None:
            self.rungs.append(Rung(name, "", 0, float("nan"), seconds, "did not lead to a fixed point"))
            return None
        left = "" if found.converged or found.status in FINAL else why_left(found)
        self.rungs.append(Rung(name, str(found.status), int(found.sweeps), float(found.mismatch), seconds, left))
        self.sweeps += int(found.sweeps)
        return found

    def swept(self, method: Method, init: Start | None, patient: bool = False) -> Solution | None:
        """A rung of sweeps."""
        return self.tried(str(method), lambda: drive(self.problem, method, init, self.key, self.within(patient)))

    def polished(self, solution: Solution) -> Solution | None:
        """Newton's method from where sweeps were left."""
        if not can_solve(self.problem) or not np.isfinite(solution.mismatch):
            return None
        return self.tried("Newton", lambda: newton(self.problem, self.ladder.first, sites_of(solution), self.key))

    def minimised(self) -> Iterator[Solution | None]:
        """The double loop from the solution of a power, whose sites are mild, and from flat ones."""
        if not can_solve(self.problem):
            return
        try:
            mild = self.swept(PowerEP(POWER, tol=self.ladder.tol, max_sweeps=POWER_SWEEPS), None)
        except (MissingClosedForm, MissingDensity):
            mild = None
        if mild is not None and mild.status in FINAL:
            yield mild
            return
        known = () if mild is None or not np.isfinite(mild.log_evidence) else (Start(sites_of(mild)),)
        for start in (*known, None):
            method = ConvergentEP(tol=self.ladder.tol, max_sweeps=OUTER_STEPS)
            run = partial(converge, self.problem, method, start, self.key, self.within())
            yield self.tried(f"{method} from {'flat sites' if start is None else f'PowerEP({POWER:g})'}", run)


def sites_of(solution: Solution) -> tuple[jax.Array, ...]:
    """The sites as arrays a run may take over."""
    return tuple(jnp.array(own, float, copy=True) for own in solution.sites)


def same_fixed_points(way: Way, init: Start | None) -> Iterator[Solution | None]:
    """Rungs whose fixed points are those of EP."""
    first = way.ladder.first
    plain = way.swept(first, init)
    yield plain
    assert plain is not None
    yield way.polished(plain)
    # Sites that are too many to be visited one by one keep the order their problem gives them.
    order = Shuffled() if isinstance(way.problem.schedule, InOrder) else None
    damped = EP(schedule=order, damping=DAMPING, max_sweeps=DAMPED_SWEEPS, tol=first.tol)
    slow = way.swept(damped, None)
    yield slow
    assert slow is not None
    yield way.polished(slow)
    yield from way.minimised()
    if not can_solve(way.problem) and all(group.family.cavities_proper for group in way.problem.groups):
        # Nothing is improper and no other rung is left: short steps, without losing patience.
        shorter = EP(schedule=order, damping=SHORT_STEP, max_sweeps=SHORT_SWEEPS, tol=first.tol)
        yield way.swept(shorter, Start(sites_of(slow)), patient=True)


def other_fixed_points(way: Way) -> Iterator[Solution | None]:
    """Rungs that end somewhere else; with the last of them there is nothing to lose patience for."""
    tol = way.ladder.tol
    relaxed = [RelaxedEP(c, tol=tol, max_sweeps=RELAXED_SWEEPS) for c in WEIGHTS]
    for method in (*relaxed, RestrictedEP(tol=tol)):
        try:
            for group in way.problem.groups:
                method.projection.check(group.family, method.power)
            yield way.swept(method, None, patient=method not in relaxed)
        except TypeError:  # a family or factor that this projection does not know
            continue


def climb(problem: Problem, ladder: Ladder, init: Start | None, key: jax.Array, limits: Limits) -> Solution:
    """The first fixed point found; the best state of EP's own kind where there is none, with its own status."""
    began, way, best = time.perf_counter(), Way(problem, ladder, key, limits), None
    stopped = None
    try:
        for found in same_fixed_points(way, init):
            if found is not None and (best is None or found.converged or is_nearer(found, best)):
                best = found
            if found is not None and (found.converged or found.status in FINAL):
                stopped = found.status
                break
        assert best is not None
        for found in other_fixed_points(way) if ladder.compromise and stopped is None else ():
            if found is not None and (found.converged or found.status in FINAL):
                best, stopped = found if found.converged else best, found.status
                break
    except KeyboardInterrupt:  # between two sweeps, or where there are none
        if best is None:
            raise
        stopped = Status.INTERRUPTED
    if stopped is not None and stopped in FINAL:
        best = best.ended(stopped)
    changes: dict[str, Any] = {"rungs": tuple(way.rungs), "sweeps": np.asarray(way.sweeps)}
    if len(way.rungs) > 1:
        changes["seconds"] = np.asarray(time.perf_counter() - began)
    return dataclasses.replace(best, **changes)


def is_nearer(found: Solution, best: Solution) -> bool:
    """Whether a state of EP's own sweeps is nearer to a fixed point; one on the way of the double loop is near none."""
    return isinstance(found.method, Method) and found.method.power == 1.0 and bool(found.mismatch < best.mismatch)
