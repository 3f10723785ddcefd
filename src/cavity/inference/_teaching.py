"""Factors that learn while a run goes on: between sweeps they are told which sites they could not answer."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from cavity.inference._state import Report, State
from cavity.inference.methods import Method
from cavity.inference.problem import Problem


def learns(problem: Problem) -> bool:
    """Whether some factor does."""
    return any(group.factor.learns for group in problem.groups)


def up_to_date(problem: Problem) -> Problem:
    """The problem with what its factors have learned since it was made."""
    if not learns(problem):
        return problem
    groups = [
        dataclasses.replace(own, factor=own.factor.current(own.family, own.data)) if own.factor.learns else own
        for own in problem.groups
    ]
    return dataclasses.replace(problem, groups=tuple(groups))


@partial(jax.jit, static_argnames="number")
def cavities_of(problem: Problem, method: Method, state: State, number: int) -> jax.Array:
    """The cavities of all sites of a group."""
    group = problem.groups[number]
    local = problem.posterior.marginals(problem.prior, state.q, group.scope, jnp.arange(group.size))
    return local - method.power * state.sites[number]


def taught(problem: Problem, method: Method, state: State, report: Report) -> tuple[Problem, State]:
    """The problem after its factors have learned about the sites that they gave no moments for, and the state with it.

    A state that was finished stays so where nothing was learned that it depends on.
    """
    if not learns(problem):
        return problem, state
    groups, changed, ended = list(problem.groups), False, bool(state.finished)
    for number, (group, silent) in enumerate(zip(problem.groups, report.nonfinite, strict=True)):
        if not group.factor.learns:
            continue
        # All sites, whichever are silent: their number does not change, so nothing is compiled again.
        cavities = cavities_of(problem, method, state, number)
        factor, other = group.factor.consulted(group.family, cavities, group.data, np.asarray(silent), ended)
        groups[number] = dataclasses.replace(group, factor=factor)
        changed = changed or other
    if changed:
        state = state._replace(finished=jnp.zeros((), bool))
    return dataclasses.replace(problem, groups=tuple(groups)), state
