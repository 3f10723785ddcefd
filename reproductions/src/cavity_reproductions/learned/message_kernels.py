"""Kernels on tuples of messages (Jitkrittum et al., supplement B.2–B.5): in closed form, and as random features.

A message counts as the Gaussian of its mean and variance. k is a Gaussian kernel with one width a message, μ_r the
mean embedding of a tuple r, so that ⟨μ_r, μ_s⟩ = E k(x, y), x ~ r, y ~ s.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64, to_numpy
from cavity.families.base import Family
from cavity.learned.feature_regression import (
    MessageMoments,
    Waves,
    embedding_gaps,
    message_moments,
    single_products,
    two_stages,
    waves,
)

#: rows of messages to rows of features
Features = Callable[[MessageMoments], np.ndarray]


@float64
def moments_of(family: Family, etas: np.ndarray) -> MessageMoments:
    """The incoming messages of rows of cavities."""
    return to_numpy(message_moments(family, jnp.asarray(etas, float)))


def rows_of(messages: MessageMoments, rows: np.ndarray) -> MessageMoments:
    """Some of the tuples."""
    return MessageMoments(messages.means[rows], messages.variances[rows])


def alone(messages: MessageMoments) -> list[MessageMoments]:
    """Every message of the tuples by itself."""
    columns = range(messages.means.shape[1])
    return [MessageMoments(messages.means[:, [k]], messages.variances[:, [k]]) for k in columns]


class MessageKernel(ABC):
    """A kernel on tuples of messages. Widths are given by their squares, one per message."""

    @abstractmethod
    def gram(self, one: MessageMoments, other: MessageMoments) -> np.ndarray:
        """All values between two sets of tuples."""

    @abstractmethod
    def features(self, key: jax.Array, size: int) -> Features:
        """Random features whose inner products are near the kernel; `size` of each map they are made of."""


@dataclass(frozen=True)
class MeanVariance(MessageKernel):
    """∏ exp(−(m − m')²/2w²) exp(−(v − v')²/2u²): messages as points (B.2). squares: of w for all, then of u."""

    squares: tuple[float, ...]

    def points(self, of: MessageMoments) -> np.ndarray:
        """Means and variances in widths."""
        return np.concatenate(of, axis=1) / np.sqrt(self.squares)

    def gram(self, one: MessageMoments, other: MessageMoments) -> np.ndarray:
        gap = (self.points(one)[:, None] - self.points(other)[None]) ** 2
        return np.exp(-0.5 * gap.sum(axis=-1))

    @float64
    def features(self, key: jax.Array, size: int) -> Features:
        drawn = waves(key, size, jnp.ones(len(self.squares)))
        return lambda of: of_points(drawn, self.points(of))


@dataclass(frozen=True)
class ExpectedProduct(MessageKernel):
    """⟨μ_r, μ_s⟩ of joint embeddings: ∏ √(σ²/(v + v' + σ²)) exp(−½ (m − m')²/(v + v' + σ²)) (B.3)."""

    squares: tuple[float, ...]

    def gram(self, one: MessageMoments, other: MessageMoments) -> np.ndarray:
        return np.prod(single_products(one, other, self.squares), axis=0)

    @float64
    def features(self, key: jax.Array, size: int) -> Features:
        drawn = waves(key, size, jnp.sqrt(jnp.asarray(self.squares)))
        return lambda of: embedding(drawn, of)


@dataclass(frozen=True)
class SumOfProducts(MessageKernel):
    """Σ ⟨μ_r, μ_s⟩ over the messages of a tuple, each embedded alone (B.5); features side by side."""

    squares: tuple[float, ...]

    def gram(self, one: MessageMoments, other: MessageMoments) -> np.ndarray:
        return np.sum(single_products(one, other, self.squares), axis=0)

    @float64
    def features(self, key: jax.Array, size: int) -> Features:
        drawn = single_waves(key, size, self.squares)
        return lambda of: np.concatenate(single_embeddings(drawn, of), axis=1)


@dataclass(frozen=True)
class ProductOfProducts(ExpectedProduct):
    """The same kernel as `ExpectedProduct`, as Kronecker products of each message's own features (B.4)."""

    @float64
    def features(self, key: jax.Array, size: int) -> Features:
        drawn = single_waves(key, size, self.squares)

        def together(of: MessageMoments) -> np.ndarray:
            found = np.ones((len(of.means), 1))
            for own in single_embeddings(drawn, of):
                found = (found[:, :, None] * own[:, None]).reshape(len(own), -1)
            return found

        return together


@dataclass(frozen=True)
class OnEmbeddings(MessageKernel):
    """exp(−‖μ_r − μ_s‖²/2γ²) on joint embeddings (7). gamma2: γ². inner: features of the embeddings."""

    squares: tuple[float, ...]
    gamma2: float
    inner: int = 300

    def gram(self, one: MessageMoments, other: MessageMoments) -> np.ndarray:
        return np.exp(-0.5 * embedding_gaps(one, other, self.squares) / self.gamma2)

    @float64
    def features(self, key: jax.Array, size: int) -> Features:
        drawn = two_stages(key, self.inner, size, jnp.sqrt(jnp.asarray(self.squares)), self.gamma2**0.5)
        return lambda of: of_points(drawn.outer, embedding(drawn.inner, of))


@dataclass(frozen=True)
class SumOnEmbeddings(MessageKernel):
    """Σ exp(−‖μ_r − μ_s‖²/2γ²) over the messages of a tuple, each embedded alone, each with its own γ²."""

    squares: tuple[float, ...]
    gammas2: tuple[float, ...]

    def each(self, one: MessageMoments, other: MessageMoments) -> list[np.ndarray]:
        """The kernel of every message."""
        rows = zip(self.squares, self.gammas2, alone(one), alone(other), strict=True)
        return [OnEmbeddings((square,), gamma2).gram(*pair) for square, gamma2, *pair in rows]

    def gram(self, one: MessageMoments, other: MessageMoments) -> np.ndarray:
        return np.sum(self.each(one, other), axis=0)

    def features(self, key: jax.Array, size: int) -> Features:
        raise NotImplementedError("the supplement has this kernel with incomplete Cholesky only.")


@dataclass(frozen=True)
class ProductOnEmbeddings(SumOnEmbeddings):
    """∏ in place of Σ."""

    def gram(self, one: MessageMoments, other: MessageMoments) -> np.ndarray:
        return np.prod(self.each(one, other), axis=0)


def embedding(drawn: Waves, of: MessageMoments) -> np.ndarray:
    """√(2/D) cos(ω·m + b) exp(−½ Σ ω² v): Algorithm 1, step 3."""
    frequencies, phases = (np.asarray(own) for own in drawn)
    angle = of.means @ frequencies.T + phases
    return np.sqrt(2.0 / len(phases)) * np.cos(angle) * np.exp(-0.5 * of.variances @ (frequencies**2).T)


def of_points(drawn: Waves, points: np.ndarray) -> np.ndarray:
    """`Waves.of` for the host."""
    return embedding(drawn, MessageMoments(points, np.zeros_like(points)))


def single_waves(key: jax.Array, size: int, squares: tuple[float, ...]) -> list[Waves]:
    """One map a message."""
    keys = jax.random.split(key, len(squares))
    return [waves(own, size, jnp.sqrt(jnp.asarray([square]))) for own, square in zip(keys, squares, strict=True)]


def single_embeddings(drawn: list[Waves], of: MessageMoments) -> list[np.ndarray]:
    """Features of each message of the tuples, alone."""
    return [embedding(own, messages) for own, messages in zip(drawn, alone(of), strict=True)]
