"""Factors that learn while a run goes on: between sweeps they are told which sites they could not answer."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from cavity.inference.methods import Method
from cavity.inference.problem import Problem
from cavity.inference.state import Report, State


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

    A state that was finished stays so where nothing was learned.
    """
    groups, changed = list(problem.groups), False
    for number, (group, silent) in enumerate(zip(problem.groups, report.nonfinite, strict=True)):
        if not group.factor.learns or not np.any(silent):
            continue
        # All sites, whichever are silent: their number does not change, so nothing is compiled again.
        cavities = cavities_of(problem, method, state, number)
        factor = group.factor.consulted(group.family, cavities, group.data, np.asarray(silent))
        groups[number] = dataclasses.replace(group, factor=factor)
        changed = True
    if not changed:
        return problem, state
    return dataclasses.replace(problem, groups=tuple(groups)), state._replace(finished=jnp.zeros((), bool))
