"""The double loop, a method that cannot diverge, and Newton's method, both driven from the host."""

import dataclasses
import time
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import to_numpy
from cavity._core.pytrees import pytree_dataclass, static
from cavity._core.system import one_blas_thread
from cavity._core.tiers import tiered_jit
from cavity.inference._double_loop import TURNS, Inner, begin_inner, compiled_turns
from cavity.inference._evidence import conclude
from cavity.inference._loop import Start, blank_state, learns, measure_state
from cavity.inference._newton import HALVINGS, ROUNDS, begin_polish, is_polishing, marginals_of, polish
from cavity.inference._visit import Report, State
from cavity.inference.methods.base import Limits, Method
from cavity.inference.methods.sweeps import ADF
from cavity.inference.problem import Problem
from cavity.inference.solution import Solution, as_solution
from cavity.inference.status import Status
from cavity.inference.update_rule import UpdateRule

#: outer steps after which Newton's method is tried; the distance grows like the steps so far
ATTEMPTS = (1, 3, 5, 8, 13, 20, 31, 48, 75, 117, 183, 286)
#: no polish looks at more candidates
CANDIDATES = (ROUNDS + 2) * (HALVINGS + 1)


@tiered_jit
def settle(
    problem: Problem, method: UpdateRule, init: Start, key: jax.Array
) -> tuple[State, Report, jax.Array, tuple[jax.Array, ...]]:
    """The state, report, log evidence and marginals of given sites."""
    state = blank_state(problem, method, init)
    report = measure_state(problem, method, state, key)
    state, evidence = conclude(problem, method, state._replace(log_scales=report.log_scales), report)
    return state, report, evidence, marginals_of(problem, state.q)


def judge_sites(problem: Problem, method: UpdateRule, sites: Any, key: jax.Array, unfinished: Status) -> Solution:
    """The solution that given sites make, with the status that their own measurement, its one residual, supports."""
    state, report, evidence, _ = settle(problem, method.as_compiled(), Start(sites), key)
    solution = to_numpy(as_solution(problem, method, state, report, evidence, unfinished))
    return dataclasses.replace(solution, residuals=np.atleast_1d(solution.mismatch))


def can_solve(problem: Problem) -> bool:
    """Whether the linear equations of all sites can be solved together, and no moments change between sweeps."""
    sites = sum(map(attrgetter("size"), problem.groups))
    return not learns(problem) and problem.posterior.can_solve(problem.prior, sites)


@one_blas_thread()
def newton(
    problem: Problem, method: UpdateRule, sites: tuple[jax.Array, ...], key: jax.Array, limits: Limits
) -> Solution | None:
    """A fixed point of `method` by Newton's method from the given sites; None where that does not lead to one in time.

    For problems that it `can_solve`.
    """
    ended, candidates = begin_polish(sites), np.asarray(limits.portion(CANDIDATES))
    while is_polishing(to_numpy(ended._replace(sites=(), steps=())), method.tol) and not limits.late:
        ended = polish(problem, method.as_compiled(), ended, key, candidates)
    if not float(ended.largest) <= method.tol:
        return None
    found = judge_sites(problem, method, ended.sites, key, Status.MAX_SWEEPS)
    # The first turn looks at the sites as they are.
    return dataclasses.replace(found, sweeps=np.asarray(int(ended.rounds) - 1)) if found.converged else None


@pytree_dataclass
class DoubleLoop(Method):
    """Made by `ConvergentEP`."""

    power: float = static()
    max_sweeps: int = static()
    tol: float = static()

    def __post_init__(self) -> None:
        UpdateRule(power=self.power, max_sweeps=self.max_sweeps, tol=self.tol)  # refuses what cannot be run

    @property
    def rule(self) -> UpdateRule:
        """The updates whose fixed points are sought."""
        return UpdateRule(power=self.power, max_sweeps=self.max_sweeps, tol=self.tol)

    @one_blas_thread()
    def solve(self, problem: Problem, init: Start | None, key: jax.Array, limits: Limits) -> Solution:
        """The double loop from given sites, or from flat ones."""
        if learns(problem):
            raise TypeError(
                "ConvergentEP minimises one fixed energy, and a learned factor changes its own between sweeps; use EP."
            )
        if not can_solve(problem):
            raise TypeError(
                f"ConvergentEP solves a linear system of all sites together; {sum(g.size for g in problem.groups)} "
                f"sites of {type(problem.posterior).__name__} are too many for that."
            )
        began, rule = time.perf_counter(), self.rule
        sites = flat_sites(problem, key) if init is None else init.sites
        *_, gamma = problem.raise_failures(settle(problem, rule.as_compiled(), Start(sites), key))
        residuals: list[float] = []

        def of_whole_run(solution: Solution) -> Solution:
            """The solution with the account of the whole run."""
            return dataclasses.replace(
                solution,
                method=self,
                sweeps=np.asarray(len(residuals)),
                residuals=np.asarray(residuals),
                seconds=np.asarray(time.perf_counter() - began),
            )

        solution, turns = None, 0
        try:
            for step in range(1, self.max_sweeps + 1):
                inner = inner_minimum(problem, rule.power, sites, gamma, key, limits, limits.turns - turns)
                sites, gamma, turns = inner.sites, inner.marginals, turns + int(inner.turns)
                spent = turns >= limits.turns
                solution = judge_sites(problem, rule, sites, key, Status.STALLED if spent else Status.MAX_SWEEPS)
                tried = step in ATTEMPTS and not solution.converged
                found = newton(problem, rule, sites, key, limits) if tried else None
                solution = problem.raise_failures(solution if found is None else found)
                residuals.append(float(solution.mismatch))
                if solution.converged or spent or step == self.max_sweeps:
                    break
                if limits.late:
                    return of_whole_run(solution).ended(Status.TIME_BUDGET)
                if limits.callback is not None:
                    limits.callback(of_whole_run(solution).ended(Status.RUNNING))
        except KeyboardInterrupt:
            if solution is None:
                raise
            return of_whole_run(solution).interrupted()
        assert solution is not None
        return of_whole_run(solution)

    def __str__(self) -> str:
        return "ConvergentEP" + (f"({self.power:g})" if self.power != 1 else "")


def inner_minimum(
    problem: Problem, power: float, sites: Any, gamma: Any, key: jax.Array, limits: Limits, turns: float
) -> Inner:
    """An inner problem of the double loop solved, as far as the deadline and so many turns allow."""
    now, last = begin_inner(sites, gamma), int(min(TURNS, turns))
    while int(now.turns) < last and not bool(now.done) and not (int(now.turns) > 0 and limits.late):
        until = min(last, int(now.turns) + limits.portion(TURNS))
        now = compiled_turns(problem, power, gamma, now, key, np.asarray(until))
    return now


def ConvergentEP(*, power: float = 1.0, max_sweeps: int = 300, tol: float = 1e-8) -> DoubleLoop:
    """The double loop: minimises EP's energy (Power EP's, for a power other than 1) step by step and cannot diverge.

    Slow, but it ends at a fixed point of EP wherever the energy is bounded below; Newton's method is tried now and then
    to end sooner. It is driven from the host: not inside `jit` or `vmap`.

    Args:
        power: of the factors; 1 is EP.
        max_sweeps: outer steps after which the run ends all the same, status `max_sweeps`.
        tol: bound on the moment mismatch of every site at the state returned.

    Returns:
        The method, for `infer`.

    Raises:
        TypeError, ValueError: one of these cannot be run.

    Examples:
        >>> import cavity as cv
        >>> print(cv.infer(cv.models.clutter([0.8, 1.6, 2.1]), cv.ConvergentEP()).status)
        converged
    """
    return DoubleLoop(checks.number("power", power), max_sweeps, tol)


def flat_sites(problem: Problem, key: jax.Array) -> tuple[jax.Array, ...]:
    """Flat sites, or those of one pass where a pass marks what is impossible: no finite step of log weights can."""
    if any(group.family.local_size != group.family.size for group in problem.groups):
        return tuple(jnp.asarray(own) for own in ADF().solve(problem, None, key, Limits()).sites)
    return tuple(jnp.zeros((group.size, group.family.size)) for group in problem.groups)
