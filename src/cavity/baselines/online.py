"""One-pass rules for mixture weights, older than ADF: Directed Decision and Probabilistic Teacher.

Each observation is assigned to one component and the Dirichlet counts grow by one there (Bernardo & Girón 1988,
Stephens 1997); ADF (3.94) shares the observation among the components instead. The evidence is estimated by the product
of the one-step predictive probabilities Z_i = Σ_k p_ik a_k / Σ_k a_k (3.91).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from cavity.exact_inference import problem_data
from cavity.exact_inference.problem_data import Estimate

Rule = Callable[[np.ndarray], int]


def directed_decision(problem: Any) -> Estimate:
    """Each x_i is assigned to its most probable component, argmax_k p_ik a_k (the first of equals).

    Args:
        problem: a problem of `cavity.models.mixture_weights`.

    Returns:
        The estimate.

    Raises:
        ValueError: if the method does not know the problem.

    Examples:
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> problem = cv.models.mixture_weights([[0.4, 0.1], [0.3, 0.2], [0.1, 0.5]])
        >>> baselines.directed_decision(problem).mean.tolist()
        [0.6, 0.4]
    """
    return one_pass("directed_decision", problem, lambda probabilities: int(np.argmax(probabilities)))


def probabilistic_teacher(problem: Any, seed: int | np.random.Generator = 0) -> Estimate:
    """Each x_i is assigned to a component drawn from its posterior probabilities, p_ik a_k / Σ_j p_ij a_j.

    Args:
        problem: a problem of `cavity.models.mixture_weights`.
        seed: a number, or a NumPy generator.

    Returns:
        The estimate.

    Raises:
        ValueError: if the method does not know the problem.

    Examples:
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> problem = cv.models.mixture_weights([[0.4, 0.1], [0.3, 0.2], [0.1, 0.5]])
        >>> baselines.probabilistic_teacher(problem, seed=0).mean.shape
        (2,)
    """
    rng = np.random.default_rng(seed)
    return one_pass("probabilistic_teacher", problem, lambda shares: int(rng.choice(len(shares), p=shares)))


def one_pass(method: str, problem: Any, rule: Rule) -> Estimate:
    """Visit the observations in their order; `rule` picks a component from its posterior probabilities."""
    problem = problem_data.resolve_problem(problem)
    data = problem_data.mixture_data(problem)
    if data is None:
        raise problem_data.unsupported(method, problem, problem_data.MIXTURE)
    concentration = data.concentration.copy()
    rows = data.log_densities[problem_data.repetitions(method, data.multiplicity)]
    log_evidence, trace = 0.0, []
    for count, row in enumerate(rows, start=1):
        # p_ik is used up to its largest entry, which log_evidence gets back.
        top = row.max()
        parts = np.exp(row - top) * concentration
        log_evidence += float(top + np.log(parts.sum() / concentration.sum()))
        concentration[rule(parts / parts.sum())] += 1.0
        trace.append((count, log_evidence, concentration / concentration.sum()))
    mean, covariance = problem_data.dirichlet_moments(concentration)
    return Estimate(log_evidence, mean, covariance, len(rows), trace)
