"""Messages as rows of numbers for trees."""

from itertools import combinations_with_replacement

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity.families.base import Family
from cavity.families.gaussian import Gaussian
from cavity.learned.message_coordinates import parts_of, split_variables
from cavity.learned.targets import parameters


@float64
def message_columns(family: Family, cavities: np.ndarray) -> np.ndarray:
    """What a tree may split on: mean, variance, natural and regression parameters of every message.

    A Gaussian gives (m, v, m/v, 1/v, log v), a Beta (mean, variance, a, b, log a, log b). Eslami et al. also use flags
    of improper messages and the factor's value at the modes; here all are proper, and the factor may have no density.
    """
    rows = jnp.asarray(cavities, float)
    found = []
    for own, piece in zip(parts_of(family), split_variables(family, rows), strict=True):
        values = jax.vmap(lambda eta, own=own: parameters(own, eta))(piece)
        # A Gaussian's mean is among its parameters already.
        extra = values[:, 1:] if isinstance(own, Gaussian) else values
        found += [own.mean(piece)[:, None], own.covariance(piece)[:, None], piece, extra]
    return np.asarray(jnp.concatenate(found, axis=1))


@float64
def regression_parameters(family: Family, cavities: np.ndarray) -> np.ndarray:
    """(mean, log variance) or logarithms of the parameters of every message, side by side."""
    rows = jnp.asarray(cavities, float)
    pieces = zip(parts_of(family), split_variables(family, rows), strict=True)
    return np.asarray(
        jnp.concatenate([jax.vmap(lambda e, own=own: parameters(own, e))(piece) for own, piece in pieces], axis=1)
    )


def polynomials(points: np.ndarray) -> np.ndarray:
    """1, all coordinates, all products of two: degree 2."""
    pairs = list(combinations_with_replacement(range(points.shape[1]), 2))
    products = np.stack([points[:, i] * points[:, j] for i, j in pairs], axis=1)
    return np.concatenate([np.ones((len(points), 1)), points, products], axis=1)
