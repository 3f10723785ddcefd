"""The update rule: what a sweep does at every site, as compiled programs know it, and the projections it may have.

A projection goes from a tilted distribution to the message that stands for it. In the shapes of arrays `k` counts the
natural parameters of one message (docs/notation.md, Shapes).
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from cavity._core import checks
from cavity._core.pytrees import pytree_dataclass, static
from cavity.families.base import Family, Tilted
from cavity.families.dirichlet import Dirichlet
from cavity.inference.schedule import Schedule
from cavity.inference.status import Status

#: residuals that compiled programs have room for at least
ROOM = 1024
#: a step that would make q improper is halved at most this often before it is given up
MAX_HALVINGS = 20


class Integrals(NamedTuple):
    """What a projection may ask of its site's factor t, for any cavity.

    tilt: moments of t × cavity, with what the moments strategy reports. expected_log: E[log t] there, given these
    as `tilted`.
    """

    tilt: Callable[[Float[Array, " k"]], tuple[Tilted, dict[str, Shaped[Array, ""]]]]
    expected_log: Callable[..., Float[Array, ""]]


class Projected(NamedTuple):
    """The outcome of a projection for one site.

    cavity: what the message was matched against; the relaxed cavity where there is one.
    constraint_relaxed: whether the expectation constraints of EP had to be given up. memory: what the site remembers.
    drift: how far the change of memory alone moves what is matched, as a moment mismatch.
    """

    cavity: Float[Array, " k"]
    log_z: Float[Array, ""]
    message: Float[Array, " k"]
    constraint_relaxed: Bool[Array, ""]
    memory: Float[Array, " memory"]
    drift: Float[Array, ""]
    info: dict[str, Shaped[Array, ""]]


class Projection(ABC):
    """From a tilted distribution to the message that stands for it.

    Subclasses are `pytree_dataclass`es: hashable, and static under `jit` but for the fields that are leaves.

    Examples:
        >>> import cavity as cv
        >>> from cavity.inference import Projection
        >>> method = cv.RestrictedEP()
        >>> isinstance(method.projection, Projection), method.projection.compromise
        (True, <Status.CONVERGED_RESTRICTED: 'converged_restricted'>)
    """

    #: the status of a fixed point at which constraints were given up
    compromise: ClassVar[Status] = Status.CONVERGED_RESTRICTED

    #: whether a message is matched against another cavity than q without the site. What suits that one may still make q
    #: improper, so q itself is looked at too.
    relaxes_cavity: ClassVar[bool] = False

    #: how many numbers a site remembers from one visit to the next.
    memory: ClassVar[int] = 0

    #: integrations a visit makes.
    tilts: ClassVar[int] = 1

    def adapt(self, family: Family) -> Family:
        """The family whose tilted statistics the projection wants; most want the family's own.

        Args:
            family: of a group's messages.

        Returns:
            The same family, or one with other tilted statistics.
        """
        return family

    def validate(self, family: Family, power: float) -> None:  # noqa: B027
        """Refuse what the projection is not defined for, in one sentence; most are for all there is.

        Args:
            family: of a group's messages.
            power: of the factors that are integrated.

        Raises:
            TypeError, ValueError: the projection does not go with them.
        """

    def apply(
        self,
        family: Family,
        integrals: Integrals,
        cavity: Float[Array, " k"],
        site: Float[Array, " k"],
        memory: Float[Array, " memory"],
    ) -> Projected:
        """Tilt and project one site, of which `site` and `memory` are the old ones.

        Args:
            family: of the message, as `adapt` gave it.
            integrals: of the site's factor.
            cavity: natural parameters of q without the site.
            site: its old message.
            memory: what the site remembers from its last visit.

        Returns:
            The new message, and what is to be known of it.
        """
        tilted, info = integrals.tilt(cavity)
        message, constraint_relaxed = self.project(family, cavity, tilted)
        return Projected(cavity, tilted.log_z, message, constraint_relaxed, memory, jnp.zeros(()), info)

    @abstractmethod
    def project(
        self, family: Family, cavity: Float[Array, " k"], tilted: Tilted
    ) -> tuple[Float[Array, " k"], Bool[Array, ""]]:
        """(message, whether the expectation constraints had to be given up), for one site.

        Args:
            family: of the message, as `adapt` gave it.
            cavity: natural parameters.
            tilted: moments of factor × cavity.

        Returns:
            The pair.
        """


@pytree_dataclass
class Matched(Projection):
    """Moment matching, the minimiser of KL(tilted ‖ q): ADF, EP, Power EP."""

    def project(
        self, family: Family, cavity: Float[Array, " k"], tilted: Tilted
    ) -> tuple[Float[Array, " k"], Bool[Array, ""]]:
        return tilted.site, jnp.zeros((), bool)


@pytree_dataclass
class Restricted(Projection):
    """Moment matching under the constraint that the site stays proper (thesis 3.2.1).

    The constraint acts inside the projection: a site that would be negative is replaced by the KL-nearest one with
    precision ≥ floor, which keeps the tilted mean. `floor` = 1e-8 is the thesis's printed variant: v = 1e8, and q's
    variance then is the cavity's up to a factor 1 + 1e-8 v, where the print sets v_new = v.
    """

    floor: float = static(default=0.0)

    def project(
        self, family: Family, cavity: Float[Array, " k"], tilted: Tilted
    ) -> tuple[Float[Array, " k"], Bool[Array, ""]]:
        negative = family.is_negative(tilted.site)
        kept = family.keep_proper(cavity, tilted.stats, tilted.site, self.floor)
        return jnp.where(negative, kept, tilted.site), negative


@pytree_dataclass
class Cowell(Projection):
    """Keep (E[w_k], Σ_k E[w_k²]) of a Dirichlet instead of E[log w_k]: not the KL minimiser, but no Newton (3.3.3).

    Raises:
        TypeError: when it is run, if a site is no Dirichlet.

    Examples:
        >>> import cavity as cv
        >>> problem = cv.models.mixture_weights([[0.9, 0.1], [0.8, 0.3], [0.2, 0.7]])
        >>> methods = cv.EP(), cv.EP(projection=cv.Cowell())
        >>> [cv.infer(problem, method).mean[0].round(3).item() for method in methods]
        [0.605, 0.609]
    """

    def adapt(self, family: Family) -> Family:
        if not isinstance(family, Dirichlet):
            raise TypeError(f"The Cowell projection is defined for Dirichlet sites; found {type(family).__name__}.")
        return dataclasses.replace(family, match="mean_square")

    def project(
        self, family: Family, cavity: Float[Array, " k"], tilted: Tilted
    ) -> tuple[Float[Array, " k"], Bool[Array, ""]]:
        return tilted.site, jnp.zeros((), bool)


@pytree_dataclass
class UpdateRule:
    """How sites are updated, in which order, and what counts as agreement.

    Other values of damping, tolerance, relaxation weight and, up to 1024, `max_sweeps` do not recompile anything.

    projection: from a tilted distribution to a message. power: of the factors that are integrated; 1 but for Power EP.
    schedule: None leaves it to the problem; most are visited in order.
    damping: the step from the old site to the new one in natural parameters, 1 for the full step.
    max_sweeps: how many are made; of a compiled rule, how many residuals there is room for.
    tol: bound on the moment mismatch of every site at the state returned; it is never loosened.
    single_pass: whether one sweep is the whole method, so that no fixed point is sought.
    """

    projection: Projection = Matched()
    schedule: Schedule | None = static(default=None)
    power: float = static(default=1.0)
    damping: float = 1.0
    max_sweeps: int = static(default=200)
    tol: float = 1e-8
    single_pass: bool = static(default=False)

    def __post_init__(self) -> None:
        if self.schedule is not None and not isinstance(self.schedule, Schedule):
            raise TypeError(f"schedule must be a Schedule such as cavity.Parallel(); found {self.schedule!r}.")
        if not isinstance(self.projection, Projection):
            raise TypeError(f"projection must be a Projection such as cavity.Cowell(); found {self.projection!r}.")
        if not checks.number("power", self.power) > 0:
            raise ValueError(f"power must be a positive number; found {self.power}.")
        if not 0 < checks.number("damping", self.damping) <= 1:
            raise ValueError(f"damping must lie in (0, 1], 1 being the full step; found {self.damping}.")
        if not isinstance(self.max_sweeps, int) or self.max_sweeps < 1:
            raise ValueError(f"max_sweeps must be a whole number of at least 1; found {self.max_sweeps!r}.")
        if not checks.number("tol", self.tol) > 0:
            raise ValueError(f"tol must be positive; found {self.tol}.")

    def as_compiled(self) -> "UpdateRule":
        """The rule alone, without the name of a method, so that methods that differ in nothing else share programs.

        The caller of a program counts the sweeps; the program only needs room for their residuals.

        Returns:
            The rule with room for as many residuals as sweeps, a power of two from 1024.
        """
        room = max(ROOM, 1 << (self.max_sweeps - 1).bit_length())
        return UpdateRule(self.projection, self.schedule, self.power, self.damping, room, self.tol, self.single_pass)
