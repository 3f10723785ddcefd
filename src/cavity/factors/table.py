"""A factor of discrete variables given by its table of log weights."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity.factors.base import Factor, factor
from cavity.numerics.precision import is_traced


@factor
class Table(Factor):
    """t(x₁, …, x_m) = exp(data[x₁, …, x_m]); −inf is a weight of zero. Summed by `Enumeration`."""

    def check(self, data: Any) -> None:
        """Log weights may be −inf, but nothing larger than any number and nothing undefined."""
        if not is_traced(data) and not np.all(np.asarray(data) < np.inf):
            raise ValueError("data of Table must be log weights: numbers or −inf.")

    def log_density(self, x: Any, data: Any) -> jax.Array:
        return jnp.asarray(data)[x if isinstance(x, tuple) else (x,)]
