"""The categorical distribution with exact zeros: eta = (log weights (K), numbers of zeros (K)).

A state that some message calls impossible has weight 0. Writing that as log weight −inf would make the deletion of a
message inf − inf. Here each message that says "impossible" adds one to the state's count instead, and its log weight is
0 there. Deleting one of two such messages leaves a zero, deleting the only one brings the state back: a cavity is
exactly the product of the other messages (thesis 3.41).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from cavity._numerics.sums import (
    FEW,
    all_last,
    log_excess,
    log_sum_along,
    shares_and_rest,
    shares_last,
    sums_without_each,
)
from cavity.families.base import Family

#: A count above this is a zero. Not 0, because fractional powers and damped steps add up to integers only nearly.
SOME = 1e-9

#: log odds beyond which a state is as good as impossible where two distributions are compared
LARGEST_ODDS = 700.0


def spread_gap(weights: Sequence[jax.Array], others: Sequence[jax.Array]) -> jax.Array:
    """Largest |p − q| / sqrt(p (1 − p)) over states, from log weights with every state apart.

    Of two states both differ by the same: with the log odds u of p and v of q it is |sinh((u − v)/2)| / cosh(v/2).
    """
    if len(weights) == 1:
        return jnp.zeros_like(weights[0])
    if len(weights) == 2:
        u = jnp.clip(weights[0] - weights[1], -LARGEST_ODDS, LARGEST_ODDS)
        v = jnp.clip(others[0] - others[1], -LARGEST_ODDS, LARGEST_ODDS)
        half, low = jnp.exp(0.5 * (u - v)), jnp.exp(-0.5 * jnp.abs(v))
        return jnp.abs(half - 1.0 / half) * low / (1.0 + low * low)
    (p, p_rest), (q, q_rest) = shares_and_rest(weights), shares_and_rest(others)
    gaps = []
    for own, rest, other, other_rest in zip(p, p_rest, q, q_rest, strict=True):
        # What is nearly certain is known to more digits from the other states.
        gap = jnp.abs(jnp.where(own > 0.5, other_rest - rest, own - other))
        gaps.append(gap / jnp.sqrt(jnp.maximum(own * rest, jnp.finfo(float).tiny)))
    return reduce(jnp.maximum, gaps)


@dataclass(frozen=True)
class Categorical(Family):
    """Distribution over the integers 0, …, states − 1; expected statistics are the K probabilities.

    Args:
        states: K, the number of states.

    Raises:
        ValueError: if there are no states.

    Examples:
        >>> import cavity as cv
        >>> three = cv.families.Categorical(3)
        >>> three.moments(three.from_probabilities([1.0, 1.0, 2.0])).tolist()
        [0.25, 0.25, 0.5]
    """

    states: int

    def __post_init__(self) -> None:
        if self.states < 1:
            raise ValueError(f"Categorical needs states >= 1, got {self.states}.")

    #: counts of zeros are never negative: a cavity is a product of the other messages
    cavities_proper: ClassVar[bool] = True

    @property
    def size(self) -> int:
        return 2 * self.states

    def from_probabilities(self, probabilities: Any) -> jax.Array:
        """Natural parameters of these probabilities, or of weights that need not sum to one."""
        weights = jnp.asarray(probabilities, float)
        return self.natural(weights / jnp.sum(weights, axis=-1, keepdims=True))

    def log_weights(self, eta: jax.Array) -> jax.Array:
        """Unnormalised log probabilities, −inf where the state is impossible."""
        eta = jnp.asarray(eta)
        return jnp.where(self.zeros(eta) > SOME, -jnp.inf, eta[..., : self.states])

    def zeros(self, eta: jax.Array) -> jax.Array:
        """How many messages call each state impossible."""
        return jnp.asarray(eta)[..., self.states :]

    def log_probabilities(self, eta: jax.Array) -> jax.Array:
        """Normalised log weights; −inf everywhere when no state is possible."""
        weights = self.log_weights(eta)
        total = log_sum_along(weights)[..., None]
        return weights - jnp.where(jnp.isfinite(total), total, 0.0)

    def coordinates(self, eta: jax.Array) -> tuple[jax.Array, ...]:
        """(probabilities,)."""
        return (self.moments(eta),)

    def statistics(self, x: jax.Array) -> jax.Array:
        """Indicators of the K states."""
        return jax.nn.one_hot(jnp.asarray(x), self.states, dtype=float)

    def log_partition(self, eta: jax.Array) -> jax.Array:
        """log Σ weights of possible states: −inf if there is none, inf if more zeros were removed than there were."""
        counted = all_last(self.zeros(eta) >= -SOME)
        return jnp.where(counted, log_sum_along(self.log_weights(eta)), jnp.inf)

    def moments(self, eta: jax.Array) -> jax.Array:
        """The K probabilities."""
        return shares_last(self.log_weights(eta))

    def natural(self, mu: jax.Array) -> jax.Array:
        mu = jnp.asarray(mu)
        zero = mu == 0
        return jnp.concatenate([jnp.log(jnp.where(zero, 1.0, mu)), zero.astype(float)], axis=-1)

    def is_proper(self, eta: jax.Array) -> jax.Array:
        zeros = self.zeros(eta)
        return ~all_last(zeros > SOME) & all_last(zeros >= -SOME) & all_last(jnp.isfinite(jnp.asarray(eta)))

    def sample(self, key: jax.Array, eta: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        weights = self.log_weights(eta)
        return jax.random.categorical(key, weights, shape=(*shape, *weights.shape[:-1]))

    def mean(self, eta: jax.Array) -> jax.Array:
        """E[x] of the state's number; `moments` has the probabilities."""
        return jnp.sum(self.moments(eta) * jnp.arange(self.states), axis=-1)

    def covariance(self, eta: jax.Array) -> jax.Array:
        """Variance of the state's number."""
        spread = jnp.arange(self.states) - self.mean(eta)[..., None]
        return jnp.sum(self.moments(eta) * spread**2, axis=-1)

    def log_density(self, eta: jax.Array, x: jax.Array) -> jax.Array:
        """log probability of state x, −inf for an impossible state."""
        chosen = jnp.asarray(x)[..., None] == jnp.arange(self.states)
        return jnp.max(jnp.where(chosen, self.log_probabilities(eta), -jnp.inf), axis=-1)

    def entropy(self, eta: jax.Array) -> jax.Array:
        """−Σ p log p."""
        log_p = self.log_probabilities(eta)
        return -jnp.sum(jnp.where(jnp.isfinite(log_p), jnp.exp(log_p) * log_p, 0.0), axis=-1)

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """Σ p log(p/q) as Σ (q − p − p d) with d = log(q/p): terms ≥ 0. Infinite where q is zero and p is not."""
        log_p, log_q = self.log_probabilities(eta), self.log_probabilities(other)
        both = jnp.isfinite(log_p) & jnp.isfinite(log_q)
        p, q = jnp.exp(log_p), jnp.exp(log_q)
        step = jnp.where(both, jnp.asarray(other)[..., : self.states] - jnp.asarray(eta)[..., : self.states], 0.0)
        step = step - jnp.sum(jnp.where(both, p * step, 0.0), axis=-1, keepdims=True)
        close = jnp.all(jnp.where(both, jnp.abs(step) < 0.5, log_p == log_q), axis=-1, keepdims=True)
        # Close members: the change of log Σ weights from the changes themselves, not from two rounded sums.
        step = jnp.where(close & both, step, 0.0)
        shift = jnp.log1p(jnp.sum(p * jnp.expm1(step), axis=-1, keepdims=True))
        d = jnp.where(close, step - shift, jnp.where(both, log_q - log_p, 0.0))
        near = jnp.abs(d) < 0.5
        small = jnp.where(near, d, 0.0)
        terms = jnp.where(near & both, p * log_excess(jnp.expm1(small), jnp.exp(small)), q - p - p * d)
        return jnp.where(jnp.any((log_q == -jnp.inf) & (p > 0), axis=-1), jnp.inf, jnp.sum(terms, axis=-1))

    def distance(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """Largest difference of probabilities in units of sqrt(p (1 − p)) under `eta`."""
        both = self.is_proper(eta) & self.is_proper(other)
        if self.states <= FEW:
            gap = spread_gap(jnp.unstack(self.log_weights(eta), axis=-1), jnp.unstack(self.log_weights(other), axis=-1))
            return jnp.where(both, gap, jnp.inf)
        p, q = self.moments(eta), self.moments(other)
        _, rest = sums_without_each(p)
        # Of the most probable state, 1 − p and p − q are known from the other states alone.
        top = jnp.arange(self.states) == jnp.argmax(p, axis=-1, keepdims=True)
        others = jnp.sum(jnp.where(top, 0.0, p - q), axis=-1, keepdims=True)
        gap = jnp.abs(jnp.where(top, others, p - q))
        spread = jnp.sqrt(jnp.maximum(p * rest, jnp.finfo(float).tiny))
        return jnp.where(both, jnp.max(gap / spread, axis=-1), jnp.inf)

    def message(self, cavity: jax.Array, stats: jax.Array) -> jax.Array:
        """log(stats/cavity probabilities), one zero where stats is 0; uniform where the cavity is already zero.

        Probabilities, not weights, are divided: the scale of the cavity does not enter the message.
        """
        log_p = self.log_probabilities(cavity)
        silent = log_p == -jnp.inf
        zero = (stats == 0) & ~silent
        ratio = jnp.log(jnp.where(silent | zero, 1.0, stats)) - jnp.where(silent | zero, 0.0, log_p)
        return jnp.concatenate([ratio, zero.astype(ratio.dtype)], axis=-1)

    @property
    def local_size(self) -> int:
        return self.states

    def from_local(self, reference: jax.Array, x: jax.Array) -> jax.Array:
        """Log weights move, what is impossible stays so."""
        return jnp.concatenate([x, jnp.zeros_like(x)], axis=-1)

    def to_local(self, reference: jax.Array, change: jax.Array) -> jax.Array:
        return change[..., : self.states]

    def tilted_stats(self, log_z: Any, cavity: jax.Array) -> tuple[jax.Array, jax.Array]:
        """p_k (1 + g_k − p·g), with g the gradient of log Z in the cavity's probabilities p."""
        (p,) = self.coordinates(cavity)
        value, slope = jax.value_and_grad(log_z)(p)
        return value, p * (1.0 + slope - jnp.sum(p * slope))
