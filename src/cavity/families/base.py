"""The contract of a family: what a message is, and the questions every message must answer.

A family is an `ExponentialFamily`, a density exp((eta − flat)·T(x) − A(eta)) in natural parameters `eta`, of which EP
asks more. A *message* (a site, a factor's approximation) is exp(eta·T(x)); the uniform message is `uniform()` = 0, and
multiplying a distribution by messages is addition of natural parameters. Messages may be improper; only posteriors must
be proper.

In the shapes of arrays `k` is `size`, `s` the number of expected statistics, `l` is `local_size`, and `*batch` are the
leading axes (docs/notation.md, Shapes).
"""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from cavity.families.exponential import ExponentialFamily


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


class Family(ExponentialFamily):
    """One exponential family, density exp((eta − flat)·T(x) − A(eta)) in natural parameters eta.

    Subclasses are frozen dataclasses: hashable, static under `jit`. Their answers to the `QUESTIONS` of
    `families.exponential` open the scope of `float64` by themselves.

    Examples:
        >>> import cavity as cv
        >>> gaussian = cv.families.Gaussian()
        >>> product = gaussian.product(gaussian.from_mean(0.0, 1.0), gaussian.from_mean(3.0, 0.5))
        >>> float(gaussian.mean(product))
        2.0
    """

    #: whether deleting a site from a proper q always leaves a distribution
    cavities_proper: ClassVar[bool] = False

    def is_allowed(self, eta: Float[Array, "*batch k"]) -> Bool[Array, "*batch"]:
        """Whether q or a cavity may have these parameters in a run: proper, or improper as the family admits.

        Args:
            eta: natural parameters.

        Returns:
            One boolean per member.
        """
        return self.is_proper(eta)

    @abstractmethod
    def distance(self, eta: Float[Array, "*batch k"], other: Float[Array, "*batch k"]) -> Float[Array, "*batch"]:
        """Moment mismatch of two members, the one measure of convergence: 0 when equal, in units of `eta`'s own spread.

        Gaussian families: the larger of |mean − mean'| / sd and |log variance ratio|. Other families: the largest
        difference of expected statistics in units of their standard deviation. Infinite if one is improper.

        Args:
            eta: natural parameters of the members in whose spread the gap is measured.
            other: of the others.

        Returns:
            One number per pair.
        """

    def coordinates(self, eta: Float[Array, "*batch k"]) -> tuple[Float[Array, "..."], ...]:
        """The arguments a factor's `log_z` takes: (mean, covariance) for Gaussians, else the usual parameters.

        Args:
            eta: natural parameters.

        Returns:
            The arguments, in their order.
        """
        return (eta,)

    def is_negative(self, eta: Float[Array, "*batch k"]) -> Bool[Array, "*batch"]:
        """Whether a site is of the kind EP may meet but no distribution has: a negative precision or exponent.

        Args:
            eta: natural parameters of sites.

        Returns:
            One boolean per site.
        """
        return jnp.any(eta < 0, axis=-1)

    def views(self, eta: Float[Array, "*batch k"]) -> dict[str, Float[Array, "..."]]:
        """Further parameters users ask for by name, beside mean and covariance.

        Args:
            eta: natural parameters.

        Returns:
            The parameters by name; none by default.
        """
        return {}

    def expected_exponent(
        self, message: Float[Array, "*batch k"], eta: Float[Array, "*batch k"]
    ) -> Float[Array, "*batch"]:
        """E[message·T(x)] under eta; what a message leaves out counts 0, whatever its expectation.

        Args:
            message: natural parameters, which need not be those of a distribution.
            eta: natural parameters of the distribution.

        Returns:
            The expectation.
        """
        moments = self.moments(eta)
        used = message[..., : moments.shape[-1]]
        return jnp.sum(jnp.where(used == 0.0, 0.0, used * moments), axis=-1)

    def message(self, cavity: Float[Array, "*batch k"], stats: Float[Array, "*batch s"]) -> Float[Array, "*batch k"]:
        """The message that turns `cavity` into the member with the tilted statistics `stats`.

        Args:
            cavity: natural parameters.
            stats: as in `Tilted`.

        Returns:
            Natural parameters of the message, natural(stats) − cavity by default.
        """
        return self.natural(stats) - cavity

    def keep_proper(
        self,
        cavity: Float[Array, "*batch k"],
        stats: Float[Array, "*batch s"],
        site: Float[Array, "*batch k"],
        floor: float,
    ) -> Float[Array, "*batch k"]:
        """The site nearest in KL to the tilted distribution among those that are no less proper than `floor`.

        Args:
            cavity: natural parameters.
            stats: of the tilted distribution, as in `Tilted`.
            site: the message that matches them, proper or not.
            floor: the least precision, or exponent, that a site may have.

        Returns:
            Natural parameters of the site.

        Raises:
            TypeError: the family has no such projection.
        """
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
        """The change of natural parameters that x stands for, in the coordinates of the member `reference`.

        Args:
            reference: natural parameters.
            x: local coordinates of the change, linear in it.

        Returns:
            The change of natural parameters.
        """
        return x

    def to_local(
        self, reference: Float[Array, "*batch k"], change: Float[Array, "*batch k"]
    ) -> Float[Array, "*batch l"]:
        """The x of a change of natural parameters: the inverse of `from_local`.

        Args:
            reference: natural parameters of the member whose coordinates are used.
            change: of natural parameters.

        Returns:
            Local coordinates of the change.
        """
        return change

    def local_moments(
        self, reference: Float[Array, "*batch k"], eta: Float[Array, "*batch k"]
    ) -> Float[Array, "*batch l"]:
        """Expectations under `eta` of the statistics that go with x: the gradient of A(eta + from_local(x)) in x.

        Up to a constant: statistics may be centred.

        Args:
            reference: natural parameters of the member whose coordinates are used.
            eta: of the member that the expectations are taken under.

        Returns:
            One row per member.
        """
        return self.moments(eta)

    def tilted_stats(self, log_z: Any, cavity: Float[Array, " k"]) -> tuple[Float[Array, ""], Float[Array, " s"]]:
        """(log Z, stats) from log Z alone by automatic differentiation; `log_z` takes `coordinates(cavity)`.

        Expected statistics of any tilted exponential family are mu(cavity) + ∇ log Z in the natural parameters
        (thesis 3.89).

        Args:
            log_z: a function of the family's `coordinates`, log ∫ t × cavity.
            cavity: natural parameters, without a batch axis.

        Returns:
            log Z and stats, as in `Tilted`.
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

    def kl(self, eta: Float[Array, "*batch k"], other: Float[Array, "*batch k"]) -> Float[Array, "*batch"]:
        """Of an improper `other` −entropy(eta) − E[other·T], as its log partition is 0; where both are flat 0."""
        eta, other = jnp.asarray(eta), jnp.asarray(other)
        known, proper = ~self.is_flat(eta), self.is_proper(other)
        one, two = (
            jnp.where(known[..., None], eta, self.stand_in()),
            jnp.where(proper[..., None], other, self.stand_in()),
        )
        alone = -self.entropy(one) - self.expected_exponent(other - self.flat(), one)
        return jnp.where(proper, super().kl(one, two), jnp.where(known, alone, 0.0))

    def stand_in(self) -> Float[Array, " k"]:
        """Some proper member, for branches that are not taken."""
        return self.flat() + jnp.array([0.0, 1.0])

    def distance(self, eta: Float[Array, "*batch k"], other: Float[Array, "*batch k"]) -> Float[Array, "*batch"]:
        """0 between two that are flat."""
        both = self.is_flat(eta) & self.is_flat(other)
        return jnp.where(both, 0.0, super().distance(eta, other))
