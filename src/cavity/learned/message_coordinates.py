"""Messages as vectors: where they are (inputs of a regression), and how far a factor moves them (its targets).

A factor turns the cavity of each of its variables into the projection of the tilted distribution. What is learned is
the change from the one to the other, in units in which 0 is "says nothing" and equal numbers matter equally:

    Gaussian       ((m* − m)/√v*, log v*/v)
    FullGaussian   L*⁻¹(m* − m) and log-Cholesky of L⁻¹ V* L⁻ᵀ, with V = L Lᵀ and V* = L* L*ᵀ
    Beta, Gamma, Dirichlet   log ratios of the parameters
    Categorical    changes of the log odds against the last state

Far from everything it was shown a regression predicts 0: the message that says nothing, which is the safe one. A mean
is measured in standard deviations of the projection: an error of 0.01 then costs as much KL, and a label of so many
draws is as noisy, whether the cavity is narrow or broad. A uniform cavity has no coordinates; it is written as a broad
`reference` that is taken out of the answer again (`anchor_flat`).

A `Target` says which of several such vectors a regression may predict of one variable, and leads back:

    statistics    E[u(x)] under the projection (section 3.3 of Jitkrittum et al.)
    parameters    of the projection: (mean, log variance), (log a, log b), (log shape, log rate)
    message       the same parameters of the outgoing message, projection / incoming
    change        from the incoming message to the projection, as above

`parameters` can only name proper distributions, and `change` is 0 where the factor says nothing; a predicted vector of
`statistics` may belong to no distribution at all, and an exact outgoing message may have no `parameters`.
"""

from dataclasses import dataclass
from typing import Any, Literal

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

#: standard deviations of what is seen of a variable that the reference for its flat cavities is broad
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


def variables(family: Family, *etas: Any) -> list[tuple[Any, ...]]:
    """Of every variable its family, and its piece of each of these natural parameters."""
    return list(zip(parts_of(family), *(split_variables(family, eta) for eta in etas), strict=True))


def anchor_flat(family: Family, cavity: jax.Array, reference: jax.Array) -> jax.Array:
    """The cavity, with the reference in place of what is flat."""

    def one(own: Family, piece: jax.Array, other: jax.Array) -> jax.Array:
        return jnp.where(own.is_flat(piece), other, piece) if isinstance(own, OrFlat) else piece

    return jnp.concatenate([one(*row) for row in variables(family, cavity, reference)])


def proper_member(family: Family) -> np.ndarray:
    """Some proper member, in natural parameters: what stands for a cavity before anything was seen."""
    return np.concatenate([np.asarray(own.flat()) + 1.0 for own in parts_of(family)])


def reference_for(family: Family, projected: np.ndarray) -> np.ndarray:
    """A member of every family so broad that all these projections, one per row, lie well within it."""
    found = []
    for own, piece in variables(family, jnp.asarray(projected)):
        if not isinstance(own, OrFlat):
            found.append(np.zeros(own.size))
            continue
        means, spreads = np.asarray(own.mean(piece)), np.asarray(own.covariance(piece))
        if isinstance(own, FullGaussian | Gaussian):
            gap = means - means.mean(axis=0)
            broad = BREADTH**2 * (gap.T @ gap / len(gap) + spreads.mean(axis=0))
            found.append(np.asarray(own.from_mean(means.mean(axis=0), broad)))
        else:
            found.append([1.0, 1.0 / (BREADTH * (means + np.sqrt(spreads)).max())])
    return np.concatenate(found)


def coordinates(family: Family, eta: jax.Array) -> jax.Array:
    """`coordinates_of_one` of all variables of a factor."""
    return jnp.concatenate([coordinates_of_one(*row) for row in variables(family, eta)])


def changes(family: Family, cavity: jax.Array, projected: jax.Array) -> jax.Array:
    """`change` of all variables."""
    return jnp.concatenate([change(*row) for row in variables(family, cavity, projected)])


def displace_all(family: Family, cavity: jax.Array, steps: jax.Array) -> jax.Array:
    """`displace` of all variables."""
    rows = variables(family, cavity)
    pieces = jnp.split(steps, np.cumsum([steps_of(own) for own, _ in rows])[:-1])
    return jnp.concatenate([displace(own, piece, step) for (own, piece), step in zip(rows, pieces, strict=True)])


def steps_of(family: Family) -> int:
    """Length of a `change`."""
    if isinstance(family, FullGaussian):
        return family.dimension + family.dimension * (family.dimension + 1) // 2
    return family.states - 1 if isinstance(family, Categorical) else family.size


def divergence(family: Family, one: jax.Array, other: jax.Array) -> jax.Array:
    """KL(one ‖ other) of products."""
    return sum((own.kl(a, b) for own, a, b in variables(family, one, other)), jnp.zeros(()))


def tilted_statistics_of(family: Family, cavity: jax.Array, site: jax.Array) -> jax.Array:
    """The tilted statistics that go with a site, in the coordinates of each family."""
    return jnp.concatenate([statistics(*row) for row in variables(family, cavity, site)])


Kind = Literal["statistics", "parameters", "message", "change"]


@dataclass(frozen=True)
class Target:
    """What is predicted: `kind` of the variable number `output` of a factor whose cavities are in `family`."""

    family: Family
    output: int
    kind: Kind = "parameters"

    @property
    def own(self) -> Family:
        """The family of the variable."""
        return parts_of(self.family)[self.output]

    def of(self, cavity: jax.Array, projected: jax.Array) -> jax.Array:
        """Numbers to learn. cavity: of all variables; projected: of this one, natural parameters both."""
        own, incoming = variables(self.family, cavity)[self.output]
        if self.kind == "statistics":
            return own.moments(projected)
        if self.kind == "change":
            return change(own, incoming, projected)
        return parameters(own, projected if self.kind == "parameters" else own.ratio(projected, incoming))

    def back(self, cavity: jax.Array, values: jax.Array) -> jax.Array:
        """Natural parameters of the projection that the numbers stand for."""
        own, incoming = variables(self.family, cavity)[self.output]
        if self.kind == "statistics":
            return own.natural(values)
        if self.kind == "change":
            return displace(own, incoming, values)
        found = from_parameters(own, values)
        return found if self.kind == "parameters" else own.product(found, incoming)


def parameters(family: Family, eta: jax.Array) -> jax.Array:
    """(mean, log variance) of a Gaussian, logarithms of the parameters of a Beta, Gamma or Dirichlet."""
    if isinstance(family, Gaussian):
        return coordinates_of_one(family, eta)
    if isinstance(family, Beta | Gamma | Dirichlet):
        return jnp.log(eta)
    raise TypeError(f"parameters are those of Gaussian, Beta, Gamma or Dirichlet; found {type(family).__name__}.")


def from_parameters(family: Family, values: jax.Array) -> jax.Array:
    """The inverse of `parameters`."""
    if isinstance(family, Gaussian):
        return family.from_mean(values[0], jnp.exp(values[1]))
    return jnp.exp(values)
