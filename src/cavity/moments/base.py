"""The contract of a moments strategy, how a tilted distribution is integrated; and the one that asks the factor.

`tilt` is called for one site at a time and mapped over sites by the loop, so it must be free of Python branches on
values. A strategy may learn: `init` gives what it knows before a run, as arrays that the compiled loop carries, `tilt`
reads them, and `learn` is called on the host between sweeps. Strategies that do not learn carry nothing. In the shapes
of arrays `k` counts the natural parameters of one message (docs/notation.md, Shapes).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, Shaped

from cavity._core.precision import is_traced
from cavity.factors.base import Factor, MissingClosedForm, evaluate, is_one
from cavity.families.base import Family, Tilted

#: what a strategy reports of one integration (effective sample size, error estimate): the same keys every time.
Info = dict[str, Shaped[Array, ""]]

#: the key of `Info` under which a strategy says that its moments are not known well enough: the site stays as it was
UNSURE = "unsure"


class Group(Protocol):
    """The part of a site group that a strategy is given before a run; `data` have the site as leading axis.

    Examples:
        >>> import cavity as cv
        >>> group = cv.models.clutter([0.3, 1.8]).groups[0]
        >>> type(group.factor).__name__, type(group.family).__name__
        ('Clutter', 'Gaussian')
    """

    @property
    def factor(self) -> Factor: ...
    @property
    def family(self) -> Family: ...
    @property
    def data(self) -> Any: ...


class Batch(NamedTuple):
    """All sites of a group between two sweeps.

    Attributes:
        factor: of the group.
        family: of its messages.
        cavities: natural parameters, one row per site.
        data: as the group has them.
        unsure: sites whose moments were not known well enough.
        ended: whether the run would end now.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> gaussian = cv.families.Gaussian()
        >>> cavities, unsure = np.array([[0.0, 1.0], [0.5, 1.0]]), np.array([True, False])
        >>> batch = cv.moments.Batch(cv.factors.Probit(), gaussian, cavities, np.array([1, -1]), unsure, ended=False)
        >>> batch.at(np.flatnonzero(batch.unsure)).unsure.tolist()
        [True]
    """

    factor: Factor
    family: Family
    cavities: Float[Array, "sites k"]
    data: Any
    unsure: Bool[np.ndarray, " sites"]
    ended: bool

    def at(self, places: Any) -> "Batch":
        """Some of the sites.

        Args:
            places: their numbers, or a mask.

        Returns:
            The batch of these sites.
        """
        cavities, data = jax.tree.map(lambda leaf: jnp.asarray(leaf)[places], (self.cavities, self.data))
        return self._replace(cavities=cavities, data=data, unsure=self.unsure[places])


class Moments(ABC):
    """How a tilted distribution is integrated.

    Strategies are hashable and static under `jit`: those that are equal share compiled programs, so they must compare
    all that `tilt` reads of them. What one that learns knows is not part of that, but of the state that `init` and
    `learn` give.

    Examples:
        >>> import cavity as cv
        >>> isinstance(cv.Quadrature(), cv.moments.Moments), cv.ClosedForm().evaluations(cv.families.Gaussian())
        (True, 1)
    """

    #: whether `tilt` uses its key; where not, none is derived, which keeps the compiled loop small.
    random: ClassVar[bool] = False

    #: whether `learn` is to be called between sweeps
    learns: ClassVar[bool] = False

    def validate(self, factor: Factor, family: Family) -> None:  # noqa: B027
        """Refuse, in one sentence, factors and families that it is not for; nothing is computed yet.

        Args:
            factor: of a group of sites.
            family: of its messages.

        Raises:
            TypeError, ValueError: the strategy cannot integrate them.
        """

    def init(self, group: Group) -> Any:
        """What was learned before a run, for these sites: a pytree of arrays, empty for strategies that do not learn.

        Called on the host. Its shapes must not depend on what was learned, or every sweep compiles programs anew.

        Args:
            group: the sites.

        Returns:
            The state that `tilt` reads.
        """
        return ()

    @abstractmethod
    def tilt(
        self,
        state: Any,
        factor: Factor,
        family: Family,
        cavity: Float[Array, " k"],
        data: Any,
        power: float,
        key: Key[Array, ""],
    ) -> tuple[Tilted, Info]:
        """Moments of factor**power × cavity for one site, and what is to be reported of it.

        Args:
            state: as `init` and `learn` give it; traced.
            factor: t.
            family: of the cavity and of the message.
            cavity: natural parameters, without a batch axis.
            data: of this site.
            power: of the factor.
            key: the site's own random key, the same in every sweep.

        Returns:
            The moments, and an `Info` with the same keys every time. Where `Info[UNSURE]` is true they are not used:
            the site stays as it was, and `learn` is handed it.
        """

    def accepts(
        self, factor: Factor, family: Family, cavity: Float[Array, " k"], data: Any, power: float
    ) -> Bool[Array, ""]:
        """Whether `tilt` is defined for this cavity; one that is improper has to be skipped by most.

        Args:
            factor: of the site.
            family: of the message.
            cavity: natural parameters.
            data: of one site.
            power: of the factor.

        Returns:
            Whether it is.
        """
        return family.is_allowed(cavity)

    def expected_log(
        self,
        state: Any,
        factor: Factor,
        family: Family,
        cavity: Float[Array, " k"],
        data: Any,
        key: Key[Array, ""],
        tilted: Tilted,
    ) -> Float[Array, ""]:
        """E[log t] under factor × cavity: in closed form where the factor has one, else ∂ log Z/∂power at power 1.

        Args:
            state: as `tilt` takes it, like all arguments but the last.
            factor: t.
            family: of the cavity.
            cavity: natural parameters, without a batch axis.
            data: of this site.
            key: the site's own.
            tilted: the outcome of `tilt` at power 1.

        Returns:
            One number.
        """
        known = factor.expected_log(family, cavity, data, tilted)
        if known is not NotImplemented:
            return known

        def log_z(power: Float[Array, ""]) -> Float[Array, ""]:
            return self.tilt(state, factor, family, cavity, data, power, key)[0].log_z  # type: ignore[arg-type]

        return jax.jvp(log_z, (jnp.ones(()),), (jnp.ones(()),))[1]

    def learn(self, state: Any, batch: Batch) -> tuple[Any, bool]:
        """The state after a sweep, on the host, and whether it has changed so that a run that would end must go on.

        Args:
            state: as `init` or the last call of `learn` gave it.
            batch: all sites of the group, at the cavities after the sweep.

        Returns:
            A state of the same shapes, and whether it has changed so.
        """
        return state, False

    def raise_failure(self, reached: Any) -> None:  # noqa: B027
        """Raise what went wrong on the host while a compiled program, which cannot raise, was running.

        Args:
            reached: what the program worked out.
        """

    def evaluations(self, family: Family) -> int:
        """Factor evaluations one `tilt` costs, for the accounting of cost; a closed form counts as one.

        Args:
            family: of the messages.

        Returns:
            A whole number.
        """
        return 1


@dataclass(frozen=True)
class ClosedForm(Moments):
    """The factor's own `tilted`, or its `log_z` differentiated automatically. Nothing falls back silently.

    Examples:
        >>> import cavity as cv
        >>> problem = cv.models.clutter([0.3, 2.1]).with_moments(cv.ClosedForm())
        >>> problem.groups[0].moments
        ClosedForm()
    """

    def accepts(self, factor: Factor, family: Family, cavity: jax.Array, data: Any, power: float) -> jax.Array:
        return factor.accepts(family, cavity, data, power)

    def tilt(
        self, state: Any, factor: Factor, family: Family, cavity: jax.Array, data: Any, power: float, key: jax.Array
    ) -> tuple[Tilted, Info]:
        tilted = factor.tilted(family, cavity, data, power)
        if tilted is not NotImplemented:
            return tilted, {}
        if factor.log_z is None or not is_one(power):
            raise missing_closed_form(factor, family, power)
        log_z, stats = family.tilted_stats(lambda *at: evaluate(factor, "log_z", *at, data), cavity)
        return Tilted(log_z, stats, family.message(cavity, stats)), {}


def missing_closed_form(factor: Factor, family: Family, power: float) -> MissingClosedForm:
    """The error that names the combination, what exists, and what to use instead."""
    known = list(factor.closed_forms)
    if factor.log_z is not None:
        known.append("any family whose coordinates log_z takes, power 1 (by differentiation)")
    exponent = "powers near 1, from which E[log t] follows" if is_traced(power) else f"power {power:g}"
    wanted = f"{type(factor).__name__} with {type(family).__name__} sites and {exponent}"
    return MissingClosedForm(
        f"No closed form for {wanted}. Closed forms that exist: {'; '.join(known) if known else 'none'}. "
        "To integrate numerically, use problem.with_moments(cavity.Quadrature()) for up to three dimensions, "
        "problem.with_moments(cavity.Enumeration()) for discrete variables, "
        "or problem.with_moments(cavity.Importance(draws=10_000)) for anything with a log density."
    )
