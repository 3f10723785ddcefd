"""Methods that are sweeps and nothing else: EP and its relatives, driven from the host in chunks of sweeps."""

import dataclasses
import math
import time
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import forward_only, to_numpy
from cavity._core.pytrees import pytree_dataclass, static
from cavity._core.system import one_blas_thread
from cavity.inference._loop import (
    Start,
    advance_anew,
    advance_in_place,
    initial_state,
    learn_unsure,
    learns,
    own_memory,
)
from cavity.inference._skipping import EVERY, NEWS
from cavity.inference._visit import Report, State
from cavity.inference.methods.base import Limits, Method
from cavity.inference.problem import Problem
from cavity.inference.relaxed import FORMS, PENALTIES, Relaxed
from cavity.inference.schedule import Schedule
from cavity.inference.solution import Solution, as_solution
from cavity.inference.status import CODES, Status
from cavity.inference.update_rule import Matched, Projection, Restricted, UpdateRule

#: a chunk of compiled sweeps is made longer while it is shorter than this, so that an interruption is noticed soon.
CHUNK_SECONDS = 2.5
#: sweeps after which it is judged, again and again, whether going on is worth it: never by the clock.
PATIENCE = 2 * EVERY


@pytree_dataclass
class Sweeps(UpdateRule, Method):
    """A method that is sweeps and nothing else: the one loop with other parts plugged in.

    name: of the method, shown to users; it changes nothing that runs.
    """

    name: str = static(default="EP")

    @property
    def sweeps(self) -> "Sweeps":
        return self

    def validate(self, problem: Problem) -> None:
        for group in problem.groups:
            self.projection.validate(group.family, self.power)

    @one_blas_thread()
    def solve(self, problem: Problem, init: Start | None, key: jax.Array, limits: Limits) -> Solution:
        """The host's loop over chunks: one sweep each with a callback or a time limit, else by the clock.

        An interruption ends the run after the chunk it meets.
        """
        began, compiled, learning = time.perf_counter(), self.as_compiled(), learns(problem)
        learned = tuple(group.moments.init(group) for group in problem.groups) if learning else None
        state = initial_state(problem, compiled, init, jax.tree.map(own_memory, learned))
        callback = limits.callback
        # Somebody who listens is handed every state, so it must outlive the next chunk.
        advance = advance_in_place if callback is None else advance_anew
        chunk, done, interrupted = 1, 0, False
        reached: list[tuple[State, Report, jax.Array]] = []
        while True:
            before, last = time.perf_counter(), np.asarray(min(done + chunk, self.max_sweeps))
            # A chunk may take over the memory of its state, so that its result is all there is. Python notices an
            # interruption between two of its own instructions, and the list takes the result inside a single one.
            try:
                reached[:] = map(partial(advance, problem, compiled, last_sweep=last, key=key), (state,))
                problem.raise_failures(jax.block_until_ready(reached))
                if learning:
                    reached[0] = (learn_unsure(problem, self, *reached[0][:2]), *reached[0][1:])
            except KeyboardInterrupt:
                interrupted = True  # what has begun is short and is waited for by whoever looks at it
            if interrupted and (not reached or is_deleted(reached[0])):
                raise KeyboardInterrupt
            state, report, evidence = reached[0]
            now, made = time.perf_counter(), int(state.sweep) - done
            done += made
            ended = Status.MAX_SWEEPS
            if not bool(state.finished) and done < self.max_sweeps:
                in_time = Status.RUNNING if now < limits.deadline else Status.TIME_BUDGET
                ended = Status.INTERRUPTED if interrupted else in_time
                hopeless = bool(state.skipping.hopeless)
                if limits.impatient is not None and done % PATIENCE == 0 and float(state.skipping.mismatch) < NEWS:
                    hopeless = hopeless or limits.impatient(np.asarray(state.residuals)[:done])
                if ended is Status.RUNNING and hopeless:
                    ended = Status.STALLED
            if callback is None and ended is Status.RUNNING:
                # The first chunk's time holds the compilation, so it can only make the second one too short. Longer
                # chunks measure less often; one that was short enough is doubled at least.
                room = CHUNK_SECONDS / (now - before)
                chunk = max(1, int(made * max(room, 2.0 if room > 1 else 1.0)))
                chunk = 1 if limits.deadline < math.inf or learning else chunk
                chunk = chunk if limits.impatient is None else min(chunk, PATIENCE - done % PATIENCE)
                continue
            closed = as_solution(problem, self, state, report, evidence, unfinished=ended, seconds=now - began)
            solution = to_numpy(closed)
            solution = dataclasses.replace(solution, residuals=solution.residuals[:done])
            if learning and solution.converged and not bool(state.finished):
                # The moments agree, but what they rest on was found wanting just now.
                solution = dataclasses.replace(solution, code=np.asarray(CODES.index(Status.UNSURE_FACTOR)))
            if ended is not Status.RUNNING:
                return solution.interrupted() if interrupted else solution
            try:
                if callback is not None:
                    callback(solution)
            except KeyboardInterrupt:
                return solution.interrupted()

    def solve_traced(self, problem: Problem, init: Start | None, key: jax.Array) -> Solution:
        if learns(problem):
            raise TypeError(
                "a learned factor asks its oracle between sweeps, on the host, and cannot run inside jax.vmap or "
                "jax.jit; call infer outside."
            )
        problem = in_double(problem)
        state = initial_state(problem, self, init)
        state, report, evidence = advance_anew(problem, self, state, jnp.asarray(self.max_sweeps), key)
        found = as_solution(problem, self, state, report, evidence)
        given_up = state.skipping.hopeless & (found.code == CODES.index(Status.MAX_SWEEPS))
        code = jnp.where(given_up, CODES.index(Status.STALLED), found.code)
        return forward_only(dataclasses.replace(found, code=code))

    def __str__(self) -> str:
        """The method in words; a power or damping other than the usual one is named."""
        weight = getattr(self.projection, "c", None)
        power = f"({self.power:g})" if self.power != 1 else "" if weight is None else f"({weight:g})"
        damped = f", damping {self.damping:g}" if self.damping != min(self.power, 1.0) else ""
        return f"{self.name}{power}{damped}"


def is_deleted(reached: Any) -> bool:
    """Whether the memory of this was taken over by a later state."""
    return any(leaf.is_deleted() for leaf in jax.tree.leaves(reached))


def in_double(problem: Problem) -> Problem:
    """Numbers as float64: values mapped or differentiated outside a double-precision scope arrive marked as float32."""

    def convert(leaf: Any) -> Any:
        return jnp.asarray(leaf, float) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else leaf

    return jax.tree.map(convert, problem)


def ADF(*, schedule: Schedule | None = None, projection: Projection = Matched()) -> Sweeps:
    """Assumed-density filtering: one pass from flat sites (thesis 3.1).

    Args:
        schedule: the order in which sites are visited, such as `cavity.Parallel()`; None leaves it to the problem.
        projection: from a tilted distribution to a message; moment matching, or `cavity.Cowell()`.

    Returns:
        The method, for `infer` and `cavity.stepping`.

    Raises:
        TypeError, ValueError: schedule or projection are none.

    Examples:
        >>> import cavity as cv
        >>> print(cv.infer(cv.models.clutter([0.8, 1.6, 2.1]), cv.ADF()).status)
        single_pass
    """
    return Sweeps(projection, schedule, max_sweeps=1, single_pass=True, name="ADF")


def EP(
    *,
    schedule: Schedule | None = None,
    damping: float = 1.0,
    max_sweeps: int = 200,
    tol: float = 1e-8,
    projection: Projection = Matched(),
) -> Sweeps:
    """Expectation propagation (thesis 3.2).

    Args:
        schedule: the order in which sites are visited, such as `cavity.Parallel()`; None leaves it to the problem.
        damping: the share of every step that is taken, 1 for the full step.
        max_sweeps: sweeps after which the run ends all the same, status `max_sweeps`.
        tol: bound on the moment mismatch of every site at the state returned.
        projection: from a tilted distribution to a message; moment matching, or `cavity.Cowell()`.

    Returns:
        The method, for `infer` and `cavity.stepping`.

    Raises:
        TypeError, ValueError: one of these cannot be run.

    Examples:
        >>> import cavity as cv
        >>> print(cv.infer(cv.models.clutter([0.8, 1.6, 2.1]), cv.EP()).status)
        converged
    """
    return Sweeps(projection, schedule, damping=damping, max_sweeps=max_sweeps, tol=tol)


def PowerEP(
    power: float,
    *,
    schedule: Schedule | None = None,
    damping: float | None = None,
    max_sweeps: int = 1000,
    tol: float = 1e-8,
) -> Sweeps:
    """EP on fractional factors: deletes site**power, matches factor**power × cavity, scales the message by 1/power.

    Args:
        power: of the factors; 1 is EP, towards 0 the variational approximation.
        schedule: the order in which sites are visited, such as `cavity.Parallel()`; None leaves it to the problem.
        damping: the share of every step that is taken; None means min(power, 1): q then takes the tilted moments
            exactly, and the undamped step, 1/power times as long, would overshoot.
        max_sweeps: sweeps after which the run ends all the same, status `max_sweeps`.
        tol: bound on the moment mismatch of every site at the state returned.

    Returns:
        The method, for `infer` and `cavity.stepping`.

    Raises:
        TypeError, ValueError: one of these cannot be run.

    Examples:
        >>> import cavity as cv
        >>> print(cv.infer(cv.models.clutter([0.8, 1.6, 2.1]), cv.PowerEP(0.5)).status)
        converged
    """
    power = checks.number("power", power)
    damping = min(power, 1.0) if damping is None else damping
    return Sweeps(Matched(), schedule, power, damping, max_sweeps, tol, name="PowerEP")


def RestrictedEP(
    *,
    printed: bool = False,
    schedule: Schedule | None = None,
    damping: float = 1.0,
    max_sweeps: int = 1000,
    tol: float = 1e-8,
) -> Sweeps:
    """EP whose sites are kept proper inside the projection (thesis 3.2.1).

    Args:
        printed: whether to take the thesis's v = 1e8 in place of ∞.
        schedule: the order in which sites are visited, such as `cavity.Parallel()`; None leaves it to the problem.
        damping: the share of every step that is taken, 1 for the full step.
        max_sweeps: sweeps after which the run ends all the same, status `max_sweeps`.
        tol: bound on the moment mismatch of every site at the state returned.

    Returns:
        The method, for `infer` and `cavity.stepping`.

    Raises:
        TypeError, ValueError: one of these cannot be run.

    Examples:
        >>> import cavity as cv
        >>> print(cv.infer(cv.models.clutter([0.8, 1.6, 2.1]), cv.RestrictedEP()).status)
        converged
    """
    projection = Restricted(floor=1e-8 if printed else 0.0)
    return Sweeps(projection, schedule, damping=damping, max_sweeps=max_sweeps, tol=tol, name="RestrictedEP")


def RelaxedEP(
    c: float | None = None,
    *,
    penalty: Literal["natural", "strength"] = "natural",
    scale_free: bool = True,
    form: Literal["mean", "message"] = "mean",
    sequential: bool = False,
    schedule: Schedule | None = None,
    damping: float = 1.0,
    max_sweeps: int = 1000,
    tol: float = 1e-8,
) -> Sweeps:
    """EP whose sites may relax moment matching, at a price of c (relaxed EP, equation 5); large c is EP.

    For scalar Gaussian sites.

    Args:
        c: the price of relaxation, which has to be given: `Auto` tries 0.1, then 0.01.
        penalty: "natural", the l1 norm of the relaxation factor's natural parameters (4), or "strength", |b| (35).
        scale_free: whether the penalty is in units of the cavity's standard deviation.
        form: of the relaxation factor: "mean", a Gaussian around the old site's mean (11), or "message", the old site
            to the power b (18).
        sequential: whether b is found first and q then, in place of both together (end of 3.2).
        schedule: the order in which sites are visited, such as `cavity.Parallel()`; None leaves it to the problem.
        damping: the share of every step that is taken, 1 for the full step.
        max_sweeps: sweeps after which the run ends all the same, status `max_sweeps`.
        tol: bound on the moment mismatch of every site at the state returned.

    Returns:
        The method, for `infer` and `cavity.stepping`.

    Raises:
        TypeError, ValueError: one of these cannot be run, or is not known.

    Examples:
        >>> import cavity as cv
        >>> print(cv.infer(cv.models.clutter([0.8, 1.6, 2.1]), cv.RelaxedEP(0.1)).status)
        converged
    """
    if c is None:
        raise TypeError("RelaxedEP needs c=..., the price of relaxation: try c=0.1, then c=0.01; a large c is EP.")
    if not checks.number("c", c) >= 0:
        raise ValueError(f"c must not be negative; found {c}.")
    for name, value, known in (("penalty", penalty, PENALTIES), ("form", form, FORMS)):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}; found {value!r}.")
    projection = Relaxed(float(c), penalty, bool(scale_free), form, bool(sequential))
    return Sweeps(projection, schedule, damping=damping, max_sweeps=max_sweeps, tol=tol, name="RelaxedEP")
