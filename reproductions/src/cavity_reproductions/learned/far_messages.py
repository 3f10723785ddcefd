"""Messages unlike those an operator was shown: is it unsure, or right?"""

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity.factors.logistic import Logistic
from cavity.families import Gaussian
from cavity.learned import LearnedFactor
from cavity.moments import UNSURE, Batch

FAMILY = Gaussian()
#: logarithms (base 10) of the variances, and largest mean
VARIANCES, LARGEST = (-6.0, 6.0), 1e3


def far_messages(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Cavities and labels: half of the means near 0, half up to the largest, variances over twelve decades."""
    rng = np.random.default_rng(seed)
    variance = 10.0 ** rng.uniform(*VARIANCES, count)
    mean = np.where(np.arange(count) % 2 == 0, rng.normal(0.0, 3.0, count), rng.uniform(-LARGEST, LARGEST, count))
    return np.column_stack([mean / variance, 1.0 / variance]), np.where(rng.random(count) < 0.5, 1.0, -1.0)


@float64
def looked_at(factor: LearnedFactor, cavities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(whether the operator is sure, KL of its projection from the exact one) of every message."""
    batch = Batch(factor, FAMILY, jnp.asarray(cavities), jnp.asarray(labels), np.zeros(len(labels), bool), False)
    state = factor.moments.init(batch)

    @jax.jit
    def look(rows: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        def one(cavity: jax.Array, own: jax.Array) -> tuple[jax.Array, jax.Array]:
            found, info = factor.moments.tilt(state, factor, FAMILY, cavity, own, 1.0, jax.random.key(0))
            exact = Logistic().tilted(FAMILY, cavity, own, 1.0)
            return ~info[UNSURE], FAMILY.kl(cavity + exact.site, cavity + found.site)

        return jax.vmap(one)(rows, y)

    sure, kl = look(jnp.asarray(cavities), jnp.asarray(labels))
    return np.asarray(sure), np.asarray(kl)
