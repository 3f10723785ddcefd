"""The contract of a factor: one exact term t(x) of a model. It knows nothing of inference.

A factor is a frozen dataclass registered as a JAX pytree (`@factor`): fields that are numbers or arrays are its
parameters, traced and differentiable; functions and other static fields are declared with `static()`.
The data of one site arrive as the argument `data`, any pytree. In the shapes of arrays `k` counts the natural
parameters of one message (docs/notation.md, Shapes).
"""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from cavity._core import checks
from cavity._core.precision import open_float64
from cavity._core.pytrees import pytree_dataclass
from cavity.families.base import Family, Tilted

#: arrays of NumPy or JAX, traced or not
AnyArray = np.ndarray | jax.Array
#: a number or an array: a parameter of a factor, or what it is asked about
Numbers = float | AnyArray
#: a value of one variable, or of several in their order
Value = jax.Array | tuple[jax.Array, ...]
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
        """Refuse parameters or data the factor is not defined for, in one sentence; values being traced pass.

        Args:
            data: of all sites, a pytree whose leaves have the site as leading axis.

        Raises:
            ValueError: a number is not finite, or out of range.
        """
        for leaf in jax.tree.leaves(data):
            checks.array("data", leaf, tuple(range(1, np.ndim(leaf) + 1)) or (1,))

    def log_density(self, x: Any, data: Any) -> Float[Array, ""]:
        """log t(x) for one site's data.

        Args:
            x: a value, as the site sees it.
            data: of this site.

        Returns:
            One number, −inf where t is 0.

        Raises:
            MissingDensity: the factor has no density, or none is known.
        """
        raise MissingDensity(f"{type(self).__name__} has no log_density, so it cannot be integrated numerically.")

    def has_density(self, data: Any) -> bool:
        """Whether `log_density` is that of a function of x; an exact relation between variables has none.

        Args:
            data: of one site or of all.

        Returns:
            Whether it is; the same for all sites.
        """
        return type(self).log_density is not Factor.log_density

    def is_log_concave(self) -> bool:
        """Whether log t is known to be concave in x whatever the data: a posterior of such factors has one mode.

        Returns:
            Whether it is known; False by default.
        """
        return False

    def tilted(self, family: Family, cavity: Float[Array, " k"], data: Any, power: float) -> Tilted:
        """Moments of t(x)**power × cavity(x) in closed form, or NotImplemented where there is none.

        Args:
            family: of the cavity and of the message.
            cavity: one natural parameter vector (no batch axis).
            data: of this site.
            power: a plain number.

        Returns:
            The moments and the message, or NotImplemented.
        """
        return NotImplemented

    def accepts(self, family: Family, cavity: Float[Array, " k"], data: Any, power: float) -> Bool[Array, ""]:
        """Whether `tilted` holds for this cavity: by default where it is proper, or flat in a family that allows it.

        A factor may take more: with a linear relation or a Gaussian observation a cavity of negative precision often
        has a proper product. `tilted` then takes log Z of exp(cavity·T) itself, of which the family's `log_partition`
        is 0.

        Args:
            family: of the message.
            cavity: natural parameters.
            data: of one site.
            power: of the factor.

        Returns:
            Whether it does.
        """
        return family.is_allowed(cavity)

    def expected_log(self, family: Family, cavity: Float[Array, " k"], data: Any, tilted: Tilted) -> Float[Array, ""]:
        """E[log t] under t(x) × cavity(x), with the moments `tilted`, or NotImplemented where it is not known.

        Args:
            family: of the cavity.
            cavity: one natural parameter vector (no batch axis).
            data: of this site.
            tilted: what `tilted` gives, or a strategy that integrates numerically, at power 1.

        Returns:
            One number, or NotImplemented.
        """
        return NotImplemented

    def default_moments(self) -> Any:
        """The strategy that integrates it where none is named; None: a closed form, enumeration or quadrature.

        Returns:
            A `Moments` strategy, or None.
        """
        return None

    def predict(self, mean: Numbers, variance: Numbers) -> dict[str, Float[Array, "..."]]:
        """What is predicted of an observation whose latent is N(mean, variance), by name; nothing by default.

        Args:
            mean: of the latent, of any shape.
            variance: of the latent, of a shape that broadcasts with `mean`.

        Returns:
            Arrays by name, such as "mean" and "variance" of the observation or "log_probabilities" of its values.
        """
        return {}


def evaluate(factor: Factor, name: str, *arguments: Any) -> jax.Array:
    """`log_density` or `log_z` of a factor, which may be a user's program: one real number, or a sentence why not."""
    try:
        found = jnp.asarray(getattr(factor, name)(*arguments))
    except (MissingDensity, MissingClosedForm, FactorError):
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise FactorError(f"{name} of {name_of(factor)} raised {type(error).__name__}: {reason}.") from error
    # Whole numbers have no slopes, from which log_z would have to tell the moments.
    real = jnp.issubdtype(found.dtype, jnp.floating)
    real = real or (name == "log_density" and jnp.issubdtype(found.dtype, jnp.integer))
    if found.shape or not real:
        described = f"an array of shape {found.shape}" if found.shape else f"a value of type {found.dtype}"
        raise FactorError(f"{name} of {name_of(factor)} must give one real number for one site; found {described}.")
    return jnp.asarray(found, float)


def name_of(factor: Factor) -> str:
    """What a user calls a factor: its class, with the program that it stands for; wrappers around it are left out."""
    while isinstance(getattr(factor, "factor", None), Factor):
        factor = factor.factor  # type: ignore[attr-defined]
    program = getattr(factor, "function", None)
    return type(factor).__name__ + ("" if program is None else f" {getattr(program, '__name__', program)}")


def is_one(power: float | jax.Array) -> bool:
    """Whether a power is known to be 1; a traced one is not known."""
    return isinstance(power, int | float) and power == 1


class FactorError(TypeError):
    """A factor's own `log_density` or `log_z` raised, or gave something other than one real number.

    What it raised is the `__cause__`.

    Examples:
        >>> import cavity as cv
        >>> pair = cv.factors.from_log_density(lambda x, y: (x, y))
        >>> try:
        ...     cv.infer(cv.models.posterior(pair, [0.3], prior_variance=1.0))
        ... except cv.factors.FactorError as error:
        ...     print(error)
        log_density of FromLogDensity <lambda> must give one real number for one site; found an array of shape (2,).
    """


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
