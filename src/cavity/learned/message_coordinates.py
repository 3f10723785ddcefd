"""Messages as vectors: where they are (inputs of a regression), and how far a factor moves them (its targets).

A factor turns the cavity of each of its variables into the projection of the tilted distribution. What is learned is
the change from the one to the other, in units in which 0 is "says nothing" and equal numbers matter equally:

    Gaussian       ((m* − m)/√v*, log v*/v)
    FullGaussian   L*⁻¹(m* − m) and log-Cholesky of L⁻¹ V* L⁻ᵀ, with V = L Lᵀ and V* = L* L*ᵀ
    Beta, Gamma, Dirichlet   log ratios of the parameters
    Categorical    changes of the log odds against the last state

Far from everything it was shown a regression predicts 0: the message that says nothing, which is the safe one. A mean
is measured in deviations of the projection: an error of 0.01 then costs as much KL, and a label of so many draws is as
noisy, whether the cavity is narrow or broad. A cavity of which nothing is known has no coordinates; it is written as a
broad `reference` that is taken out of the answer again (`anchor_flat`).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from cavity.factors.linear import equality_statistics as statistics
from cavity.families.base import Family, OrFlat
from cavity.families.categorical import Categorical
from cavity.families.dirichlet import Beta, Dirichlet
from cavity.families.full_gaussian import FullGaussian
from cavity.families.gamma import Gamma
from cavity.families.gaussian import Gaussian
from cavity.families.product import Product

#: log odds beyond which a state counts as impossible
LARGEST_ODDS = 40.0

#: deviations of what is seen of a variable that the reference for its flat cavities is broad
BREADTH = 100.0

#: the families whose messages can be learned
KNOWN = (Gaussian, FullGaussian, Beta, Gamma, Dirichlet, Categorical)


def parts_of(family: Family) -> tuple[Family, ...]:
    """The families of a factor's variables; those that cannot be learned are refused."""
    found = family.families if isinstance(family, Product) else (family,)
    for own in found:
        if not isinstance(own, KNOWN):
            names = ", ".join(known.__name__ for known in KNOWN)
            raise TypeError(f"messages of {type(own).__name__} cannot be learned; of {names} they can.")
    return found


def coordinates_of_one(family: Family, eta: jax.Array) -> jax.Array:
    """Unbounded coordinates of a member: location and log spread, or the like."""
    if isinstance(family, Gaussian):
        mean, variance = family.coordinates(eta)
        return jnp.stack([mean, jnp.log(variance)])
    if isinstance(family, FullGaussian):
        mean, covariance = family.coordinates(eta)
        return jnp.concatenate([mean, log_cholesky(jnp.linalg.cholesky(covariance))])
    if isinstance(family, Categorical):
        return odds(family, eta)
    if isinstance(family, Gamma):
        return jnp.stack([jnp.log(eta[0] / eta[1]), jnp.log(eta[0])])
    total = jnp.sum(eta)
    return jnp.concatenate([jnp.log(eta[:-1] / eta[-1]), jnp.log(total)[None]])


def change(family: Family, cavity: jax.Array, projected: jax.Array) -> jax.Array:
    """How far a member has been moved from a cavity."""
    if isinstance(family, Gaussian):
        (mean, variance), (new, spread) = family.coordinates(cavity), family.coordinates(projected)
        return jnp.stack([(new - mean) / jnp.sqrt(spread), jnp.log(spread / variance)])
    if isinstance(family, FullGaussian):
        (mean, covariance), (new, spread) = family.coordinates(cavity), family.coordinates(projected)
        root = jnp.linalg.cholesky(covariance)
        ratio = solve_triangular(root, jnp.linalg.cholesky(spread), lower=True)
        gap = solve_triangular(root @ ratio, new - mean, lower=True)
        return jnp.concatenate([gap, log_cholesky(ratio)])
    if isinstance(family, Categorical):
        return odds(family, projected) - odds(family, cavity)
    return jnp.log(projected / cavity)


def displace(family: Family, cavity: jax.Array, step: jax.Array) -> jax.Array:
    """The member that `change` says `step` of: its inverse."""
    if isinstance(family, Gaussian):
        mean, variance = family.coordinates(cavity)
        spread = variance * jnp.exp(step[1])
        return jnp.stack([(mean + jnp.sqrt(spread) * step[0]) / spread, 1.0 / spread])
    if isinstance(family, FullGaussian):
        mean, covariance = family.coordinates(cavity)
        size = family.dimension
        root = jnp.linalg.cholesky(covariance) @ from_log_cholesky(step[size:], size)
        return family.from_mean(mean + root @ step[:size], root @ root.T)
    if isinstance(family, Categorical):
        # Zeros stay zeros, and a log weight may be shifted as one likes.
        return cavity.at[: family.states - 1].add(step)
    return cavity * jnp.exp(step)


def odds(family: Categorical, eta: jax.Array) -> jax.Array:
    """Log odds of the states against the last, within bounds."""
    logs = jnp.maximum(family.log_probabilities(eta), -2.0 * LARGEST_ODDS)
    return jnp.clip(logs[:-1] - logs[-1], -LARGEST_ODDS, LARGEST_ODDS)


def log_cholesky(root: jax.Array) -> jax.Array:
    """Lower triangle of a Cholesky factor, logarithms on the diagonal."""
    size = root.shape[-1]
    rows, columns = np.tril_indices(size, -1)
    return jnp.concatenate([jnp.log(jnp.diagonal(root)), root[rows, columns]])


def from_log_cholesky(values: jax.Array, size: int) -> jax.Array:
    """The inverse of `log_cholesky`."""
    rows, columns = np.tril_indices(size, -1)
    return jnp.diag(jnp.exp(values[:size])).at[rows, columns].set(values[size:])


def split_variables(family: Family, flat: jax.Array) -> list[jax.Array]:
    """Natural parameters of a product, one piece per variable."""
    return family.parts(flat) if isinstance(family, Product) else [flat]


def anchor_flat(family: Family, cavity: jax.Array, reference: jax.Array) -> jax.Array:
    """The cavity, with the reference in place of what is flat."""
    rows = zip(parts_of(family), split_variables(family, cavity), split_variables(family, reference), strict=True)
    return jnp.concatenate(
        [
            jnp.where(own.is_flat(piece), other, piece) if isinstance(own, OrFlat) else piece
            for own, piece, other in rows
        ]
    )


def reference_for(family: Family, projected: np.ndarray) -> np.ndarray:
    """A member of every family so broad that all these projections, one per row, lie well within it."""
    found = []
    for own, piece in zip(parts_of(family), split_variables(family, jnp.asarray(projected)), strict=True):
        if not isinstance(own, OrFlat):
            found.append(np.zeros(own.size))
            continue
        means, spreads = np.asarray(own.mean(piece)), np.asarray(own.covariance(piece))
        if isinstance(own, FullGaussian):
            gap = means - means.mean(axis=0)
            broad = BREADTH**2 * (gap.T @ gap / len(gap) + spreads.mean(axis=0))
            found.append(np.asarray(own.from_mean(means.mean(axis=0), broad)))
        elif isinstance(own, Gaussian):
            scale = BREADTH * np.sqrt(means.var() + spreads.mean())
            found.append([means.mean() / scale**2, 1.0 / scale**2])
        else:
            found.append([1.0, 1.0 / (BREADTH * (means + np.sqrt(spreads)).max())])
    return np.concatenate(found)


def coordinates(family: Family, eta: jax.Array) -> jax.Array:
    """`coordinates_of_one` of all variables of a factor."""
    return jnp.concatenate(
        [
            coordinates_of_one(own, piece)
            for own, piece in zip(parts_of(family), split_variables(family, eta), strict=True)
        ]
    )


def changes(family: Family, cavity: jax.Array, projected: jax.Array) -> jax.Array:
    """`change` of all variables."""
    rows = zip(parts_of(family), split_variables(family, cavity), split_variables(family, projected), strict=True)
    return jnp.concatenate([change(own, before, after) for own, before, after in rows])


def displace_all(family: Family, cavity: jax.Array, steps: jax.Array) -> jax.Array:
    """`displace` of all variables."""
    found, start = [], 0
    for own, piece in zip(parts_of(family), split_variables(family, cavity), strict=True):
        length = steps_of(own)
        found.append(displace(own, piece, steps[start : start + length]))
        start += length
    return jnp.concatenate(found)


def steps_of(family: Family) -> int:
    """Length of a `change`."""
    if isinstance(family, FullGaussian):
        return family.dimension + family.dimension * (family.dimension + 1) // 2
    return family.states - 1 if isinstance(family, Categorical) else family.size


def divergence(family: Family, one: jax.Array, other: jax.Array) -> jax.Array:
    """KL(one ‖ other) of products."""
    rows = zip(parts_of(family), split_variables(family, one), split_variables(family, other), strict=True)
    terms: list[Any] = [own.kl(a, b) for own, a, b in rows]
    return jnp.sum(jnp.stack(terms))


def tilted_statistics_of(family: Family, cavity: jax.Array, site: jax.Array) -> jax.Array:
    """The tilted statistics that go with a site, in the coordinates of each family."""
    rows = zip(parts_of(family), split_variables(family, cavity), split_variables(family, site), strict=True)
    return jnp.concatenate([statistics(own, before, message) for own, before, message in rows])
