# %% [markdown]
# # Skills from matches
#
# Every player has a skill; what they show in a match is their skill with noise; a team shows the sum of its members.
# The better team wins, and within a margin it is a draw. This is TrueSkill (Herbrich, Minka & Graepel, 2006).

# %%
from collections.abc import Sequence

import numpy as np

import cavity


def rate(
    skills: Sequence[tuple[float, float]],
    teams: Sequence[Sequence[int]],
    ranks: Sequence[int],
    margins: Sequence[float],
    beta: float = 25 / 6,
    tau: float = 25 / 300,
) -> cavity.Solution:
    """Skills N(mean, sd²) after a match; teams best first, equal ranks drew; margins: of each team and the next."""
    graph = cavity.FactorGraph()
    mean, sd = np.array(skills, float).T
    skill = graph.gaussian(mean, sd**2 + tau**2, name="skill")
    performance = graph.linear(skill, variance=beta**2)
    team = [graph.linear(*(performance[player] for player in members)) for members in teams]
    for number, margin in enumerate(margins):
        gap = graph.linear(team[number], team[number + 1], weights=(1, -1))
        if ranks[number] == ranks[number + 1]:
            graph.within(gap, -margin, margin)
        else:
            graph.greater(gap, margin)
    return cavity.infer(graph, cavity.EP(tol=1e-9))


if __name__ == "__main__":
    players = [(25, 8), (28, 6), (20, 7), (25, 8), (31, 3)]
    found = rate(players, teams=[[0, 1], [2, 3], [4]], ranks=[0, 1, 1], margins=[2.0, 2.0])
    after = found.marginals["skill"]
    for (mean, sd), new_mean, new_sd in zip(players, after.mean, np.sqrt(after.variance), strict=True):
        print(f"{mean:4.0f} ± {sd:.0f}  becomes  {new_mean:5.2f} ± {new_sd:.2f}")
    print(f"the probability of this outcome was {np.exp(found.log_evidence):.3f}")
