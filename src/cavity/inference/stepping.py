"""Your own loop: the parts `infer` is made of, one sweep at a time.

    state = init(problem, method)
    for _ in range(method.max_sweeps):
        state, info = step(problem, method, state)
        if info.mismatch <= method.tol:
            break
    solution = finish(problem, method, state, measure(problem, method, state))

All of them may be called inside `jax.jit`, `jax.vmap` and JAX's loops; outside they are compiled once for each shape.
What happens between two sweeps is the caller's business: `infer` also watches the clock, lets learned factors `learn`,
and goes on where the measurement disagrees with what the sweeps met.

Examples:
    >>> import cavity as cv
    >>> problem, method = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0]), cv.EP()
    >>> state, mismatch = cv.stepping.init(problem, method), 1.0
    >>> while mismatch > method.tol:
    ...     state, info = cv.stepping.step(problem, method, state)
    ...     mismatch = info.mismatch
    >>> solution = cv.stepping.finish(problem, method, state, cv.stepping.measure(problem, method, state))
    >>> print(solution.status, solution.mean.round(3))
    converged 1.769
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cavity._core.precision import float64, is_traced
from cavity._core.tiers import tiered_jit
from cavity.inference import _evidence, _loop
from cavity.inference._visit import Counts, Report, State
from cavity.inference.problem import Problem
from cavity.inference.solution import Solution, as_solution, status_code
from cavity.inference.status import Status
from cavity.inference.update_rule import MAX_HALVINGS, UpdateRule

__all__ = ["evidence_of_pass", "finish", "init", "learn", "measure", "status_code", "step"]
__all__ += ["MAX_HALVINGS", "Counts", "Report", "State", "SweepInfo"]


class SweepInfo(NamedTuple):
    """What one sweep met.

    Attributes:
        mismatch: the largest moment mismatch of all sites, each taken when it was visited; infinite where a site could
            not be updated.
        counts: integrations made, sites left alone and steps halved, in this sweep.

    Examples:
        >>> import cavity as cv
        >>> problem, method = cv.models.clutter([0.1, 2.3, 1.9]), cv.EP()
        >>> state, info = cv.stepping.step(problem, method, cv.stepping.init(problem, method))
        >>> bool(info.mismatch == state.residuals[0]), int(info.counts.tilts[0])
        (True, 3)
    """

    mismatch: jax.Array
    counts: Counts


@float64
def init(problem: Any, method: UpdateRule, sites: tuple[Any, ...] | None = None) -> State:
    """The state before the first sweep.

    Args:
        problem: a `Problem`, or anything with a `problem()` method.
        method: made by `EP`, `ADF`, `PowerEP`, `RelaxedEP` or `RestrictedEP`.
        sites: natural parameters to start from, one array (sites, parameters) per group; flat sites if None.

    Returns:
        A `State`: q, sites, log sᵢ and mismatch of every site as last visited, counts, and residuals with room for
        `method.max_sweeps` sweeps. log sᵢ are 0 until they are known from a visit or a measurement.

    Raises:
        TypeError: the method is not made of sweeps alone.

    Examples:
        >>> import cavity as cv
        >>> problem = cv.models.clutter([0.1, 2.3, 1.9])
        >>> cv.stepping.init(problem, cv.EP()).sites[0].shape
        (3, 2)
    """
    check_method(method)
    start = None if sites is None else _loop.Start(tuple(jnp.asarray(own, float) for own in sites))
    return _loop.blank_state(problem.problem(), method, start)


@float64
def step(problem: Any, method: UpdateRule, state: State, key: jax.Array | None = None) -> tuple[State, SweepInfo]:
    """One sweep: every site is visited as often as the schedule says, and q is rebuilt from the sites.

    Args:
        problem: the one the state was made for. Its numbers may change between sweeps, as those of the data.
        method: the one the state was made for. Its numbers may change as well, as the damping.
        state: of `init` or of the step before.
        key: for shuffled orders and sampled moments, the same in every sweep: the sweep's own number is folded in where
            that is wanted, and sampled moments need the same draws to have a fixed point. A fixed one if None.

    Returns:
        The state after the sweep, and a `SweepInfo`.

    Raises:
        TypeError: the method is not made of sweeps alone.

    Examples:
        >>> import cavity as cv
        >>> problem, method = cv.models.clutter([0.1, 2.3, 1.9]), cv.EP()
        >>> state, info = cv.stepping.step(problem, method, cv.stepping.init(problem, method))
        >>> int(state.sweep), bool(info.mismatch > method.tol)
        (1, True)
    """
    check_method(method)
    problem = problem.problem()
    return problem.raise_failures(_step(problem, method, state, jax.random.key(0) if key is None else key))


@tiered_jit(inline=True)
def _step(problem: Problem, method: UpdateRule, state: State, key: jax.Array) -> tuple[State, SweepInfo]:
    after = _loop.sweep_once(problem, method, state, key)
    mismatch = jnp.max(jnp.concatenate(after.mismatch))
    return after, SweepInfo(mismatch, jax.tree.map(jnp.subtract, after.counts, state.counts))


@float64
def measure(problem: Any, method: UpdateRule, state: State, key: jax.Array | None = None) -> Report:
    """Mismatch and log sᵢ of every site at the state itself, which stays as it is.

    The mismatch a sweep meets belongs to states on the way; whether a state is a fixed point, only this says.

    Args:
        problem: as for `step`.
        method: as for `step`.
        state: as for `step`.
        key: as for `step`.

    Returns:
        A `Report`: arrays of one entry per site, one array per group, and `largest`, the largest mismatch.

    Raises:
        TypeError: the method is not made of sweeps alone.

    Examples:
        >>> import cavity as cv
        >>> problem, method = cv.models.clutter([0.1, 2.3, 1.9]), cv.EP()
        >>> report = cv.stepping.measure(problem, method, cv.stepping.init(problem, method))
        >>> report.mismatch[0].shape
        (3,)
    """
    check_method(method)
    problem = problem.problem()
    return problem.raise_failures(
        _loop.measure_state(problem, method, state, jax.random.key(0) if key is None else key)
    )


@float64
def learn(problem: Any, method: UpdateRule, state: State, report: Report) -> State:
    """The state after learned factors have asked their oracles about the sites they were unsure of; on the host.

    Args:
        problem: as for `step`.
        method: as for `step`.
        state: after `step`; its `moments` are what the factors knew in that sweep.
        report: what `measure` returned for this state.

    Returns:
        The state with what they know now; itself where no factor learns.

    Raises:
        TypeError: the method is not made of sweeps alone.

    Examples:
        >>> import cavity as cv
        >>> learned = cv.learned.JustInTime(cv.Quadrature())
        >>> problem = cv.models.latent_gaussian([1.0, -1.0], cv.factors.Logistic(), X=[[1.0], [0.3]], moments=learned)
        >>> method = cv.EP(schedule=cv.Parallel())
        >>> state, _ = cv.stepping.step(problem, method, cv.stepping.init(problem, method))
        >>> state = cv.stepping.learn(problem, method, state, cv.stepping.measure(problem, method, state))
        >>> learned.report().queries
        2
    """
    check_method(method)
    problem = problem.problem()
    return _loop.learn_unsure(problem, method, state, report) if _loop.learns(problem) else state


@float64
def finish(
    problem: Any, method: UpdateRule, state: State, report: Report, *, unfinished: Status = Status.MAX_SWEEPS
) -> Solution:
    """The `Solution` a state is, with log evidence and the status that its measurement supports.

    Args:
        problem: as for `step`.
        method: as for `step`.
        state: as for `step`.
        report: what `measure` returned for this state.
        unfinished: the status where the measurement names none: the sites do not agree yet, and nothing went wrong.

    Returns:
        The solution; `model.interpret(solution)` adds what only the model knows.

    Raises:
        TypeError: the method is not made of sweeps alone.

    Examples:
        >>> import cavity as cv
        >>> problem, method = cv.models.clutter([0.1, 2.3, 1.9]), cv.ADF()
        >>> state, _ = cv.stepping.step(problem, method, cv.stepping.init(problem, method))
        >>> print(cv.stepping.finish(problem, method, state, cv.stepping.measure(problem, method, state)).status)
        single_pass
    """
    check_method(method)
    problem = problem.problem()
    state, evidence = _evidence.conclude(problem, method, state, report)
    if not is_traced(state.sweep):
        state = state._replace(residuals=state.residuals[: int(state.sweep)])
    return as_solution(problem, method, state, report, evidence, unfinished)


@float64
def evidence_of_pass(problem: Any, method: UpdateRule, state: State) -> jax.Array:
    """The log evidence after one pass from flat sites, Σ log Zᵢ against the cavities of the visits; not measured.

    Args:
        problem: as for `step`, of a posterior with a divergence: not one of discrete variables alone.
        method: as for `step`, one that makes a single pass, such as `ADF`.
        state: after the pass.

    Returns:
        One number.

    Raises:
        TypeError: the method makes more than one pass.

    Examples:
        >>> import cavity as cv
        >>> problem, method = cv.models.clutter([0.1, 2.3, 1.9]), cv.ADF()
        >>> state, _ = cv.stepping.step(problem, method, cv.stepping.init(problem, method))
        >>> print(cv.stepping.evidence_of_pass(problem, method, state).round(3))
        -7.68
    """
    check_method(method)
    if not method.single_pass:
        raise TypeError(f"method must be one that makes a single pass, such as ADF(); found {method}.")
    return _evidence.evidence_of_visits(problem.problem(), method, state)


def check_method(method: Any) -> None:
    """Refuse methods that are not made of sweeps alone."""
    if not isinstance(method, UpdateRule):
        raise TypeError(
            f"method must be one that is made of sweeps: EP(), ADF(), PowerEP(...), RelaxedEP(...) or RestrictedEP(); "
            f"found {method!r}."
        )
