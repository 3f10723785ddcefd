"""`infer`: the public entry. Drives the compiled loop from the host, in chunks of sweeps, and closes the account."""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from cavity.inference.loop import advance_anew, advance_in_place, begin
from cavity.inference.methods import EP, Method
from cavity.inference.problem import Problem
from cavity.inference.solution import CODES, Solution, Status
from cavity.inference.state import Report, State
from cavity.numerics import checks
from cavity.numerics.precision import is_traced, to_numpy
from cavity.numerics.threads import one_blas_thread

#: a chunk of compiled sweeps aims at this length, so that an interruption is noticed soon.
CHUNK_SECONDS = 0.5


class HasProblem(Protocol):
    """Anything that can be turned into a problem."""

    def problem(self) -> Problem: ...


def infer(
    problem: HasProblem,
    method: Method | None = None,
    *,
    init: Any = None,
    key: jax.Array | None = None,
    max_seconds: float | None = None,
    callback: Callable[[Solution], Any] | None = None,
) -> Solution:
    """Approximate the posterior of `problem` by `method` (plain EP if none is named).

    May be called inside `jax.vmap` and `jax.jit`; then nothing is timed and no callback is made. A keyboard
    interruption hands back the last complete sweep, with status `interrupted`.

    Args:
        problem: a `Problem`, or anything with a `problem()` method.
        method: made by `EP`, `ADF`, `PowerEP` or `RestrictedEP`.
        init: sites to start from: a `Solution` of the same problem shape, or its `sites`.
        key: random key for shuffled orders and sampled moments; a fixed one is used when None.
        max_seconds: stop after the sweep that passes this time.
        callback: called after every sweep with the `Solution` so far (status `running`), and with the last one.
    """
    if not callable(getattr(problem, "problem", None)):
        raise TypeError(f"problem must be a Problem or have a problem() method; found {type(problem).__name__}.")
    assembled = problem.problem()
    method = EP() if method is None else method
    if not isinstance(method, Method):
        raise TypeError(f"method must be made by EP(), ADF(), PowerEP(...) or RestrictedEP(); found {method!r}.")
    method.checked()
    if max_seconds is not None:
        checks.positive("max_seconds", max_seconds)
    if key is not None and not jax.dtypes.issubdtype(getattr(key, "dtype", None), jax.dtypes.prng_key):
        raise TypeError(f"key must be made by jax.random.key(...); found {type(key).__name__}.")
    with jax.enable_x64(True):
        assembled.check()
        sites = initial_sites(assembled, init)
        key = jax.random.key(0) if key is None else key
        if is_traced((assembled, sites, key)):
            assembled = in_double(assembled)
            state = begin(assembled, method, sites, key)
            state, report, evidence = advance_anew(assembled, method, state, jnp.asarray(method.max_sweeps), key)
            return close(assembled, method, state, report, evidence)
        return drive(assembled, method, sites, key, max_seconds, callback)


def in_double(problem: Problem) -> Problem:
    """Numbers as float64: values mapped or differentiated outside a double-precision scope arrive marked as float32."""

    def convert(leaf: Any) -> Any:
        return jnp.asarray(leaf, float) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else leaf

    return jax.tree.map(convert, problem)


@one_blas_thread()
def drive(
    problem: Problem,
    method: Method,
    sites: tuple[jax.Array, ...] | None,
    key: jax.Array,
    max_seconds: float | None,
    callback: Callable[[Solution], Any] | None,
) -> Solution:
    """The host's loop over chunks: one sweep each when somebody listens or the time is limited, else by the clock.

    An interruption ends the run after the chunk it meets.
    """
    began = time.perf_counter()
    state = begin(problem, method, sites, key)
    # Somebody who listens is handed every state, so it must outlive the next chunk.
    advance = advance_in_place if callback is None else advance_anew
    chunk, done, reached = 1, 0, None
    while True:
        before, last = time.perf_counter(), jnp.asarray(min(done + chunk, method.max_sweeps))
        arrived: list[tuple[State, Report, jax.Array]] = []
        interrupted = False
        try:
            # The list takes the result before an interruption can come between: what it replaces is gone by then.
            arrived[:] = map(partial(advance, problem, method, last_sweep=last, key=key), (state,))
            jax.block_until_ready(arrived)
        except KeyboardInterrupt:
            interrupted = True  # what has begun is short and is waited for below
        if interrupted and not arrived and (reached is None or is_deleted(state)):
            raise KeyboardInterrupt
        reached = arrived[0] if arrived else reached
        assert reached is not None
        state, report, evidence = reached
        now, made = time.perf_counter(), int(state.sweep) - done
        done += made
        ended = Status.MAX_SWEEPS
        if not bool(state.finished) and done < method.max_sweeps:
            out_of_time = max_seconds is not None and now - began >= max_seconds
            ended = Status.INTERRUPTED if interrupted else Status.TIME_BUDGET if out_of_time else Status.RUNNING
        if callback is None and ended is Status.RUNNING:
            # The first chunk's time holds the compilation, so it can only make the second one too short.
            chunk = 1 if max_seconds is not None else max(1, int(CHUNK_SECONDS * made / (now - before)))
            continue
        closed = close(problem, method, state, report, evidence, unfinished=ended, seconds=now - began)
        solution = trimmed(to_numpy(closed))
        try:
            if callback is not None:
                callback(solution)
        except KeyboardInterrupt:
            return solution.interrupted()
        if ended is not Status.RUNNING:
            return solution.interrupted() if interrupted else solution


def is_deleted(state: State) -> bool:
    """Whether the memory of the state was taken over by a later one."""
    return any(leaf.is_deleted() for leaf in jax.tree.leaves(state))


def close(
    problem: Problem,
    method: Method,
    state: State,
    report: Report,
    evidence: jax.Array,
    unfinished: Status = Status.MAX_SWEEPS,
    seconds: float = float("nan"),
) -> Solution:
    """The solution for a state, with the status that its own measurement supports, `unfinished` where it is silent."""
    if unfinished is Status.RUNNING:
        code = jnp.asarray(CODES.index(Status.RUNNING))
    else:
        code = status_code(problem, method, state, report, unfinished)
    evaluations = [
        tilts * group.moments.evaluations(group.family)
        for tilts, group in zip(state.counts.tilts, problem.groups, strict=True)
    ]
    return Solution(
        problem=problem,
        q=state.q,
        groups=state.sites,
        log_scales=state.log_scales,
        log_evidence=evidence,
        code=code,
        sweeps=state.sweep,
        residuals=state.residuals,
        mismatch=report.largest,
        site_mismatch=report.mismatch,
        skipped=state.counts.improper_cavity,
        nonfinite=state.counts.nonfinite,
        shortened=state.counts.shortened,
        evaluations=sum(evaluations[1:], evaluations[0]),
        info=report.info,
        seconds=jnp.asarray(seconds),
    )


def status_code(problem: Problem, method: Method, state: State, report: Report, unfinished: Status) -> jax.Array:
    """The status as a number, from what was measured at the final state; the first that applies."""
    within = report.largest <= method.tol
    restricted = jnp.any(jnp.concatenate(report.given_up))
    cases = [
        (~problem.posterior.is_proper(state.q), Status.IMPROPER_POSTERIOR),
        (within & restricted, Status.CONVERGED_RESTRICTED),
        (within, Status.CONVERGED),
        (jnp.any(jnp.concatenate(report.nonfinite)), Status.NONFINITE_FACTOR),
        (jnp.array(method.single_pass), Status.SINGLE_PASS),
        (jnp.any(jnp.concatenate(report.improper)), Status.SITES_SKIPPED),
    ]
    code = jnp.asarray(CODES.index(unfinished))
    for condition, status in reversed(cases):
        code = jnp.where(condition, CODES.index(status), code)
    return code


def initial_sites(problem: Problem, init: Any) -> tuple[jax.Array, ...] | None:
    """`init` as one array a group, checked against the problem."""
    if init is None:
        return None
    given = init.groups if isinstance(init, Solution) else init if isinstance(init, tuple) else (init,)
    shapes = [(group.size, group.family.size) for group in problem.groups]
    if [np.shape(own) for own in given] != shapes:
        raise ValueError(f"init must hold sites of shape {shapes}; found {[np.shape(own) for own in given]}.")
    if not is_traced(given) and not all(np.all(np.isfinite(own)) for own in given):
        raise ValueError("init holds sites that are not finite.")
    # Copies: the run takes over the memory of its state, and these may be the sites of somebody's solution.
    return tuple(jnp.array(own, float, copy=True) for own in given)


def trimmed(solution: Solution) -> Solution:
    """Residuals cut to the sweeps that were made."""
    return dataclasses.replace(solution, residuals=solution.residuals[: int(solution.sweeps)])
