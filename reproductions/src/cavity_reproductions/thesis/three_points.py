"""The three points of section 5.5, each rival's way to the Bayes point, and what it costs.

The points are not printed. With (1, 0) labelled + and (0, 0), (0, 1) labelled −, and 1 as third coordinate, EP's
covariance is the printed one. Estimates are compared as directions, with the exact one of `exact_bayes_point`.

Cost is counted in multiplications, from the formulas, for n points in d dimensions:

    EP, ADF     n (2d² + 4d) a sweep: V x, the rank-one change of V, and products of vectors
    TAP         n³ + n² an iteration, C n²d first;  naive mean field n² an iteration, C and its inverse n²d + n³ first
    billiard    2nd + 6d a bounce
    SVM         2n a step of its solver, K n²d first
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import cavity
from cavity.baselines import billiard, exact_bayes_point, naive_mean_field, svm, tap
from cavity.baselines.billiards import Rule
from cavity.factors import Step
from cavity_reproductions.workbench import path_of

POINTS = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
LABELS = np.array([1.0, -1.0, -1.0])

#: names of the billiards in tables and figures
BILLIARDS: dict[str, Rule] = {
    "billiard inside": "inside",
    "Herbrich's billiard": "herbrich",
    "Rujan's billiard": "rujan",
}
#: added to the diagonal of C where naive mean field needs an inverse that is not there
JITTER = 1e-3
#: iterations of TAP and naive mean field, at most
MOST = 4000


class Points(NamedTuple):
    """X with the bias as last column, and labels."""

    X: np.ndarray
    y: np.ndarray

    @property
    def K(self) -> np.ndarray:
        return self.X @ self.X.T


def points(copies: int = 1, which: int = 0) -> Points:
    """The three points, one of them (the first is the one at (1, 0)) as often as said."""
    chosen = np.repeat(np.arange(3), [copies if k == which else 1 for k in range(3)])
    return Points(POINTS[chosen], LABELS[chosen])


def unit(w: Any) -> np.ndarray:
    """A vector at length 1."""
    return np.asarray(w, float) / np.linalg.norm(w)


def bayes_point(data: Points, label_noise: float = 0.0) -> np.ndarray:
    """The exact direction."""
    return unit(exact_bayes_point(data.X, data.y, label_noise).mean)


def distance(w: Any, truth: np.ndarray) -> float:
    """Between two directions."""
    return float(np.linalg.norm(unit(w) - truth))


def direct_methods(data: Points) -> dict[str, Any]:
    """EP, TAP, naive mean field and the SVM: weights, and (cost, error) along the way."""
    (n, d), truth = data.X.shape, bayes_point(data)
    problem = cavity.models.latent_gaussian(data.y, Step(), X=data.X).problem()
    solution, sweeps = path_of(problem, cavity.EP(tol=1e-12))
    found = {"EP": track([w for *_, w in sweeps], n * (2 * d**2 + 4 * d), 0, truth)}
    found["EP"] |= {"converged": bool(solution.converged), "log_evidence": float(solution.log_evidence)}
    found["ADF"] = track([sweeps[0][2]], n * (2 * d**2 + 4 * d), 0, truth)
    met = tap(data.K, data.y, tolerance=1e-12, max_iterations=MOST)
    found["TAP"] = track([data.X.T @ a for a in met.trace], n**3 + n**2, n**2 * d, truth) | {"converged": met.converged}
    singular = np.linalg.matrix_rank(data.K) < n
    met = naive_mean_field(
        data.K + JITTER * singular * np.eye(n), data.y, step=0.5 / (n if singular else 1), max_iterations=MOST
    )
    found["naive MF"] = track([data.X.T @ a for a in met.trace], n**2, n**2 * d + n**3, truth)
    found["naive MF"] |= {"converged": met.converged, "jitter": JITTER * bool(singular)}
    for name, normalise in (("SVM", False), ("SVM, normalised", True)):
        machine = svm(data.K, data.y, normalise=normalise)
        weights = data.X.T @ (machine.alpha / machine.scales)
        found[name] = track([weights], 2 * n * machine.iterations, n**2 * d, truth)
    return found


def track(weights: list[Any], each: int, first: int, truth: np.ndarray) -> dict[str, Any]:
    """Cost and error after every iteration, and where it ended."""
    return {
        "cost": [first + each * (k + 1) for k in range(len(weights))],
        "error": [distance(w, truth) for w in weights],
        "weights": weights[-1],
    }


def balls(data: Points, name: str, bounces: int, trajectories: int, seed: int) -> dict[str, Any]:
    """A billiard from the SVM's solution, as in the thesis: errors of every ball along the way, and of all together."""
    n, d = data.X.shape
    truth = bayes_point(data)
    start = data.X.T @ svm(data.K, data.y).alpha
    play = billiard(
        data.X,
        data.y,
        rule=BILLIARDS[name],
        bounces=bounces,
        trajectories=trajectories,
        start=start,
        seed=seed,
        written=25,
    )
    return {
        "bounces": play.bounces,
        "cost": play.bounces * (2 * n * d + 6 * d),
        "errors": np.linalg.norm(play.trace - truth, axis=2),
        "together": distance(play.direction, truth),
        "error_bar": play.error,
        "escapes": play.escapes,
    }


def root_mean_square(found: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Of the errors of all balls, along the way."""
    errors = np.concatenate([np.asarray(each["errors"], float) for each in found], axis=1)
    return np.sqrt(np.mean(errors**2, axis=1))
