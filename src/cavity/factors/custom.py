"""Factors from a user's own function: a log density, or log Z alone."""

from collections.abc import Callable
from typing import Any

import jax

from cavity._core.pytrees import static
from cavity.factors.base import Factor, factor


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

    def log_z(self, *arguments: Any) -> jax.Array:
        """The user's function of the cavity's coordinates and the site's data, in that order."""
        return self.function(*arguments)


def from_log_density(fn: Callable[[Any, Any], jax.Array]) -> Factor:
    """A factor with log t(x) = fn(x, data), for one value x and one site's data, written with `jax.numpy`.

    It has no closed form: name a strategy, `cavity.Quadrature()` or `cavity.Importance()`. `fn` may return −inf outside
    a bounded support. Use the same function object again for the same factor: each new one is compiled anew.

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


def _callable(name: str, fn: Any, arguments: str) -> Any:
    if not callable(fn):
        raise TypeError(f"{name} needs a function of {arguments}; found {type(fn).__name__}.")
    return fn
