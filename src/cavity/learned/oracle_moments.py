"""Messages that are asked of an oracle every time: nothing is learned, and nothing is saved."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from cavity._core.precision import float64
from cavity.factors.base import Factor, is_one
from cavity.families.base import Family, Tilted
from cavity.learned.message_coordinates import tilted_statistics_of
from cavity.learned.oracles import Oracle, join_answers
from cavity.learned.sampling import DRAWS, as_oracle
from cavity.learned.simulation import check_variables
from cavity.moments.base import UNSURE, Info, Moments


class EveryTime(Moments):
    """Every message sampled or integrated anew, from inside the compiled sweep: what `JustInTime` is compared with.

    The draws are the same each time (common random numbers), so that there is a fixed point to converge to.

    Args:
        oracle: who is asked, as `JustInTime` takes it.
        draws: of one answer that is sampled.
        key: of the draws.

    Raises:
        TypeError, ValueError: an argument is of the wrong kind or out of range, in one sentence.

    Examples:
        >>> import cavity
        >>> walk = cavity.learned.Simulator(lambda rng, x: x + rng.normal(size=x.shape), inputs=1, outputs=1)
        >>> graph = cavity.FactorGraph()
        >>> before, after = graph.gaussian(0.0, 1.0), graph.gaussian(1.0, 1.0)
        >>> graph.add(walk, before, after, moments=cavity.learned.EveryTime(draws=1024))
    """

    def __init__(
        self, oracle: Moments | Oracle | None = None, *, draws: int = DRAWS, key: jax.Array | None = None
    ) -> None:
        self.oracle = as_oracle(oracle, draws)
        # NumPy numbers, which may be used while a program is traced.
        self.key = np.asarray(jax.random.key_data(jax.random.key(0) if key is None else key))

    def check(self, factor: Factor, family: Family) -> None:
        self.oracle.check(factor)
        check_variables(factor, family)

    def tilt(
        self, state: Any, factor: Factor, family: Family, cavity: jax.Array, data: Any, power: float, key: jax.Array
    ) -> tuple[Tilted, Info]:
        if not is_one(power):
            raise TypeError("sampled messages are those of whole factors, power 1; use EP.")
        flat, rebuild = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, float), (cavity, data, factor)))
        noisy = self.oracle.is_noisy(factor, family)

        # Callbacks come from threads that know nothing of the scope of float64: numbers travel as bytes.
        @float64
        def ask(words: Any) -> np.ndarray:
            lead = np.shape(words)[:-2]
            rows = np.ascontiguousarray(words).view(np.float64).reshape(-1, flat.size)
            cavities, data, factors = jax.tree.map(np.asarray, jax.vmap(rebuild)(jnp.asarray(rows)))
            factor = jax.tree.map(lambda leaf: leaf[0], factors)
            key = jax.random.wrap_key_data(jnp.asarray(self.key, np.uint32))
            # One by one where answers are sampled: a site has the same draws whatever is asked beside it.
            single = [slice(k, k + 1) for k in range(len(rows))] if noisy else [slice(None)]
            batches = [(cavities[at], jax.tree.map(lambda leaf, at=at: leaf[at], data)) for at in single]
            found = join_answers([self.oracle.answer(factor, family, eta, own, key) for eta, own in batches])
            answers = np.concatenate([found.projected - cavities, found.log_z[:, None]], axis=1)
            return answers.view(np.uint32).reshape(*lead, -1, 2)

        shape = jax.ShapeDtypeStruct((cavity.size + 1, 2), np.uint32)
        words = jax.lax.bitcast_convert_type(flat, np.uint32)
        answer = jax.pure_callback(ask, shape, words, vmap_method="broadcast_all")
        site, log_z = jnp.split(jax.lax.bitcast_convert_type(answer, np.float64), [cavity.size])
        # An answer that was refused is not finite.
        refused = ~(jnp.isfinite(log_z[0]) & jnp.all(jnp.isfinite(site)))
        site = jnp.where(refused, 0.0, site)
        tilted = Tilted(jnp.where(refused, 0.0, log_z[0]), tilted_statistics_of(family, cavity, site), site)
        return tilted, {UNSURE: refused}
