"""What a regression may predict of a factor's answer about one of its variables, and the way back.

    statistics    E[u(x)] under the projection (section 3.3 of Jitkrittum et al.)
    parameters    of the projection: (mean, log variance), (log a, log b), (log shape, log rate)
    message       the same parameters of the outgoing message, projection / incoming
    change        from the incoming message to the projection, see `coordinates`

`parameters` can only name proper distributions, and `change` is 0 where the factor says nothing; a predicted vector of
`statistics` may belong to no distribution at all, and an exact outgoing message may have no `parameters`.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from cavity.families.base import Family
from cavity.families.dirichlet import Beta, Dirichlet
from cavity.families.gamma import Gamma
from cavity.families.gaussian import Gaussian
from cavity.learned.message_coordinates import change, displace, parts_of, split_variables

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
        own, incoming = self.own, split_variables(self.family, cavity)[self.output]
        if self.kind == "statistics":
            return own.moments(projected)
        if self.kind == "change":
            return change(own, incoming, projected)
        return parameters(own, projected if self.kind == "parameters" else own.ratio(projected, incoming))

    def back(self, cavity: jax.Array, values: jax.Array) -> jax.Array:
        """Natural parameters of the projection that the numbers stand for."""
        own, incoming = self.own, split_variables(self.family, cavity)[self.output]
        if self.kind == "statistics":
            return own.natural(values)
        if self.kind == "change":
            return displace(own, incoming, values)
        found = from_parameters(own, values)
        return found if self.kind == "parameters" else own.product(found, incoming)


def parameters(family: Family, eta: jax.Array) -> jax.Array:
    """(mean, log variance) of a Gaussian, logarithms of the parameters of a Beta, Gamma or Dirichlet."""
    if isinstance(family, Gaussian):
        mean, variance = family.coordinates(eta)
        return jnp.stack([mean, jnp.log(variance)])
    if isinstance(family, Beta | Gamma | Dirichlet):
        return jnp.log(eta)
    raise TypeError(f"parameters are those of Gaussian, Beta, Gamma or Dirichlet; found {type(family).__name__}.")


def from_parameters(family: Family, values: jax.Array) -> jax.Array:
    """The inverse of `parameters`."""
    if isinstance(family, Gaussian):
        return family.from_mean(values[0], jnp.exp(values[1]))
    return jnp.exp(values)
