"""How a kernel declares its parameters: a dataclass that JAX sees through, and bounds in which a search moves them.

A kernel is a frozen dataclass registered as a JAX pytree (`@kernel`): its parameters are leaves, traced and
differentiable, everything else is structure. A compiled function of (kernel, X) is therefore reused when only the value
of a parameter changes. A parameter is a field `p` beside a static field `p_bounds`, which is a pair of positive numbers
or "fixed". The free ones, as natural logarithms in one flat vector, are `theta`, the convention of scikit-learn.
"""

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp

from cavity._core.pytrees import pytree_dataclass, static

K = TypeVar("K", bound=type)

#: where a search may move a parameter: a pair of positive numbers, or "fixed".
Bounds = tuple[float, float] | str

#: bounds that stand for any.
ANYWHERE = (0.5, 2.0)


def limits(*, default: Bounds, kw_only: bool = True) -> Any:
    """The static field `p_bounds` of a parameter `p`, given by name only.

    Args:
        default: a pair of positive numbers, or "fixed".
        kw_only: whether it is given by name only.

    Returns:
        The field.

    Examples:
        >>> from cavity import kernels
        >>> @kernels.kernel
        ... class Scaled(kernels.Kernel):
        ...     scale: float = 1.0
        ...     scale_bounds: tuple = kernels.limits(default=(0.1, 10.0))
        >>> Scaled().free, Scaled(scale_bounds="fixed").free
        (('scale',), ())
    """
    return static(default=default, kw_only=kw_only, repr=False)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(static, limits))
def kernel(cls: K) -> K:
    """Class decorator of kernels and bases: a frozen dataclass that is a JAX pytree, compared by identity.

    Args:
        cls: a subclass of `Kernel`.

    Returns:
        The class.

    Examples:
        >>> import jax.numpy as jnp
        >>> from cavity import kernels
        >>> @kernels.kernel
        ... class Cosine(kernels.Kernel):
        ...     period: float = 1.0
        ...     period_bounds: tuple = kernels.limits(default=(0.1, 10.0))
        ...     def matrix(self, X, Z):
        ...         Z = X if Z is None else Z
        ...         return jnp.cos(2 * jnp.pi * (X[:, :1] - Z[:, 0]) / self.period)
        ...     def diagonal_of(self, X):
        ...         return jnp.ones(len(X))
        >>> Cosine(2.0).names
        ('cosine.period',)
    """
    made: Any = pytree_dataclass(cls, eq=False)
    names = [field.name for field in dataclasses.fields(made)]
    made.parameters = tuple(name for name in names if f"{name}_bounds" in names)
    return made


def without_bounds(instance: Any) -> Any:
    """The kernel with the same bounds for every free parameter.

    A value does not depend on them, but they are structure: compiled programs would be told apart by them, and the
    bounds of a kernel made for some data are like no others.
    """
    bare = object.__new__(type(instance))  # what has been checked once is not checked again
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if dataclasses.is_dataclass(value):
            value = without_bounds(value)
        elif field.name.endswith("_bounds") and value != "fixed":
            value = ANYWHERE
        object.__setattr__(bare, field.name, value)
    return bare


@jax.jit
def compiled_pullback(kernel: Any, X: jax.Array, G: jax.Array) -> jax.Array:
    """One reverse pass theta → K; the elementwise parts fuse, so that few n × n arrays are alive at a time."""
    theta = kernel.theta
    if theta.shape == (0,):
        return jnp.zeros(0)
    _, back = jax.vjp(lambda values: kernel.with_theta(values).matrix(X, None), theta)
    return back(G)[0]
