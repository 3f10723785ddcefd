"""Draws as ArviZ knows them. ArviZ is an extra: it is imported when first asked for."""

import warnings
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from cavity.inference.pointwise import pointwise_log_likelihood
from cavity.inference.problem import Problem

if TYPE_CHECKING:
    from arviz import InferenceData

#: custom group of an InferenceData with the weighted draws as they are
WEIGHTED = "weighted"


def arviz() -> Any:
    """The package, or one sentence on how to get it."""
    try:
        with warnings.catch_warnings():
            # It announces its next version, which the extra does not ask for.
            warnings.simplefilter("ignore", FutureWarning)
            import arviz
    except ImportError:
        raise ImportError('to_arviz needs ArviZ, which is not installed: pip install "cavity[arviz]".') from None
    return arviz


def named(name: str, leaves: list[Any]) -> dict[str, np.ndarray]:
    """One chain of draws, an array a leaf; numbered where there are several."""
    names = [name] if len(leaves) == 1 else [f"{name}_{number}" for number in range(len(leaves))]
    return {own: np.asarray(leaf)[None] for own, leaf in zip(names, leaves, strict=True)}


def from_draws(problem: Problem, x: Any, attributes: dict[str, Any]) -> "InferenceData":
    """Draws of a problem's unknown, with log t_i(x) of every site, called y."""
    return arviz().from_dict(
        posterior=named(problem.posterior.variable, jax.tree.leaves(x)),
        log_likelihood=named("y", list(pointwise_log_likelihood(problem, x))),
        attrs=attributes,
    )


def from_weighted(
    variable: str, x: Any, log_weights: np.ndarray, attributes: dict[str, Any], rng: np.random.Generator
) -> "InferenceData":
    """Draws resampled by their weights, as many as there are, and the weighted draws in a group of their own."""
    kept = rng.choice(log_weights.size, log_weights.size, p=np.exp(log_weights))
    leaves = jax.tree.leaves(x)
    found = arviz().from_dict(posterior=named(variable, [leaf[kept] for leaf in leaves]), attrs=attributes)
    weighted = named(variable, leaves) | {"log_weight": log_weights[None]}
    found.add_groups({WEIGHTED: arviz().convert_to_dataset(weighted)})
    return found
