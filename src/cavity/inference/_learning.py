"""Moments that learn, between two sweeps: what they were unsure of is answered by an oracle on the host.

Learned state is traced data of the compiled sweeps (`State.moments`), so what was learned recompiles nothing. A site
whose moments are unsure stays as it was; here its cavity is handed to the strategy, which learns, and the run goes on.
"""

from functools import partial
from operator import attrgetter

import jax
import jax.numpy as jnp
import numpy as np

from cavity.inference._visit import Report, State
from cavity.inference.problem import Problem
from cavity.inference.update_rule import UpdateRule
from cavity.moments.base import Batch


def learns(problem: Problem) -> bool:
    """Whether some group's moments do."""
    return any(map(attrgetter("moments.learns"), problem.groups))


#: a copy: a run takes over the memory of its state, and the strategy keeps these arrays
own_memory = partial(jnp.array, copy=True)


@partial(jax.jit, static_argnames="number")
def cavities_of(problem: Problem, method: UpdateRule, state: State, number: int) -> jax.Array:
    """The cavities of all sites of a group."""
    group = problem.groups[number]
    local = problem.posterior.marginals(problem.prior, state.q, group.scope, jnp.arange(group.size))
    return local - method.power * state.sites[number]


def learn_unsure(problem: Problem, method: UpdateRule, state: State, report: Report) -> State:
    """The state after the moments that learn were given the sites they were unsure of.

    A state that was finished stays so where nothing was learned that it depends on.
    """
    if not learns(problem):
        return state
    moments, goes_on, ended = list(state.moments), False, bool(state.finished)
    for number, (group, unsure) in enumerate(zip(problem.groups, report.unsure, strict=True)):
        if not group.moments.learns:
            continue
        # All sites, whichever are unsure: their number does not change, so nothing is compiled again.
        cavities = cavities_of(problem, method, state, number)
        batch = Batch(group.factor, group.family, cavities, group.data, np.asarray(unsure), ended)
        learned, changed = group.moments.learn(state.moments[number], batch)
        moments[number] = jax.tree.map(own_memory, learned)
        goes_on = goes_on or changed
    state = state._replace(moments=tuple(moments))
    return state._replace(finished=jnp.zeros((), bool)) if goes_on else state
