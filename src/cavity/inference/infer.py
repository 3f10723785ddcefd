"""`infer`: the public entry. Checks what it is given and hands it to the run of its method."""

import contextlib
import math
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import double_precision, is_traced, is_tracing, refuse_cut, refuse_fork
from cavity.inference._loop import Start
from cavity.inference.methods import Auto, Method
from cavity.inference.methods.base import Limits
from cavity.inference.problem import Problem
from cavity.inference.solution import Solution

S = TypeVar("S", bound=Solution, covariant=True)


class HasProblem(Protocol):
    """Anything that can be turned into a problem."""

    def problem(self) -> Problem: ...


class Model(HasProblem, Protocol[S]):
    """What can also say what a solution means to it."""

    def interpret(self, solution: Solution) -> S: ...


@runtime_checkable
class PaddedModel(Model[S], Protocol[S]):
    """What runs a padded problem, of which its `interpret` takes the padding off."""

    def padded_problem(self, method: Method, init: Any) -> tuple[Problem, Any]: ...


@overload
def infer(
    problem: Model[S],
    method: Method | None = None,
    *,
    init: Solution | tuple[Any, ...] | None = None,
    key: jax.Array | None = None,
    max_seconds: float | None = None,
    callback: Callable[[S], Any] | None = None,
) -> S: ...


@overload
def infer(
    problem: HasProblem,
    method: Method | None = None,
    *,
    init: Solution | tuple[Any, ...] | None = None,
    key: jax.Array | None = None,
    max_seconds: float | None = None,
    callback: Callable[[Solution], Any] | None = None,
) -> Solution: ...


def infer(
    problem: HasProblem,
    method: Method | None = None,
    *,
    init: Solution | tuple[Any, ...] | None = None,
    key: jax.Array | None = None,
    max_seconds: float | None = None,
    callback: Callable[[Any], Any] | None = None,
) -> Solution:
    """Approximate the posterior of `problem` by `method`, `Auto()` if none is named: EP, and what helps where it fails.

    May be called inside `jax.vmap`, `jax.jit` and `jax.jvp`. Where its numbers are traced nothing is timed, no callback
    is made, `Auto` is its first method alone, plain EP, and the result is a bare `Solution`. A keyboard interruption
    returns the last complete sweep, with status `interrupted`.

    Args:
        problem: a `Problem`, or anything with a `problem()` method: a graph, a model.
        method: made by `Auto`, `EP`, `ADF`, `PowerEP`, `RelaxedEP`, `RestrictedEP` or `ConvergentEP`.
        init: sites to start from: a `Solution` of the same problem shape, or its `sites`.
        key: random key for shuffled orders and sampled moments; a fixed one is used when None.
        max_seconds: stop after the sweep that passes this time.
        callback: called after every sweep with the solution so far (status `running`), and with the last one.

    Returns:
        The solution; what `problem.interpret(solution)` makes of it where the problem has that method.

    Raises:
        TypeError, ValueError: what was given cannot be run; nothing has been computed then.
        RuntimeError: this process was forked from one that has computed.

    Examples:
        >>> import cavity
        >>> above = cavity.models.truncation(0.0, 1.0, lower=0.0)
        >>> print(round(cavity.infer(above).mean, 4))
        0.7979
    """
    refuse_fork()
    if not callable(getattr(problem, "problem", None)):
        raise TypeError(f"problem must be a Problem or have a problem() method; found {type(problem).__name__}.")
    method = Auto() if method is None else method
    if not isinstance(method, Method):
        raise TypeError(f"method must be made by Auto(), EP(), PowerEP(...) and the like; found {method!r}.")
    if max_seconds is not None:
        checks.positive("max_seconds", max_seconds)
    if key is not None:
        checks.random_key("key", key)
    deadline = math.inf if max_seconds is None else time.perf_counter() + max_seconds
    # Known numbers are computed with at once, also inside a caller's `jit`.
    traced = is_tracing()
    with jax.ensure_compile_time_eval() if traced else contextlib.nullcontext(), double_precision():
        padded = isinstance(problem, PaddedModel)
        assembled, init = problem.padded_problem(method, init) if padded else (problem.problem(), init)
        refuse_cut((problem, assembled, init, method))
        assembled.validate()
        method.validate(assembled)
        first = None if init is None else initial(assembled, method, init)
        key = jax.random.key(0) if key is None else key
        if is_traced((assembled, first, key)):
            return method.solve_traced(assembled, first, key)
        interpret = getattr(problem, "interpret", None)
        reported = callback if callback is None or interpret is None else lambda found: callback(interpret(found))
        solution = method.solve(assembled, first, key, Limits(deadline, reported))
        solution = solution if interpret is None else interpret(solution)
    try:
        if callback is not None:
            callback(solution)
    except KeyboardInterrupt:
        return solution.interrupted()
    return solution


def initial(problem: Problem, method: Method, init: Any) -> Start:
    """`init` as one array per group, checked against the problem; what its sites remember where the method does too."""
    given = init.sites if isinstance(init, Solution) else init
    if not isinstance(given, tuple | list):
        raise TypeError(f"init must be a Solution or its sites, one array per group; found {type(init).__name__}.")
    shapes = [(group.size, group.family.size) for group in problem.groups]
    if [np.shape(own) for own in given] != shapes:
        raise ValueError(f"init must hold sites of shape {shapes}; found {[np.shape(own) for own in given]}.")
    if not is_traced(given) and not all(np.all(np.isfinite(own)) for own in given):
        raise ValueError("init holds sites that are not finite.")

    def copied(arrays: Any) -> tuple[jax.Array, ...]:
        # The run takes over the memory of its state, and these may be the arrays of a caller's solution.
        return tuple(jnp.array(own, float, copy=True) for own in arrays)

    wanted = 0 if method.sweeps is None else method.sweeps.projection.memory
    known = init.memory if isinstance(init, Solution) and wanted else ()
    same = len(known) == len(given) and all(np.shape(own)[1] == wanted for own in known)
    return Start(copied(given), copied(known) if same else None)
