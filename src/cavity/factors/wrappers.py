"""Factors made of something else: of another factor, or of a user's own function.

`SiteWrapper`: around another factor, for which every site has a number of its own beside its data.

`Tempered`: a factor raised to a power of each site's own: t(f)^w, for samples that count more or less than once.

`GaussianConvolved`: a factor of a latent that is known up to independent noise: the factor of g that
t(f) makes where f = g + e, e ~ N(0, r). In a low-rank model g is the part of the latent that the basis spans and r the
prior variance it leaves, each site's own. The power of Power EP belongs to t and is taken before f is integrated out
(Bui, Yan & Turner 2017, section 4):

    ∫ t(f)^p N(f; g, r) df,    not its p-th power.

Under the cavity N(g; m, v) log Z, d₁ and d₂ are those of t^p under N(f; m, v + r), and the matched message about g is
the message (ν, τ) about f seen through the noise, (ν, τ) / (1 + r τ).

`Conditioned`: a factor some of whose arguments are numbers.

`from_log_density`, `from_log_z`: factors from a user's own function, a log density or log Z alone.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from cavity._core import checks
from cavity._core.precision import is_traced
from cavity._core.pytrees import static
from cavity.factors.base import Factor, Numbers, Value, factor
from cavity.families.base import Family, Tilted
from cavity.families.gaussian import Gaussian

#: data of one site of a wrapped factor: the factor's own, and the site's number
Paired = tuple[Any, jax.Array]


class SiteWrapper(Factor):
    """Base of factors made from another one, `factor` = t, and one number per site.

    The data of a site are the pair (data of t, a number ≥ 0).
    """

    #: what the number is called
    number: ClassVar[str]

    factor: Factor

    @property
    def closed_forms(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.factor.closed_forms

    def validate(self, data: Any) -> None:
        if not isinstance(data, tuple | list) or len(data) != 2:
            kind, found = type(self).__name__, type(data).__name__
            raise ValueError(f"data of {kind} must be a pair (data, {self.number}); found {found}.")
        inner, number = data
        self.factor.validate(inner)
        number = checks.array(self.number, number, (0, 1))
        if not is_traced(number) and not (number >= 0).all():
            raise ValueError(f"{self.number} must not be negative; found {number.min()}.")

    def is_log_concave(self) -> bool:
        """As t: neither powers nor Gaussian noise change that."""
        return self.factor.is_log_concave()

    def predict(self, mean: Numbers, variance: Numbers) -> dict[str, jax.Array]:
        """The factor's own prediction: the number of a site does not concern the next observation."""
        return self.factor.predict(mean, variance)


@factor
class WithMoments(Factor):
    """A factor that brings the strategy that integrates it. moments: see `cavity.moments.Moments`."""

    factor: Factor
    moments: Any = static()

    def default_moments(self) -> Any:
        return self.moments

    def validate(self, data: Any) -> None:
        self.factor.validate(data)

    def has_density(self, data: Any) -> bool:
        return self.factor.has_density(data)

    def log_density(self, x: Value, data: Any) -> jax.Array:
        return self.factor.log_density(x, data)

    def is_log_concave(self) -> bool:
        return self.factor.is_log_concave()

    def predict(self, mean: Numbers, variance: Numbers) -> dict[str, jax.Array]:
        return self.factor.predict(mean, variance)


@factor
class Tempered(SiteWrapper):
    """The factor raised to a power per site, t(f)^w. data: the pair (data of t, w), w ≥ 0.

    Everything is the factor's own with `power` multiplied by w, so it is exact where the factor knows all powers.

    Args:
        factor: t.

    Examples:
        >>> import cavity as cv
        >>> half = cv.factors.Tempered(cv.factors.Probit())
        >>> round(float(half.log_density(0.0, (1, 0.5))), 4)
        -0.3466
    """

    factor: Factor

    number: ClassVar[str] = "exponent"

    def log_density(self, x: jax.Array, data: Paired) -> jax.Array:
        inner, exponent = data
        return exponent * self.factor.log_density(x, inner)

    def tilted(self, family: Family, cavity: jax.Array, data: Paired, power: float) -> Tilted:
        inner, exponent = data
        return self.factor.tilted(family, cavity, inner, power * exponent)  # type: ignore[arg-type]

    def accepts(self, family: Family, cavity: jax.Array, data: Any, power: float) -> jax.Array:
        inner, exponent = data
        return self.factor.accepts(family, cavity, inner, power * exponent)


@factor
class GaussianConvolved(SiteWrapper):
    """The likelihood ∫ t(f) N(f; g, r) df of g, where f = g + e and e ~ N(0, r). data: the pair (data of t, r), r ≥ 0.

    Args:
        factor: t, a factor of one Gaussian latent.

    Examples:
        >>> import cavity as cv
        >>> convolved = cv.factors.GaussianConvolved(cv.factors.Probit())
        >>> round(float(convolved.log_density(0.0, (1, 0.5))), 4)
        -0.6931
    """

    factor: Factor

    number: ClassVar[str] = "residual"

    def log_density(self, x: jax.Array, data: Paired) -> jax.Array:
        """log ∫ t(f) N(f; x, r) df; where r = 0, log t(x)."""
        inner, residual = data
        some = jnp.asarray(residual) > 0
        variance = jnp.where(some, residual, 1.0)
        integrated = self.factor.tilted(Gaussian(), Gaussian().from_mean(x, variance), inner, 1.0).log_z
        return jnp.where(some, integrated, self.factor.log_density(x, inner))

    def tilted(self, family: Family, cavity: jax.Array, data: Paired, power: float) -> Tilted:
        inner, residual = data
        if not isinstance(family, Gaussian):
            return NotImplemented
        found = self.factor.tilted(family, add_noise_variance(cavity, residual), inner, power)
        if found is NotImplemented:
            return NotImplemented
        # Of a negative message 1 + r τ would cancel, and the general formula does not, which has d₂ > 0.
        negative = found.site[..., 1:] < 0
        direct = add_noise_variance(jnp.where(negative, 0.0, found.site), residual)
        return found._replace(site=jnp.where(negative, family.message(cavity, found.stats), direct))

    def expected_log(self, family: Family, cavity: jax.Array, data: Paired, tilted: Tilted) -> jax.Array:
        """E[log t(f)] under t(f) N(f; g, r) × cavity(g)."""
        inner, residual = data
        wide = add_noise_variance(cavity, residual)
        found = self.factor.tilted(family, wide, inner, 1.0)
        if found is NotImplemented:
            return NotImplemented
        return self.factor.expected_log(family, wide, inner, found)


def add_noise_variance(eta: Any, residual: Any) -> Any:
    """(ν, τ) of a Gaussian after noise of variance r is added: (ν, τ) / (1 + r τ), for a flat one too."""
    return eta / (1.0 + residual * eta[..., 1])[..., None]


class ObservedArguments(NamedTuple):
    """Data of `Conditioned`, of one site: the arguments that are numbers, in order, and the factor's own data."""

    values: tuple[Numbers, ...]
    own: Any


@factor
class Conditioned(Factor):
    """t(x) = factor(all arguments): those at `places` are data, the variables fill the other places in order.

    The factor's log density sees the tuple of all its arguments, as if all were variables; it is integrated numerically
    over those that are.

    Args:
        factor: the factor of all arguments.
        places: positions of the arguments that are observed.

    Examples:
        >>> import cavity as cv
        >>> from cavity.factors.wrappers import ObservedArguments
        >>> closeness = cv.factors.from_log_density(lambda x, data: -((x[0] - x[1]) ** 2))
        >>> given = cv.factors.Conditioned(closeness, places=(1,))
        >>> given.log_density(3.0, ObservedArguments(values=(1.0,), own=None))
        -4.0
    """

    factor: Factor
    places: tuple[int, ...] = static()

    def validate(self, data: ObservedArguments) -> None:
        super().validate(data.values)
        self.factor.validate(data.own)

    def has_density(self, data: ObservedArguments) -> bool:
        return self.factor.has_density(data.own)

    def log_density(self, x: Value, data: ObservedArguments) -> jax.Array:
        arguments: list[Numbers] = list(x) if isinstance(x, tuple) else [x]
        for place, value in zip(self.places, data.values, strict=True):
            arguments.insert(place, value)
        return self.factor.log_density(tuple(arguments), data.own)

    def default_moments(self) -> Any:
        return self.factor.default_moments()


@factor
class FromLogDensity(Factor):
    """t(x) = exp(function(x, data)); integrated numerically."""

    function: Callable[[Any, Any], jax.Array] = static()

    def log_density(self, x: jax.Array, data: Any) -> jax.Array:
        return self.function(x, data)


@factor
class FromLogZ(Factor):
    """log ∫ t(x) cavity(x) dx = function(*family.coordinates(cavity), data); its derivatives give the moments."""

    function: Callable[..., jax.Array] = static()

    def log_z(self, *arguments: Numbers) -> jax.Array:
        """The user's function of the cavity's coordinates and the site's data, in that order."""
        return self.function(*arguments)


def from_log_density(fn: Callable[[Any, Any], jax.Array]) -> Factor:
    """A factor with log t(x) = fn(x, data), for one value x and one site's data, written with `jax.numpy`.

    It has no closed form: name a strategy, `cavity.Quadrature()` or `cavity.Importance()`. `fn` may return −inf outside
    a bounded support. Use the same function object again for the same factor: each new one is compiled again.

    Args:
        fn: the log density.

    Returns:
        The factor, to be used wherever one of `cavity.factors` is.

    Raises:
        TypeError: if fn is not callable.

    Examples:
        >>> import cavity as cv
        >>> laplace = cv.factors.from_log_density(lambda x, data: -abs(x - data))
        >>> problem = cv.models.posterior(laplace, [0.3, -1.2], prior_variance=1.0).with_moments(cv.Quadrature())
        >>> print(cv.infer(problem).status)
        converged
    """
    return FromLogDensity(_callable("from_log_density", fn, "(x, data)"))


def from_log_z(fn: Callable[..., jax.Array]) -> Factor:
    """A factor known by log Z = fn(*coordinates, data) alone; for Gaussian sites fn(mean, covariance, data).

    Everything else follows by automatic differentiation, so `fn` must be smooth and accurate as a function.

    Args:
        fn: log Z as a function of the coordinates of the cavity and the data of a site.

    Returns:
        The factor, whose moments follow by differentiation.

    Raises:
        TypeError: if fn is not callable.

    Examples:
        >>> import cavity as cv
        >>> from jax.scipy.stats import norm
        >>> probit = cv.factors.from_log_z(lambda mean, variance, y: norm.logcdf(y * mean / (1.0 + variance) ** 0.5))
        >>> problem = cv.models.posterior(probit, [1, -1, 1], prior_variance=1.0)
        >>> print(round(float(cv.infer(problem).mean), 3))
        0.297
    """
    return FromLogZ(_callable("from_log_z", fn, "(*coordinates, data)"))


def _callable(name: str, fn: Callable[..., jax.Array], arguments: str) -> Callable[..., jax.Array]:
    if not callable(fn):
        raise TypeError(f"{name} needs a function of {arguments}; found {type(fn).__name__}.")
    return fn
