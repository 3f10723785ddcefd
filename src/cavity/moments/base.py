"""The contract of a moments strategy: how a tilted distribution is integrated.

`tilt` is called for one site at a time and mapped over sites by the loop, so it must be free of Python branches on
values. `init` and `learn` carry state between sweeps for strategies that learn; the others have none.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from cavity.factors.base import Factor
from cavity.families.base import Family, Tilted

#: what a strategy reports of one integration (effective sample size, error estimate): the same keys every time.
Info = dict[str, jax.Array]


class Moments(ABC):
    """Strategies are frozen dataclasses: hashable, static under `jit`."""

    #: whether `tilt` uses its key; where not, none is derived, which keeps the compiled loop small.
    random: ClassVar[bool] = False

    def init(self) -> Any:
        """State carried from sweep to sweep."""
        return None

    @abstractmethod
    def tilt(
        self, state: Any, factor: Factor, family: Family, cavity: jax.Array, data: Any, power: float, key: jax.Array
    ) -> tuple[Tilted, Info]:
        """Moments of factor**power × cavity for one site. `key` is the site's own, the same in every sweep."""

    def expected_log(
        self,
        state: Any,
        factor: Factor,
        family: Family,
        cavity: jax.Array,
        data: Any,
        key: jax.Array,
        tilted: Tilted,
    ) -> jax.Array:
        """E[log t] under factor × cavity: in closed form where the factor has one, else ∂ log Z/∂power at power 1."""
        known = factor.expected_log(family, cavity, data, tilted)
        if known is not NotImplemented:
            return known

        def log_z(power: jax.Array) -> jax.Array:
            return self.tilt(state, factor, family, cavity, data, power, key)[0].log_z  # type: ignore[arg-type]

        return jax.jvp(log_z, (jnp.ones(()),), (jnp.ones(()),))[1]

    def learn(self, state: Any, batch: Any) -> Any:
        """State after seeing a batch of integrated sites."""
        return state

    def evaluations(self, family: Family) -> int:
        """Factor evaluations one `tilt` costs, for the accounting of cost; a closed form counts as one."""
        return 1
