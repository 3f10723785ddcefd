"""One posterior with three modes: what figure 3-6 draws of it."""

from typing import Any

import numpy as np

import cavity
from cavity.baselines import gibbs_chain, gibbs_density, importance, laplace, variational_bayes
from cavity.baselines.sampling import summarise as chain_summary
from cavity.exact_inference import exact, posterior_density
from cavity_reproductions.thesis.three_modes import three_mode_sets
from cavity_reproductions.workbench import clutter_sets, cost_and_error, infer, normal_density, path_of

POINTS = 20
#: sets searched at a time
CHUNK = 2000
RESTRICTED = cavity.RestrictedEP()


def drawn(seed: int, samples: int, height: float) -> dict:
    """The first three-mode set on which plain EP fails, as in the thesis: curves, chain and paths."""
    for attempt in range(1000):
        for x in three_mode_sets(clutter_sets(seed + attempt, CHUNK, POINTS), height):
            problem = cavity.models.clutter(x)
            plain = infer(problem)
            if not plain.converged:
                return portrait(problem, seed, samples) | {"EP": str(plain.status)}
    raise RuntimeError("No posterior with three modes on which EP fails was found.")


def portrait(problem: cavity.Problem, seed: int, samples: int) -> dict:
    """Everything drawn of one problem."""
    truth = exact(problem)
    width = float(np.sqrt(truth.covariance))
    grid = np.linspace(truth.mean - 4 * width, truth.mean + 4 * width, 401)
    restricted, path = path_of(problem, RESTRICTED)
    answers: dict[str, Any] = {
        "Restricted EP": restricted,
        "Laplace": laplace(problem),
        "VB": variational_bayes(problem),
    }
    chain = gibbs_chain(problem, samples, 0, seed)
    bins = np.linspace(grid[0], grid[-1], 61)
    middles = 0.5 * (bins[1:] + bins[:-1])
    traces = {
        "Restricted EP": path,
        "Laplace": answers["Laplace"].trace,
        "VB": answers["VB"].trace,
        "importance": importance(problem, samples, seed).trace,
        "Gibbs": chain_summary(chain).trace,
    }
    return {
        "grid": grid,
        "exact": posterior_density(problem, grid) / np.exp(truth.log_evidence),
        "curves": {name: normal_density(grid, float(a.mean), float(a.covariance)) for name, a in answers.items()},
        "bins": bins,
        "histogram": gibbs_density(chain, middles, averaging=False),
        "averaged": gibbs_density(chain, grid),
        "paths": {name: cost_and_error(trace, truth) for name, trace in traces.items()},
        "restricted status": str(restricted.status),
    }
