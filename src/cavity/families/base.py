"""The contract of a family: what a message is, and the questions every message must answer.

A family is an exponential family in natural parameters `eta`, a plain array whose last axis has length `size` and
whose leading axes are sites or batches:

    density(x) = exp((eta - flat)·T(x) - A(eta)),        A = log_partition.

`flat` is the natural parameter of the density that is constant in x. It is 0 for Gaussian and categorical families and
(1, …, 1) for Beta and Dirichlet, (1, 0) for Gamma: their natural parameters are the shapes themselves, not shape − 1,
so that a shape of 1e-6 keeps all its digits. A *message* (a site, a factor's approximation) is exp(eta·T(x)); the
uniform message is `uniform()` = 0, and multiplying a distribution by messages is addition of natural
parameters. Messages may be improper; only posteriors must be proper.

In the shapes of arrays `k` is `size`, `s` the number of expected statistics, `l` is `local_size`, and `*batch` are the
leading axes (docs/notation.md, Shapes).
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from cavity._core.precision import float64, open_float64

#: what users ask a family: every answer is computed in double precision
QUESTIONS = (
    "covariance distance entropy flat from_concentration from_mean from_probabilities from_shape_rate from_shapes "
    "is_allowed is_proper kl log_density log_partition mean moments natural sample spread statistics uniform"
)


class Tilted(NamedTuple):
    """Moments of a tilted distribution (factor × cavity) and the message matched to them.

    Attributes:
        log_z: log ∫ factor × cavity.
        stats: in the family's own coordinates. Gaussian families: (d1, d2), the first and second derivatives of log Z
            in the cavity mean, laid out like `eta`. Every other family: the expected sufficient statistics.
        site: natural parameters of the matched message, the one that makes cavity × message share the tilted moments.
            It follows from `stats` by `family.message`; a factor gives it directly where that would cancel.

    Examples:
        >>> import cavity as cv
        >>> gaussian = cv.families.Gaussian()
        >>> observed = cv.factors.Gaussian(variance=1.0).tilted(gaussian, gaussian.from_mean(0.0, 1.0), 2.0, 1)
        >>> observed.site.tolist()
        [2.0, 1.0]
    """

    log_z: Float[Array, "*batch"]
    stats: Float[Array, "*batch s"]
    site: Float[Array, "*batch k"]


class Family(ABC):
    """One exponential family, density exp((eta − flat)·T(x) − A(eta)) in natural parameters eta.

    Subclasses are frozen dataclasses: hashable, static under `jit`. Their answers to `QUESTIONS` open the scope of
    `float64` by themselves.

    Examples:
        >>> import cavity as cv
        >>> gaussian = cv.families.Gaussian()
        >>> product = gaussian.product(gaussian.from_mean(0.0, 1.0), gaussian.from_mean(3.0, 0.5))
        >>> float(gaussian.mean(product))
        2.0
    """

    def __init_subclass__(cls) -> None:
        open_float64(cls, QUESTIONS)

    #: whether deleting a site from a proper q always leaves a distribution
    cavities_proper: ClassVar[bool] = False

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
        """The uniform message, exp(0·T(x)) = 1."""
        return jnp.zeros(self.size)

    @float64
    def flat(self) -> Float[Array, " k"]:
        """Natural parameters of the density that is constant in x (improper or not)."""
        return jnp.zeros(self.size)

    @abstractmethod
    def statistics(self, x: Any) -> Float[Array, "*batch s"]:
        """Sufficient statistics T(x)."""

    @abstractmethod
    def log_partition(self, eta: Float[Array, "*batch k"]) -> Float[Array, "*batch"]:
        """A(eta) = log ∫ exp((eta − flat)·T(x)) dx."""

    @abstractmethod
    def moments(self, eta: Float[Array, "*batch k"]) -> Float[Array, "*batch s"]:
        """Expected sufficient statistics, the gradient of A."""

    @abstractmethod
    def natural(self, mu: Float[Array, "*batch s"]) -> Float[Array, "*batch k"]:
        """The natural parameters whose expected statistics are `mu`: the inverse of `moments`."""

    @abstractmethod
    def is_proper(self, eta: Float[Array, "*batch k"]) -> Bool[Array, "*batch"]:
        """Whether exp(eta·T) times the base measure can be normalised."""

    def is_allowed(self, eta: Float[Array, "*batch k"]) -> Bool[Array, "*batch"]:
        """Whether q or a cavity may have these parameters in a run: proper, or improper as the family admits."""
        return self.is_proper(eta)

    @abstractmethod
    def sample(self, key: Key[Array, ""], eta: Float[Array, "*batch k"], shape: tuple[int, ...] = ()) -> Any:
        """Independent draws of shape `shape + eta.shape[:-1] + event_shape`."""

    @abstractmethod
    def mean(self, eta: Float[Array, "*batch k"]) -> Any:
        """E[x]."""

    @abstractmethod
    def covariance(self, eta: Float[Array, "*batch k"]) -> Any:
        """Cov[x]: a number for scalar x, a matrix for vectors."""

    @abstractmethod
    def distance(self, eta: Float[Array, "*batch k"], other: Float[Array, "*batch k"]) -> Float[Array, "*batch"]:
        """Moment mismatch of two members, the one measure of convergence: 0 when equal, in units of `eta`'s own spread.

        Gaussian families: the larger of |mean − mean'| / sd and |log variance ratio|. Other families: the largest
        difference of expected statistics in units of their standard deviation. Infinite if one is improper.
        """

    def coordinates(self, eta: Float[Array, "*batch k"]) -> tuple[Float[Array, "..."], ...]:
        """The arguments a factor's `log_z` takes: (mean, covariance) for Gaussians, else the usual parameters."""
        return (eta,)

    def is_negative(self, eta: Float[Array, "*batch k"]) -> Bool[Array, "*batch"]:
        """Whether a site is of the kind EP may meet but no distribution has: a negative precision or exponent."""
        return jnp.any(eta < 0, axis=-1)

    def views(self, eta: Float[Array, "*batch k"]) -> dict[str, Float[Array, "..."]]:
        """Further parameters users ask for by name, beside mean and covariance."""
        return {}

    @float64
    def log_density(self, eta: Float[Array, "*batch k"], x: Any) -> Float[Array, "..."]:
        """log density at x."""
        weights = jnp.asarray(eta) - self.flat()
        return jnp.sum(weights * self.statistics(jnp.asarray(x)), axis=-1) - self.log_partition(jnp.asarray(eta))

    @float64
    def product(self, eta: Float[Array, "*batch k"], other: Float[Array, "*batch k"]) -> Float[Array, "*batch k"]:
        """Natural parameters of the normalised product of two densities."""
        return jnp.asarray(eta) + jnp.asarray(other) - self.flat()

    @float64
    def ratio(self, eta: Float[Array, "*batch k"], other: Float[Array, "*batch k"]) -> Float[Array, "*batch k"]:
        """Natural parameters of the quotient of two densities; it may be improper."""
        return jnp.asarray(eta) - jnp.asarray(other) + self.flat()

    @float64
    def power(self, eta: Float[Array, "*batch k"], exponent: float) -> Float[Array, "*batch k"]:
        """Natural parameters of a density raised to `exponent` and normalised."""
        return self.flat() + exponent * (jnp.asarray(eta) - self.flat())

    @float64
    def kl(self, eta: Float[Array, "*batch k"], other: Float[Array, "*batch k"]) -> Float[Array, "*batch"]:
        """KL(eta ‖ other) = (eta − other)·mu(eta) − A(eta) + A(other)."""
        eta, other = jnp.asarray(eta), jnp.asarray(other)
        linear = jnp.sum((eta - other) * self.moments(eta), axis=-1)
        return linear - self.log_partition(eta) + self.log_partition(other)

    @float64
    def entropy(self, eta: Float[Array, "*batch k"]) -> Float[Array, "*batch"]:
        """−E[log density] = A(eta) − (eta − flat)·mu(eta)."""
        eta = jnp.asarray(eta)
        return self.log_partition(eta) - jnp.sum((eta - self.flat()) * self.moments(eta), axis=-1)

    def message(self, cavity: Float[Array, "*batch k"], stats: Float[Array, "*batch s"]) -> Float[Array, "*batch k"]:
        """The message that turns `cavity` into the member with the tilted statistics `stats`."""
        return self.natural(stats) - cavity

    def keep_proper(
        self,
        cavity: Float[Array, "*batch k"],
        stats: Float[Array, "*batch s"],
        site: Float[Array, "*batch k"],
        floor: float,
    ) -> Float[Array, "*batch k"]:
        """The site nearest in KL to the tilted distribution among those that are no less proper than `floor`."""
        raise TypeError(
            f"RestrictedEP needs {type(self).__name__}.keep_proper, the projection onto proper sites; "
            "families that have it: the Gaussians, Beta, Gamma, Dirichlet."
        )

    # Local coordinates, in which the equations of EP are solved: natural parameters change linearly with x, and the
    # statistics that go with x are centred and scaled where that keeps digits.

    @property
    def local_size(self) -> int:
        """Length of x."""
        return self.size

    def from_local(self, reference: Float[Array, "*batch k"], x: Float[Array, "*batch l"]) -> Float[Array, "*batch k"]:
        """The change of natural parameters that x stands for, in the coordinates of the member `reference`."""
        return x

    def to_local(
        self, reference: Float[Array, "*batch k"], change: Float[Array, "*batch k"]
    ) -> Float[Array, "*batch l"]:
        """The x of a change of natural parameters: the inverse of `from_local`."""
        return change

    def local_moments(
        self, reference: Float[Array, "*batch k"], eta: Float[Array, "*batch k"]
    ) -> Float[Array, "*batch l"]:
        """Expectations under `eta` of the statistics that go with x: the gradient of A(eta + from_local(x)) in x.

        Up to a constant: statistics may be centred.
        """
        return self.moments(eta)

    def tilted_stats(self, log_z: Any, cavity: Float[Array, " k"]) -> tuple[Float[Array, ""], Float[Array, " s"]]:
        """(log Z, stats) from log Z alone by automatic differentiation; `log_z` takes `coordinates(cavity)`.

        Expected statistics of any tilted exponential family are mu(cavity) + ∇ log Z in the natural parameters
        (thesis 3.89).
        """
        value, slope = jax.value_and_grad(lambda eta: log_z(*self.coordinates(eta)))(cavity)
        return value, self.moments(cavity) + slope


class OrFlat(Family):
    """Adds the function 1, of eta = `flat`. What is no distribution has the `log_partition` 0 by convention.

    For variables without a prior in a graph. With it log ∫ t × cavity counts a flat cavity as 1, and the evidence is
    that of the model in which the variable has no prior density. Other improper cavities, as of negative precision,
    count as exp(eta·T); q never has them, but some factors take them (`Factor.accepts`).
    """

    def is_flat(self, eta: Float[Array, "*batch k"]) -> Bool[Array, "*batch"]:
        """Whether eta is that of the constant function, so that the variable has no distribution yet."""
        return jnp.all(jnp.asarray(eta) == self.flat(), axis=-1)

    def is_allowed(self, eta: Float[Array, "*batch k"]) -> Bool[Array, "*batch"]:
        return self.is_proper(eta) | self.is_flat(eta)

    def log_partition(self, eta: Float[Array, "*batch k"]) -> Float[Array, "*batch"]:
        proper = self.is_proper(eta)
        safe = jnp.where(proper[..., None], jnp.asarray(eta), self.stand_in())
        return jnp.where(proper, super().log_partition(safe), 0.0)

    def log_density(self, eta: Float[Array, "*batch k"], x: Any) -> Float[Array, "..."]:
        flat = self.is_flat(eta)
        safe = jnp.where(flat[..., None], self.stand_in(), jnp.asarray(eta))
        return jnp.where(flat, 0.0, super().log_density(safe, x))

    def stand_in(self) -> Float[Array, " k"]:
        """Some proper member, for branches that are not taken."""
        return self.flat() + jnp.array([0.0, 1.0])

    def distance(self, eta: Float[Array, "*batch k"], other: Float[Array, "*batch k"]) -> Float[Array, "*batch"]:
        """0 between two that are flat."""
        both = self.is_flat(eta) & self.is_flat(other)
        return jnp.where(both, 0.0, super().distance(eta, other))
