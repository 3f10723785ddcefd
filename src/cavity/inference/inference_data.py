"""Draws as ArviZ knows them. ArviZ is an extra: it is imported when first asked for."""

import warnings
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from cavity.inference.pointwise import pointwise_log_likelihood, require_densities
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


def named(name: str, x: Any) -> dict[str, np.ndarray]:
    """One chain of draws by name: those of a dictionary, else one for all leaves, numbered where there are several."""
    if isinstance(x, dict):
        return {own: np.asarray(leaf)[None] for own, leaf in x.items()}
    leaves = jax.tree.leaves(x)
    names = [name] if len(leaves) == 1 else [f"{name}_{number}" for number in range(len(leaves))]
    return {own: np.asarray(leaf)[None] for own, leaf in zip(names, leaves, strict=True)}


def from_draws(problem: Problem, x: Any, shown: Any, attributes: dict[str, Any]) -> "InferenceData":
    """Draws of a problem's unknown as they are shown, with log t_i(x) of every site, called y."""
    require_densities("to_arviz", problem)
    return arviz().from_dict(
        posterior=named(problem.posterior.variable, shown),
        log_likelihood=named("y", pointwise_log_likelihood(problem, x)),
        attrs=attributes,
    )


def from_weighted(
    variable: str, x: Any, log_weights: np.ndarray, attributes: dict[str, Any], rng: np.random.Generator
) -> "InferenceData":
    """Draws resampled by their weights, as many as there are, and the weighted draws in a group of their own."""
    kept = rng.choice(log_weights.size, log_weights.size, p=np.exp(log_weights))
    resampled = jax.tree.map(lambda leaf: leaf[kept], x)
    found = arviz().from_dict(posterior=named(variable, resampled), attrs=attributes)
    weighted = named(variable, x) | {"log_weight": log_weights[None]}
    found.add_groups({WEIGHTED: arviz().convert_to_dataset(weighted)})
    return found
