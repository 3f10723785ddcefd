"""One run of the loop, driven from the host in chunks of sweeps, and the account of how it ended."""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import to_numpy
from cavity._core.threads import one_blas_thread
from cavity.inference._learning import learn, learned_states, learns
from cavity.inference._loop import Start, advance_anew, advance_in_place, initial_state
from cavity.inference._state import Report, State
from cavity.inference.methods import Method
from cavity.inference.problem import Problem
from cavity.inference.solution import Solution
from cavity.inference.status import Status
from cavity.inference.stepping import as_solution

#: a chunk of compiled sweeps is made longer while it is shorter than this, so that an interruption is noticed soon.
CHUNK_SECONDS = 2.5
#: sweeps after which it is judged, again and again, whether going on is worth it: never by the clock.
PATIENCE = 16


@dataclasses.dataclass(frozen=True)
class Limits:
    """What ends a run besides its method.

    deadline: on the clock of `time.perf_counter`. callback: called with every state that is not the last.
    impatient: told the residuals so far, says whether more sweeps are not worth making.
    """

    deadline: float | None = None
    callback: Callable[[Solution], Any] | None = None
    impatient: Callable[[np.ndarray], bool] | None = None

    @property
    def passed(self) -> bool:
        """Whether the time is used up."""
        return self.deadline is not None and time.perf_counter() >= self.deadline


@one_blas_thread()
def drive(problem: Problem, method: Method, init: Start | None, key: jax.Array, limits: Limits) -> Solution:
    """The host's loop over chunks: one sweep each when somebody listens or the time is limited, else by the clock.

    An interruption ends the run after the chunk it meets.
    """
    began, compiled = time.perf_counter(), method.as_compiled()
    state = initial_state(problem, compiled, init, key, learned_states(problem))
    callback = limits.callback
    # Somebody who listens is handed every state, so it must outlive the next chunk.
    advance = advance_in_place if callback is None else advance_anew
    chunk, done, reached = 1, 0, None
    while True:
        before, last = time.perf_counter(), jnp.asarray(min(done + chunk, method.max_sweeps))
        arrived: list[tuple[State, Report, jax.Array]] = []
        interrupted = False
        try:
            # The list takes the result before an interruption can come between: what it replaces is gone by then.
            arrived[:] = map(partial(advance, problem, compiled, last_sweep=last, key=key), (state,))
            jax.block_until_ready(arrived)
        except KeyboardInterrupt:
            interrupted = True  # what has begun is short and is waited for below
        if interrupted and not arrived and (reached is None or is_deleted(state)):
            raise KeyboardInterrupt
        reached = arrived[0] if arrived else reached
        assert reached is not None
        state, report, evidence = reached
        state = learn(problem, method, state, report)
        now, made = time.perf_counter(), int(state.sweep) - done
        done += made
        ended = Status.MAX_SWEEPS
        if not bool(state.finished) and done < method.max_sweeps:
            ended = Status.INTERRUPTED if interrupted else Status.TIME_BUDGET if limits.passed else Status.RUNNING
            if ended is Status.RUNNING and limits.impatient is not None and done % PATIENCE == 0:
                ended = Status.STALLED if limits.impatient(np.asarray(state.residuals)[:done]) else ended
        if callback is None and ended is Status.RUNNING:
            # The first chunk's time holds the compilation, so it can only make the second one too short.
            # Longer chunks measure less often; one that was short enough is doubled at least.
            room = CHUNK_SECONDS / (now - before)
            chunk = (
                1
                if limits.deadline is not None or learns(problem)
                else max(1, int(made * max(room, 2.0 if room > 1 else 1.0)))
            )
            chunk = chunk if limits.impatient is None else min(chunk, PATIENCE - done % PATIENCE)
            continue
        closed = as_solution(problem, method, state, report, evidence, unfinished=ended, seconds=now - began)
        solution = trimmed(to_numpy(closed))
        if ended is not Status.RUNNING:
            return solution.interrupted() if interrupted else solution
        try:
            if callback is not None:
                callback(solution)
        except KeyboardInterrupt:
            return solution.interrupted()


def is_deleted(state: State) -> bool:
    """Whether the memory of the state was taken over by a later one."""
    return any(leaf.is_deleted() for leaf in jax.tree.leaves(state))


def trimmed(solution: Solution) -> Solution:
    """Residuals cut to the sweeps that were made."""
    return dataclasses.replace(solution, residuals=solution.residuals[: int(solution.sweeps)])
