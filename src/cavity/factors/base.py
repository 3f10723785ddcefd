"""The contract of a factor: one exact term t(x) of a model. It knows nothing of inference.

A factor is a frozen dataclass registered as a JAX pytree (`@factor`): fields that are numbers or arrays are its
parameters, traced and differentiable; functions and other static fields are declared with `static()`.
The data of one site arrive as the argument `data`, any pytree. In the shapes of arrays `k` counts the natural
parameters of one message (docs/notation.md, Shapes).
"""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from cavity._core import checks
from cavity._core.precision import open_float64
from cavity._core.pytrees import pytree_dataclass
from cavity.families.base import Family, Tilted

#: a frozen dataclass that is a JAX pytree; decorates every factor
factor = pytree_dataclass


class Factor:
    """Base of all factors. Override what is known; the rest is integrated by a `Moments` strategy the user names.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> @cv.factors.factor
        ... class Laplace(cv.factors.Factor):
        ...     scale: float
        ...     def log_density(self, x, data):
        ...         return -abs(data - x) / self.scale
        >>> Laplace(2.0).log_density(1.0, 4.0)
        -1.5
    """

    #: what `tilted` knows in closed form, in words, for the error that lists it.
    closed_forms: ClassVar[tuple[str, ...]] = ()

    #: log Z alone, `log_z(*family.coordinates(cavity), data)`, from which the rest follows by differentiation.
    log_z: Callable[..., Float[Array, ""]] | None = None

    def __init_subclass__(cls) -> None:
        open_float64(cls, "predict")

    def validate(self, data: Any) -> None:
        """Refuse parameters or data the factor is not defined for, in one sentence; values being traced pass."""
        for leaf in jax.tree.leaves(data):
            checks.array("data", leaf, tuple(range(1, np.ndim(leaf) + 1)) or (1,))

    def log_density(self, x: Any, data: Any) -> Float[Array, ""]:
        """log t(x) for one site's data."""
        raise MissingDensity(f"{type(self).__name__} has no log_density, so it cannot be integrated numerically.")

    def has_density(self, data: Any) -> bool:
        """Whether `log_density` is that of a function of x; an exact relation between variables has none."""
        return type(self).log_density is not Factor.log_density

    def is_log_concave(self) -> bool:
        """Whether log t is known to be concave in x whatever the data: a posterior of such factors has one mode."""
        return False

    def tilted(self, family: Family, cavity: Float[Array, " k"], data: Any, power: float) -> Tilted:
        """Moments of t(x)**power × cavity(x) in closed form, or NotImplemented where there is none.

        `cavity` is one natural parameter vector (no batch axis) and `power` a plain number.
        """
        return NotImplemented

    def accepts(self, family: Family, cavity: Float[Array, " k"], data: Any, power: float) -> Bool[Array, ""]:
        """Whether `tilted` holds for this cavity: by default where it is proper, or flat in a family that allows it.

        A factor may take more: with a linear relation or a Gaussian observation a cavity of negative precision often
        has a proper product. `tilted` then takes log Z of exp(cavity·T) itself, of which the family's `log_partition`
        is 0.
        """
        return family.is_allowed(cavity)

    def expected_log(self, family: Family, cavity: Float[Array, " k"], data: Any, tilted: Tilted) -> Float[Array, ""]:
        """E[log t] under t(x) × cavity(x), with the moments `tilted`, or NotImplemented where it is not known."""
        return NotImplemented

    def default_moments(self) -> Any:
        """The strategy that integrates it where none is named; None: a closed form, enumeration or quadrature."""
        return None

    def predict(self, mean: Any, variance: Any) -> dict[str, Float[Array, "..."]]:
        """What is predicted of an observation whose latent is N(mean, variance), by name; nothing by default."""
        return {}


def is_one(power: Any) -> bool:
    """Whether a power is known to be 1; a traced one is not known."""
    return isinstance(power, int | float) and power == 1


class MissingDensity(TypeError):
    """A factor without a log density was to be integrated numerically.

    Examples:
        >>> import cavity as cv
        >>> cv.factors.Factor().log_density(0.0, None)
        Traceback (most recent call last):
            ...
        cavity.factors.base.MissingDensity: Factor has no log_density, so it cannot be integrated numerically.
    """


class MissingClosedForm(TypeError):
    """No closed form for this factor, family and power; the message lists what exists and what can be used instead.

    Examples:
        >>> import cavity as cv
        >>> laplace = cv.factors.from_log_density(lambda x, data: -abs(x - data))
        >>> problem = cv.models.posterior(laplace, [0.3], prior_variance=1.0).with_moments(cv.ClosedForm())
        >>> try:
        ...     cv.infer(problem)
        ... except cv.factors.MissingClosedForm as error:
        ...     print(str(error)[:59])
        No closed form for FromLogDensity with Gaussian sites and p
    """
