"""An exponential family as such: a density in natural parameters, its moments and draws, and what follows from them.

Natural parameters `eta` are a plain array whose last axis has length `size`; its leading axes are sites or batches:

    density(x) = exp((eta - flat)·T(x) - A(eta)),        A = log_partition.

`flat` is the natural parameter of the density that is constant in x. It is 0 for Gaussian and categorical families and
(1, …, 1) for Beta and Dirichlet, (1, 0) for Gamma: their natural parameters are the shapes themselves, not shape − 1,
so that a shape of 1e-6 keeps all its digits.

In the shapes of arrays `k` is `size`, `s` the number of expected statistics, and `*batch` are the leading axes
(docs/notation.md, Shapes).
"""

from abc import ABC, abstractmethod
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from cavity._core.precision import float64, open_float64

#: what users ask a family: every answer is computed in double precision
QUESTIONS = (
    "covariance distance entropy flat from_concentration from_mean from_probabilities from_shape_rate from_shapes "
    "is_allowed is_proper kl log_density log_partition mean moments natural sample spread statistics uniform"
)


class ExponentialFamily(ABC):
    """A set of densities exp((eta − flat)·T(x) − A(eta)), one for every vector of natural parameters eta."""

    def __init_subclass__(cls) -> None:
        open_float64(cls, QUESTIONS)

    @property
    @abstractmethod
    def size(self) -> int:
        """Length of the natural parameter vector."""

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one value x."""
        return ()

    @float64
    def uniform(self) -> Float[Array, " k"]:
        """The uniform message, exp(0·T(x)) = 1.

        Returns:
            Its natural parameters, all 0.
        """
        return jnp.zeros(self.size)

    @float64
    def flat(self) -> Float[Array, " k"]:
        """Natural parameters of the density that is constant in x (improper or not).

        Returns:
            One vector.
        """
        return jnp.zeros(self.size)

    @abstractmethod
    def statistics(self, x: Any) -> Float[Array, "*batch s"]:
        """Sufficient statistics T(x).

        Args:
            x: values, each of shape `event_shape`.

        Returns:
            One row per value.
        """

    @abstractmethod
    def log_partition(self, eta: Float[Array, "*batch k"]) -> Float[Array, "*batch"]:
        """A(eta) = log ∫ exp((eta − flat)·T(x)) dx.

        Args:
            eta: natural parameters.

        Returns:
            One number per member.
        """

    @abstractmethod
    def moments(self, eta: Float[Array, "*batch k"]) -> Float[Array, "*batch s"]:
        """Expected sufficient statistics, the gradient of A.

        Args:
            eta: natural parameters.

        Returns:
            mu(eta) = E[T(x)], one row per member.
        """

    @abstractmethod
    def natural(self, mu: Float[Array, "*batch s"]) -> Float[Array, "*batch k"]:
        """The natural parameters whose expected statistics are `mu`: the inverse of `moments`.

        Args:
            mu: expected statistics.

        Returns:
            Natural parameters.
        """

    @abstractmethod
    def is_proper(self, eta: Float[Array, "*batch k"]) -> Bool[Array, "*batch"]:
        """Whether exp(eta·T) times the base measure can be normalised.

        Args:
            eta: natural parameters.

        Returns:
            One boolean per member.
        """

    @abstractmethod
    def sample(self, key: Key[Array, ""], eta: Float[Array, "*batch k"], shape: tuple[int, ...] = ()) -> Any:
        """Independent draws of shape `shape + eta.shape[:-1] + event_shape`.

        Args:
            key: made by `jax.random.key`.
            eta: natural parameters.
            shape: of the draws of each member.

        Returns:
            The draws.
        """

    @abstractmethod
    def mean(self, eta: Float[Array, "*batch k"]) -> Any:
        """E[x].

        Args:
            eta: natural parameters.

        Returns:
            One mean per member, of shape `event_shape`.
        """

    @abstractmethod
    def covariance(self, eta: Float[Array, "*batch k"]) -> Any:
        """Cov[x]: a number for scalar x, a matrix for vectors.

        Args:
            eta: natural parameters.

        Returns:
            One covariance per member.
        """

    @float64
    def log_density(self, eta: Float[Array, "*batch k"], x: Any) -> Float[Array, "..."]:
        """log density at x: (eta − flat)·T(x) − A(eta).

        Args:
            eta: natural parameters.
            x: values; their leading axes broadcast with those of `eta`.

        Returns:
            One number per value.
        """
        weights = jnp.asarray(eta) - self.flat()
        return jnp.sum(weights * self.statistics(jnp.asarray(x)), axis=-1) - self.log_partition(jnp.asarray(eta))

    @float64
    def product(self, eta: Float[Array, "*batch k"], other: Float[Array, "*batch k"]) -> Float[Array, "*batch k"]:
        """Natural parameters of the normalised product of two densities.

        Args:
            eta: of the one.
            other: of the other.

        Returns:
            eta + other − flat.
        """
        return jnp.asarray(eta) + jnp.asarray(other) - self.flat()

    @float64
    def ratio(self, eta: Float[Array, "*batch k"], other: Float[Array, "*batch k"]) -> Float[Array, "*batch k"]:
        """Natural parameters of the quotient of two densities; it may be improper.

        Args:
            eta: of the numerator.
            other: of the denominator.

        Returns:
            eta − other + flat.
        """
        return jnp.asarray(eta) - jnp.asarray(other) + self.flat()

    @float64
    def power(self, eta: Float[Array, "*batch k"], exponent: float) -> Float[Array, "*batch k"]:
        """Natural parameters of a density raised to `exponent` and normalised.

        Args:
            eta: of the density.
            exponent: any real number; the outcome may be improper.

        Returns:
            flat + exponent · (eta − flat).
        """
        return self.flat() + exponent * (jnp.asarray(eta) - self.flat())

    @float64
    def kl(self, eta: Float[Array, "*batch k"], other: Float[Array, "*batch k"]) -> Float[Array, "*batch"]:
        """KL(eta ‖ other) = (eta − other)·mu(eta) − A(eta) + A(other).

        Args:
            eta: natural parameters of the density whose expectation is taken.
            other: of the other.

        Returns:
            One number per pair, in nats.
        """
        eta, other = jnp.asarray(eta), jnp.asarray(other)
        linear = jnp.sum((eta - other) * self.moments(eta), axis=-1)
        return linear - self.log_partition(eta) + self.log_partition(other)

    @float64
    def entropy(self, eta: Float[Array, "*batch k"]) -> Float[Array, "*batch"]:
        """−E[log density] = A(eta) − (eta − flat)·mu(eta).

        Args:
            eta: natural parameters.

        Returns:
            One number per member, in nats.
        """
        eta = jnp.asarray(eta)
        return self.log_partition(eta) - jnp.sum((eta - self.flat()) * self.moments(eta), axis=-1)
