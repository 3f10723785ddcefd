"""Coupled hidden Markov models: three binary chains that push each other, each observed with noise."""

from typing import NamedTuple

import numpy as np

from cavity.discrete import DiscreteGraph

CHAINS, LENGTH = 3, 10
#: how much a chain keeps its own state, on the scale of log odds of a spin ±1
PERSISTENCE = 1.0
#: probability that an observation shows the hidden state
ACCURACY = 0.75


class Model(NamedTuple):
    """graph: with its observations as soft evidence. slices: variables by time. steps: factors of every transition."""

    graph: DiscreteGraph
    slices: list[list[int]]
    steps: list[list[int]]


def coupled_chains(rng: np.random.Generator, coupling: float) -> Model:
    """Spins: P(s_c' = 1 | s) = 1 / (1 + exp(−2 u_c)), u_c = s_c + Σ_{k≠c} J_ck s_k + b_c, J and b drawn.

    J_ck is normal with standard deviation `coupling`, b_c with 0.3; the observations are drawn from the model.
    """
    pull = coupling * rng.normal(size=(CHAINS, CHAINS))
    np.fill_diagonal(pull, PERSISTENCE)
    bias = 0.3 * rng.normal(size=CHAINS)
    spins = np.stack(np.meshgrid(*[[-1.0, 1.0]] * CHAINS, indexing="ij"), axis=-1)
    up = 1 / (1 + np.exp(-2 * (spins @ pull.T + bias)))
    moves = np.moveaxis(np.stack([1 - up, up], axis=-1), CHAINS, 0)
    number = np.arange(LENGTH * CHAINS).reshape(LENGTH, CHAINS)
    graph = DiscreteGraph([2] * number.size)
    state, likelihoods = rng.integers(2, size=CHAINS), {}
    for t in range(LENGTH):
        if t:
            scopes = [[*number[t - 1], number[t, c]] for c in range(CHAINS)]
            graph.add_factors(scopes, moves)
            state = np.array([rng.random() < moves[(c, *state, 1)] for c in range(CHAINS)]).astype(int)
        for c in range(CHAINS):
            seen = state[c] if rng.random() < ACCURACY else 1 - state[c]
            likelihoods[int(number[t, c])] = np.where(np.arange(2) == seen, ACCURACY, 1 - ACCURACY)
    # A flat start: the constant makes the first slice a distribution, so that Z is the probability of what was seen.
    graph.add_factor([], 0.5**CHAINS)
    steps = [list(range(CHAINS * t, CHAINS * (t + 1))) for t in range(LENGTH - 1)]
    return Model(graph.given(likelihoods=likelihoods), number.tolist(), steps)
