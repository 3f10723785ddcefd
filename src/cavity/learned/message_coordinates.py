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
from functools import cache, partial
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


class ShapeChart:
    """Messages whose parameters are positive, as vectors; what the other charts have in common with it."""

    def __init__(self, family: Any) -> None:
        self.family = family

    def place(self, eta: jax.Array) -> jax.Array:
        """Unbounded coordinates of a member: location and log spread, or the like."""
        return jnp.concatenate([jnp.log(eta[:-1] / eta[-1]), jnp.log(jnp.sum(eta))[None]])

    def change(self, cavity: jax.Array, projected: jax.Array) -> jax.Array:
        """How far a member has been moved from a cavity."""
        return jnp.log(projected / cavity)

    def displace(self, cavity: jax.Array, step: jax.Array) -> jax.Array:
        """The member that `change` says `step` of: its inverse."""
        return cavity * jnp.exp(step)

    def parameters(self, eta: jax.Array) -> jax.Array:
        """(mean, log variance) of a Gaussian, logarithms of the parameters of a Beta, Gamma or Dirichlet."""
        return jnp.log(eta)

    def from_parameters(self, values: jax.Array) -> jax.Array:
        """The inverse of `parameters`."""
        return jnp.exp(values)


class GaussianChart(ShapeChart):
    """Mean and log variance."""

    def place(self, eta: jax.Array) -> jax.Array:
        mean, variance = self.family.coordinates(eta)
        return jnp.stack([mean, jnp.log(variance)])

    def change(self, cavity: jax.Array, projected: jax.Array) -> jax.Array:
        (mean, variance), (new, spread) = self.family.coordinates(cavity), self.family.coordinates(projected)
        return jnp.stack([(new - mean) / jnp.sqrt(spread), jnp.log(spread / variance)])

    def displace(self, cavity: jax.Array, step: jax.Array) -> jax.Array:
        mean, variance = self.family.coordinates(cavity)
        spread = variance * jnp.exp(step[1])
        return jnp.stack([(mean + jnp.sqrt(spread) * step[0]) / spread, 1.0 / spread])

    def parameters(self, eta: jax.Array) -> jax.Array:
        return self.place(eta)

    def from_parameters(self, values: jax.Array) -> jax.Array:
        return self.family.from_mean(values[0], jnp.exp(values[1]))

    def broad(self, means: np.ndarray, spreads: np.ndarray) -> Any:
        """A member so broad that all those of these means and covariances lie well within it."""
        gap = means - means.mean(axis=0)
        return self.family.from_mean(means.mean(axis=0), BREADTH**2 * (gap.T @ gap / len(gap) + spreads.mean(axis=0)))


class GammaChart(ShapeChart):
    """Log mean and log shape."""

    def place(self, eta: jax.Array) -> jax.Array:
        return jnp.stack([jnp.log(eta[0] / eta[1]), jnp.log(eta[0])])

    def broad(self, means: np.ndarray, spreads: np.ndarray) -> Any:
        """A member so broad that all those of these means and variances lie well within it."""
        return [1.0, 1.0 / (BREADTH * (means + np.sqrt(spreads)).max())]


def without_parameters(self: ShapeChart, eta: jax.Array) -> jax.Array:
    """The `parameters` of families that have none to be predicted."""
    found = type(self.family).__name__
    raise TypeError(f"parameters are those of Gaussian, Beta, Gamma or Dirichlet; found {found}.")


class CategoricalChart(ShapeChart):
    """Log odds of the states against the last, within bounds."""

    parameters = without_parameters

    def place(self, eta: jax.Array) -> jax.Array:
        logs = jnp.maximum(self.family.log_probabilities(eta), -2.0 * LARGEST_ODDS)
        return jnp.clip(logs[:-1] - logs[-1], -LARGEST_ODDS, LARGEST_ODDS)

    def change(self, cavity: jax.Array, projected: jax.Array) -> jax.Array:
        return self.place(projected) - self.place(cavity)

    def displace(self, cavity: jax.Array, step: jax.Array) -> jax.Array:
        # Zeros stay zeros, and a log weight may be shifted as one likes.
        return cavity.at[: self.family.states - 1].add(step)


class FullGaussianChart(GaussianChart):
    """Mean and log-Cholesky factor of the covariance."""

    parameters = without_parameters

    def place(self, eta: jax.Array) -> jax.Array:
        mean, covariance = self.family.coordinates(eta)
        return jnp.concatenate([mean, log_cholesky(jnp.linalg.cholesky(covariance))])

    def change(self, cavity: jax.Array, projected: jax.Array) -> jax.Array:
        (mean, covariance), (new, spread) = self.family.coordinates(cavity), self.family.coordinates(projected)
        root = jnp.linalg.cholesky(covariance)
        ratio = solve_triangular(root, jnp.linalg.cholesky(spread), lower=True)
        gap = solve_triangular(root @ ratio, new - mean, lower=True)
        return jnp.concatenate([gap, log_cholesky(ratio)])

    def displace(self, cavity: jax.Array, step: jax.Array) -> jax.Array:
        mean, covariance = self.family.coordinates(cavity)
        size = self.family.dimension
        root = jnp.linalg.cholesky(covariance) @ from_log_cholesky(step[size:], size)
        return self.family.from_mean(mean + root @ step[:size], root @ root.T)


#: the families whose messages can be learned
KNOWN = {
    **{Gaussian: GaussianChart, FullGaussian: FullGaussianChart, Beta: ShapeChart, Gamma: GammaChart},
    **{Dirichlet: ShapeChart, Categorical: CategoricalChart},
}


def chart(family: Family) -> Any:
    """The chart of a family: how its messages are written as vectors. Families that cannot be learned are refused."""
    for known, made in KNOWN.items():
        if isinstance(family, known):
            return made(family)
    names = ", ".join(known.__name__ for known in KNOWN)
    raise TypeError(f"messages of {type(family).__name__} cannot be learned; of {names} they can.")


def parts_of(family: Family) -> tuple[Family, ...]:
    """The families of a factor's variables; those that cannot be learned are refused."""
    found = family.families if isinstance(family, Product) else (family,)
    for own in found:
        chart(own)
    return found


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
        broad = np.zeros(own.size)
        if isinstance(own, OrFlat):
            broad = chart(own).broad(np.asarray(own.mean(piece)), np.asarray(own.covariance(piece)))
        found.append(np.asarray(broad))
    return np.concatenate(found)


def coordinates(family: Family, eta: jax.Array) -> jax.Array:
    """Where messages to all variables of a factor are."""
    return jnp.concatenate([chart(own).place(piece) for own, piece in variables(family, eta)])


def changes(family: Family, cavity: jax.Array, projected: jax.Array) -> jax.Array:
    """`change` of all variables."""
    return jnp.concatenate([chart(own).change(*pieces) for own, *pieces in variables(family, cavity, projected)])


def displace_all(family: Family, cavity: jax.Array, steps: jax.Array) -> jax.Array:
    """`displace` of all variables."""
    rows = variables(family, cavity)
    pieces = jnp.split(steps, np.cumsum([steps_of(own) for own, _ in rows])[:-1])
    return jnp.concatenate([chart(own).displace(piece, step) for (own, piece), step in zip(rows, pieces, strict=True)])


@cache
def steps_of(family: Family) -> int:
    """Length of `changes`: as many as there are coordinates."""
    return jax.eval_shape(partial(coordinates, family), jnp.zeros(family.size)).size


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
            return chart(own).change(incoming, projected)
        return chart(own).parameters(projected if self.kind == "parameters" else own.ratio(projected, incoming))

    def back(self, cavity: jax.Array, values: jax.Array) -> jax.Array:
        """Natural parameters of the projection that the numbers stand for."""
        own, incoming = variables(self.family, cavity)[self.output]
        if self.kind == "statistics":
            return own.natural(values)
        if self.kind == "change":
            return chart(own).displace(incoming, values)
        found = chart(own).from_parameters(values)
        return found if self.kind == "parameters" else own.product(found, incoming)
