"""Projections: from a tilted distribution to the message that stands for it."""

import dataclasses
from abc import ABC, abstractmethod

import jax
import jax.numpy as jnp

from cavity.families.base import Family, Tilted
from cavity.families.dirichlet import Dirichlet


class Projection(ABC):
    """Strategies are frozen dataclasses: hashable, static under `jit`."""

    def adapt(self, family: Family) -> Family:
        """The family whose tilted statistics the projection wants; most want the family's own."""
        return family

    @abstractmethod
    def project(self, family: Family, cavity: jax.Array, tilted: Tilted) -> tuple[jax.Array, jax.Array]:
        """(message, whether the expectation constraints had to be given up), for one site."""


@dataclasses.dataclass(frozen=True)
class Matched(Projection):
    """Moment matching, the minimiser of KL(tilted ‖ q): ADF, EP, Power EP."""

    def project(self, family: Family, cavity: jax.Array, tilted: Tilted) -> tuple[jax.Array, jax.Array]:
        return tilted.site, jnp.zeros((), bool)


@dataclasses.dataclass(frozen=True)
class Restricted(Projection):
    """Moment matching under the constraint that the site stays proper (thesis 3.2.1).

    The constraint acts inside the projection: a site that would be negative is replaced by the KL-nearest one with
    precision ≥ floor, which keeps the tilted mean. `floor` = 1e-8 is the thesis's printed variant: v = 1e8, and q's
    variance then is the cavity's up to a factor 1 + 1e-8 v, where the print sets v_new = v.
    """

    floor: float = 0.0

    def project(self, family: Family, cavity: jax.Array, tilted: Tilted) -> tuple[jax.Array, jax.Array]:
        negative = family.is_negative(tilted.site)
        kept = family.keep_proper(cavity, tilted.stats, tilted.site, self.floor)
        return jnp.where(negative, kept, tilted.site), negative


@dataclasses.dataclass(frozen=True)
class Cowell(Projection):
    """Keep (E[w_k], Σ_k E[w_k²]) of a Dirichlet instead of E[log w_k]: not the KL minimiser, but no Newton (3.3.3)."""

    def adapt(self, family: Family) -> Family:
        if not isinstance(family, Dirichlet):
            raise TypeError(f"The Cowell projection is defined for Dirichlet sites; found {type(family).__name__}.")
        return dataclasses.replace(family, match="mean_square")

    def project(self, family: Family, cavity: jax.Array, tilted: Tilted) -> tuple[jax.Array, jax.Array]:
        return tilted.site, jnp.zeros((), bool)
