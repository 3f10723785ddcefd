"""Linear classification in the plane with one wrong label: the points, the exact posterior, stacked runs.

The likelihood (8) of wᵀx depends on the direction of w only, and not on the lengths of the points. So under w ~ N(0, I)
the posterior is that of the angle θ, a constant on every arc between the points' normals, times the prior's radius:
E[w] = √(π/2) E[u], E[wwᵀ] = 2 E[uuᵀ] with u = (cos θ, sin θ).
"""

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np

import cavity
from cavity._core.precision import float64, to_numpy
from cavity.inference.relaxed import Relaxed
from cavity_reproductions.workbench import HANDFUL, Stack, infer

#: The paper prints no coordinates. Chosen once, to look like its figure 1: two crosses (−1) on the left, two circles
#: (+1) on the right, and a cross on the far right whose label is wrong.
POINTS = np.array([[-1.5, 0.8], [-1.0, -1.2], [1.0, 1.2], [1.6, 0.3], [2.5, -0.5]])
LABELS = np.array([-1.0, -1.0, 1.0, 1.0, -1.0])

#: the random sets: centres of the circles, the crosses and the wrong cross on the first axis; deviation 1 around them
RIGHT, LEFT, FAR = 1.5, -1.5, 3.0


class Posterior(NamedTuple):
    """Mean and covariance of w."""

    mean: np.ndarray
    covariance: np.ndarray


def random_sets(seed: int, count: int) -> np.ndarray:
    """Sets of five points of the figure's kind, as rows yᵢ xᵢ, (count, 5, 2)."""
    points = np.random.default_rng(seed).normal(size=(count, 5, 2))
    points[..., 0] += np.array([LEFT, LEFT, RIGHT, RIGHT, FAR])
    return points * LABELS[:, None]


def exact_posterior(rows: np.ndarray, epsilon: float) -> Posterior:
    """The integral over the circle, arc by arc, for rows yᵢ xᵢ."""
    angles = np.arctan2(rows[:, 1], rows[:, 0])
    ends = np.sort(np.concatenate([angles + np.pi / 2, angles - np.pi / 2]) % (2 * np.pi))
    low, high = ends, np.append(ends[1:], ends[0] + 2 * np.pi)
    middle = 0.5 * (low + high)
    right = np.stack([np.cos(middle), np.sin(middle)], axis=1) @ rows.T > 0
    weight = np.prod(np.where(right, 1 - epsilon, epsilon), axis=1)
    total = np.sum(weight * (high - low))
    cos, sin = np.sin(high) - np.sin(low), np.cos(low) - np.cos(high)
    cos_twice, sin_twice = 0.5 * (np.sin(2 * high) - np.sin(2 * low)), 0.5 * (np.cos(2 * low) - np.cos(2 * high))
    # 2 cos² = 1 + cos 2θ, 2 sin² = 1 − cos 2θ, 2 sin cos = sin 2θ
    square = np.array([[high - low + cos_twice, sin_twice], [sin_twice, high - low - cos_twice]])
    mean = np.sqrt(np.pi / 2) * np.array([cos @ weight, sin @ weight]) / total
    return Posterior(mean, square @ weight / total - np.outer(mean, mean))


def exact_posteriors(sets: np.ndarray, epsilon: float) -> Posterior:
    """One after another."""
    found = [exact_posterior(rows, epsilon) for rows in sets]
    return Posterior(np.stack([each.mean for each in found]), np.stack([each.covariance for each in found]))


def model(rows: Any, epsilon: Any) -> cavity.Problem:
    """The linear model of rows yᵢ xᵢ; every label is then +1."""
    return cavity.models.latent_gaussian(np.ones(len(rows)), cavity.factors.Step(label_noise=epsilon), X=rows).problem()


def with_weight(method: cavity.Method, c: Any) -> cavity.Method:
    """The method; where it relaxes, with this c in place of its own."""
    sweeps = method.sweeps
    if sweeps is None or not isinstance(sweeps.projection, Relaxed):
        return method
    return replace(sweeps, projection=replace(sweeps.projection, c=c))


def as_stack(found: cavity.Solution) -> Stack:
    """What is kept of a run."""
    return Stack(found.mean, found.covariance, found.log_evidence, found.code, found.sweeps, found.negative)


@cache
def program(method: cavity.Method) -> Any:
    """One compiled program for stacks of sets, any ε and, where the method relaxes, any c."""

    def one(rows: Any, epsilon: Any, c: Any) -> Stack:
        return as_stack(cavity.infer(model(rows, epsilon), with_weight(method, c)))

    return jax.jit(jax.vmap(one, in_axes=(0, None, None)))


@float64
def solve(sets: np.ndarray, epsilon: float, method: cavity.Method, c: float = 0.0) -> Stack:
    """A method on a stack of sets; `c` takes the place of a relaxed method's own, and compiles nothing anew.

    A handful is run one by one: that is faster than compiling a stack.
    """
    if len(sets) < HANDFUL:
        runs = [as_stack(infer(model(rows, epsilon), with_weight(method, c))) for rows in sets]
        return Stack(*(np.stack([np.asarray(part) for part in parts]) for parts in zip(*runs, strict=True)))
    return to_numpy(program(method)(sets, epsilon, c))


def squared_errors(answer: Any, truth: Posterior) -> tuple[np.ndarray, np.ndarray]:
    """Mean square distances of means and of covariances, over their entries."""
    mean = np.mean((np.asarray(answer.mean) - truth.mean) ** 2, axis=-1)
    return mean, np.mean((np.asarray(answer.covariance) - truth.covariance) ** 2, axis=(-1, -2))
