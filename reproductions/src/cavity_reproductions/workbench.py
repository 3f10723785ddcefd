"""What several experiments need: synthetic data, stacked runs of EP, the path of a run, densities of answers."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np

import cavity
from cavity._core.precision import float64, to_numpy
from cavity.baselines import Estimate
from cavity.exact_inference import exact
from cavity.inference.methods import Method
from cavity.inference.status import CODES, FIXED_POINTS, Status

#: the clutter problem of the thesis: θ = 2, half of the points clutter of variance 10 (figures 3-2, 3-5, 3-6)
THETA, CLUTTER_SHARE, CLUTTER_SD = 2.0, 0.5, 10.0**0.5

#: fewer problems than this are not stacked
HANDFUL = 10


def clutter_sets(seed: int, count: int, n: int) -> np.ndarray:
    """`count` data sets of n points, (count, n), drawn from (3.1)."""
    rng = np.random.default_rng(seed)
    signal = rng.normal(THETA, 1.0, (count, n))
    return np.where(rng.random((count, n)) < CLUTTER_SHARE, rng.normal(0.0, CLUTTER_SD, (count, n)), signal)


def permuted(sets: np.ndarray, permutations: int, seed: int) -> np.ndarray:
    """Every set in `permutations` random orders, (sets, permutations, n)."""
    rng = np.random.default_rng(seed)
    return rng.permuted(np.repeat(sets[:, None, :], permutations, axis=1), axis=2)


def infer(problem: Any, method: Method | None = None, **options: Any) -> Any:
    """`cavity.infer` with plain EP, the documents' method, unless another is named.

    It hands back its last sweep when interrupted; here such a result must not be recorded.
    """
    found = cavity.infer(problem, cavity.EP() if method is None else method, **options)
    if found.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return found


class Stack(NamedTuple):
    """Results of many runs, one entry a problem."""

    mean: np.ndarray
    covariance: np.ndarray
    log_evidence: np.ndarray
    code: np.ndarray
    sweeps: np.ndarray
    negative: np.ndarray

    @property
    def converged(self) -> np.ndarray:
        """Fixed points of the method, relaxed and restricted ones included."""
        return np.any([self.is_(status) for status in FIXED_POINTS], axis=0)

    def is_(self, status: Status) -> np.ndarray:
        """Runs that ended with this status."""
        return self.code == CODES.index(status)


@cache
def compiled(model: Callable[[Any], cavity.Problem], method: cavity.Method) -> Callable[[Any], Stack]:
    """One program for a stack of problems of equal shape."""

    def one(data: Any) -> Stack:
        found = cavity.infer(model(data), method)
        return Stack(found.mean, found.covariance, found.log_evidence, found.code, found.sweeps, found.negative)

    return jax.jit(jax.vmap(one))


@float64
def solve(model: Callable[[Any], cavity.Problem], data: np.ndarray, method: cavity.Method) -> Stack:
    """Run `method` on a stack of data sets; extra leading axes are kept.

    Stacks are filled up with copies to 64 times a power of four, so that few sizes are compiled. A handful is run one
    by one: that is faster than compiling a stack.
    """
    lead = data.ndim - (2 if model is cavity.models.mixture_weights else 1)
    flat = data.reshape(-1, *data.shape[lead:])
    if len(flat) < HANDFUL:
        runs = [infer(model(each), method) for each in flat]
        found = Stack(*(np.stack([np.asarray(getattr(run, name)) for run in runs]) for name in Stack._fields))
        return Stack(*(part.reshape(*data.shape[:lead], *part.shape[1:]) for part in found))
    padded = 64
    while padded < len(flat):
        padded *= 4
    found = to_numpy(compiled(model, method)(flat[np.arange(padded) % len(flat)]))
    return Stack(*(part[: len(flat)].reshape(*data.shape[:lead], *part.shape[1:]) for part in found))


class Truth(NamedTuple):
    """Exact answers of many problems."""

    mean: np.ndarray
    covariance: np.ndarray
    log_evidence: np.ndarray


def exact_answers(problems: list[cavity.Problem]) -> Truth:
    """By quadrature or expansion, one problem after another."""
    return gather([exact(problem) for problem in problems])


def gather(found: list[Estimate]) -> Truth:
    """Estimates as arrays."""
    return Truth(
        np.array([each.mean for each in found]),
        np.array([each.covariance for each in found]),
        np.array([each.log_evidence for each in found]),
    )


def path_of(problem: cavity.Problem, method: cavity.Method) -> tuple[cavity.Solution, list[tuple[int, float, Any]]]:
    """The solution and, after every sweep, (evaluations, log evidence, mean)."""
    steps: list[tuple[int, float, Any]] = []
    solution = infer(
        problem, method, callback=lambda s: steps.append((int(s.evaluations), float(s.log_evidence), s.mean))
    )
    return solution, steps


def cost_and_error(trace: list[tuple[int, float, Any]], truth: Estimate) -> dict[str, list[float]]:
    """A trace as evaluations against the absolute errors of log evidence and (first) mean."""
    return {
        "evaluations": [step[0] for step in trace],
        "evidence_error": [abs(step[1] - truth.log_evidence) for step in trace],
        "mean_error": [abs(float(np.ravel(step[2])[0]) - float(np.ravel(truth.mean)[0])) for step in trace],
    }


def normal_density(grid: np.ndarray, mean: Any, variance: Any) -> np.ndarray:
    """N(grid; mean, variance); nan where there is no variance."""
    return np.exp(-0.5 * (grid - mean) ** 2 / variance) / np.sqrt(2.0 * np.pi * variance)


def scaled_normal(grid: np.ndarray, answer: Any) -> np.ndarray:
    """Evidence times the Gaussian of an answer (an `Estimate` or a scalar `Solution`): comparable with p(D, θ)."""
    return np.exp(float(answer.log_evidence)) * normal_density(grid, float(answer.mean), float(answer.covariance))


def first_below(values: Sequence[float] | np.ndarray, bound: float) -> int | None:
    """The place, counted from 1, from which on the values stay below the bound; None if they do not."""
    above = [place for place, value in enumerate(values, start=1) if not value < bound]
    last = above[-1] if above else 0
    return last + 1 if last < len(values) else None
