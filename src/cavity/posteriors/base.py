"""The contract of a posterior: how q is stored and how a change of sites is absorbed.

Natural parameters of sites come in groups. A posterior answers for one group at a time what part of q a site of that
group sees (`local`), absorbs weighted changes (`absorb`), and can rebuild itself from prior and sites (`refresh`),
which the loop does after every sweep because the updates lose digits.
"""

from abc import ABC, abstractmethod
from typing import Any

import jax

Q = Any


class Posterior(ABC):
    """Strategies are frozen dataclasses: hashable, static under `jit`. `scope` says what a group acts on."""

    @abstractmethod
    def refresh(self, prior: Any, groups: tuple[tuple[Any, jax.Array], ...]) -> Q:
        """q = prior × sites, from pairs (scope, sum of the group's weighted sites or the sites themselves)."""

    @abstractmethod
    def local(self, q: Q, scope: Any, index: jax.Array) -> jax.Array:
        """Natural parameters of the marginal of q that sites `index` (a vector) of a group see, one row a site."""

    @abstractmethod
    def absorb(self, q: Q, scope: Any, index: jax.Array, change: jax.Array) -> Q:
        """q times the weighted changes (one row a site) of sites `index`."""

    @abstractmethod
    def is_proper(self, q: Q) -> jax.Array:
        """Whether q can be normalised."""

    @abstractmethod
    def log_partition(self, q: Q) -> jax.Array:
        """Log normaliser of q, or of the prior when given the prior."""

    @abstractmethod
    def views(self, q: Q) -> dict[str, jax.Array]:
        """What users look at: mean, covariance, and whatever else the model calls its parameters."""

    @abstractmethod
    def sample(self, key: jax.Array, q: Q, draws: int) -> Any:
        """Independent draws from q."""

    @abstractmethod
    def log_density(self, q: Q, x: Any) -> jax.Array:
        """log q(x)."""
