"""Factors whose every message comes from an oracle: nothing is learned, and nothing is saved."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from cavity._core.precision import float64
from cavity._core.pytrees import static
from cavity.factors.base import Factor, factor, is_one
from cavity.families.base import Family, Tilted
from cavity.learned.message_coordinates import parts_of, statistics_of
from cavity.learned.oracles import Integrated, Oracle, joined
from cavity.learned.sampling import Automatic
from cavity.learned.simulation import Sampler, Simulated, Simulator, Slots, simulator
from cavity.moments.base import Moments

#: effective sample size below which an answer of the oracle is refused
LEAST_ESS = 200.0
#: draws of one answer of a sampler
DRAWS = 8192
#: questions that are integrated at a time
BATCH = 16


@factor
class EveryTime(Factor):
    """A factor whose oracle is asked for each message, from inside the compiled sweep. Made by `every_time`.

    The draws are the same each time (common random numbers), so that there is a fixed point to converge to. key: its
    numbers.
    """

    inner: Factor
    oracle: Oracle = static()
    key: tuple[int, ...] = static()
    known: tuple[int, ...] = static(default=())

    closed_forms: ClassVar[tuple[str, ...]] = ("families that can be drawn, power 1",)

    def check(self, data: Any) -> None:
        self.inner.check(data)

    def with_known(self, places: tuple[int, ...]) -> "EveryTime":
        return EveryTime(self.inner, self.oracle, self.key, places)

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        if not is_one(power):
            return NotImplemented
        check_slots(self.inner, family, self.known)

        flat, rebuild = ravel_pytree((cavity, jax.tree.map(lambda leaf: jnp.asarray(leaf, float), data)))

        # Callbacks come from threads that know nothing of the scope of float64: numbers travel as bytes.
        @float64
        def ask(words: Any) -> np.ndarray:
            lead = np.shape(words)[:-2]
            rows = np.ascontiguousarray(words).view(np.float64).reshape(-1, flat.size)
            cavities, own = jax.tree.map(np.asarray, jax.vmap(rebuild)(jnp.asarray(rows)))
            key = jax.random.wrap_key_data(jnp.asarray(self.key, np.uint32))
            # One by one where answers are sampled: a site has the same draws whoever is asked about beside it.
            single = [slice(k, k + 1) for k in range(len(rows))] if self.oracle.is_noisy(family) else [slice(None)]
            batches = [(cavities[at], jax.tree.map(lambda leaf, at=at: leaf[at], own)) for at in single]
            found = joined([self.oracle.answer(family, eta, data, self.known, key) for eta, data in batches])
            answers = np.concatenate([found.projected - cavities, found.log_z[:, None]], axis=1)
            return answers.view(np.uint32).reshape(*lead, -1, 2)

        shape = jax.ShapeDtypeStruct((cavity.size + 1, 2), np.uint32)
        words = jax.lax.bitcast_convert_type(flat, np.uint32)
        answer = jax.pure_callback(ask, shape, words, vmap_method="broadcast_all")
        site, log_z = jnp.split(jax.lax.bitcast_convert_type(answer, np.float64), [cavity.size])
        found = jnp.isfinite(log_z[0])
        return Tilted(log_z[0], statistics_of(family, cavity, jnp.where(found, site, 0.0)), site)


def every_time(
    factor_or_sampler: Factor | Sampler,
    inputs: Slots | None = None,
    outputs: Slots | None = None,
    *,
    oracle: Moments | Oracle | None = None,
    draws: int = DRAWS,
    key: jax.Array | None = None,
) -> EveryTime:
    """A factor each of whose messages is sampled or integrated anew: what `just_in_time` is to be compared with.

    Args:
        factor_or_sampler: as `just_in_time` takes it, like all that follows.
        inputs: of a sampler.
        outputs: of a sampler.
        oracle: who is asked.
        draws: of one answer that is sampled.
        key: of the draws.
    """
    inner, asked = inner_and_oracle(factor_or_sampler, inputs, outputs, oracle, draws)
    numbers = np.asarray(jax.random.key_data(jax.random.key(0) if key is None else key)).tolist()
    return EveryTime(inner, asked, tuple(numbers))


def inner_and_oracle(
    factor_or_sampler: Factor | Sampler,
    inputs: Slots | None,
    outputs: Slots | None,
    oracle: Moments | Oracle | None,
    draws: int,
) -> tuple[Factor, Oracle]:
    """The factor that is meant, and who answers questions about it."""
    if not isinstance(draws, int) or draws < 2 * LEAST_ESS:
        raise ValueError(f"draws must be an integer of at least {2 * LEAST_ESS:.0f}; found {draws!r}.")
    if oracle is not None and not isinstance(oracle, Moments | Oracle):
        raise TypeError(f"oracle must be a strategy such as cavity.Quadrature(); found {type(oracle).__name__}.")
    if isinstance(factor_or_sampler, Factor):
        if inputs is not None or outputs is not None:
            raise TypeError("inputs and outputs are those of a sampler; a factor knows its own.")
        inner = factor_or_sampler
        asked = Automatic(inner, draws, LEAST_ESS, BATCH) if oracle is None else oracle
    elif callable(factor_or_sampler):
        if inputs is None or outputs is None:
            raise TypeError("a sampler needs its inputs and outputs: their names, in its order.")
        inner = simulator(factor_or_sampler, inputs, outputs)
        if isinstance(oracle, Moments):
            raise TypeError("a sampler has no density that could be integrated: leave oracle out.")
        asked = Simulated(inner.sampler, len(inner.inputs), draws, LEAST_ESS) if oracle is None else oracle
    else:
        raise TypeError(f"a factor or a sampler is needed; found {type(factor_or_sampler).__name__}.")
    return inner, Integrated(inner, asked, LEAST_ESS, BATCH) if isinstance(asked, Moments) else asked


def check_slots(inner: Factor, family: Family, known: tuple[int, ...]) -> None:
    """Refuse variables whose messages cannot be learned or sampled, or that are not a sampler's."""
    parts_of(family)
    if isinstance(inner, Simulator):
        inner.fits(family, known)
