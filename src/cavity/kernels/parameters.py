"""The parameters of a kernel: a dataclass that JAX sees through, and bounds in which a search moves them.

A kernel is a frozen dataclass registered as a JAX pytree (`@kernel`): its parameters are leaves, traced and
differentiable, everything else is structure. A compiled function of (kernel, X) is therefore reused when only the value
of a parameter changes. A parameter is a field `p` beside a static field `p_bounds`, which is a pair of positive numbers
or "fixed". The free ones, as natural logarithms in one flat vector, are `theta`, the convention of scikit-learn.
"""

import dataclasses
from collections import Counter
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64, is_traced
from cavity._core.pytrees import pytree_dataclass, static
from cavity._core.tiers import tiered_jit

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


@kernel
class HasParameters:
    """What has parameters with bounds, its own or those of its parts; `theta` holds the logarithms of the free ones."""

    #: names of the fields that are parameters, free or fixed; `kernel` finds them.
    parameters: ClassVar[tuple[str, ...]] = ()
    #: parameters that may be a vector, one number per feature.
    per_feature: ClassVar[tuple[str, ...]] = ()
    #: parameters that may be 0, when fixed.
    may_vanish: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in self.parameters:
            value, bounds = getattr(self, name), getattr(self, f"{name}_bounds")
            if not isinstance(bounds, str) or bounds != "fixed":
                try:
                    low, high = map(float, bounds)
                    if not 0 < low < high < np.inf:
                        raise ValueError
                except (TypeError, ValueError):
                    raise ValueError(
                        f'{name}_bounds must be a pair of numbers 0 < low < high, or "fixed"; found {bounds!r}.'
                    ) from None
                bounds = low, high
                object.__setattr__(self, f"{name}_bounds", bounds)
            if np.ndim(value) == 1 and name in self.per_feature:
                value = checks.array(name, value, (1,))
                if not is_traced(value) and not (value > 0).all():
                    raise ValueError(f"{name} must be positive; found {value.min()} at index {int(value.argmin())}.")
            else:  # Python numbers, so that they trace alike
                value = checks.number(name, value)
                if name not in self.may_vanish or is_traced(value) or value != 0:
                    checks.positive(name, value)
                elif bounds != "fixed":
                    raise ValueError(f'{name} may be 0 only where it is fixed: give {name}_bounds="fixed".')
            object.__setattr__(self, name, value)

    @property
    def free(self) -> tuple[str, ...]:
        """Names of the fields a search may change."""
        return tuple(name for name in self.parameters if getattr(self, f"{name}_bounds") != "fixed")

    @property
    def parts(self) -> tuple[Any, ...]:
        """The kernels this one is composed of, in the order of theta."""
        return (self,)

    @property
    def theta(self) -> Any:
        """Natural logarithms of the free parameters, one flat vector."""
        values = [getattr(part, name) for part in self.parts for name in part.free]
        library = jnp if is_traced(values) else np
        return library.log(library.concatenate([np.zeros(0), *map(library.atleast_1d, values)]))

    @float64
    def with_theta(self, theta: Any) -> Self:
        """The kernel with other values of the free parameters, which may be traced.

        Args:
            theta: their natural logarithms, one flat vector.

        Returns:
            The changed copy.

        Raises:
            ValueError: the vector has another length.
        """
        theta = theta if is_traced(theta) else np.asarray(theta, np.float64)
        if theta.shape != self.theta.shape:
            raise ValueError(f"theta must have {self.theta.size} numbers; found shape {tuple(theta.shape)}.")
        return self.rebuild(jnp.exp(theta) if is_traced(theta) else np.exp(theta))

    def rebuild(self, values: Any) -> Self:
        """The kernel with its free parameters read from a flat vector.

        Args:
            values: the numbers themselves, exp(theta).

        Returns:
            The changed copy.
        """
        changes, start = {}, 0
        for name in self.free:
            shape = np.shape(getattr(self, name))
            changes[name] = values[start : start + shape[0]] if shape else values[start]
            start += shape[0] if shape else 1
        return dataclasses.replace(self, **changes)

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each number of theta, such as `rbf.length_scale[0]`; equal kernels of a sum are numbered."""
        labels = [type(part).__name__.lower() for part in self.parts]
        often, met, names = Counter(labels), Counter(), []
        for part, label in zip(self.parts, labels, strict=True):
            met[label] += 1
            prefix = f"{label}{met[label]}" if often[label] > 1 else label
            for name in part.free:
                shape = np.shape(getattr(part, name))
                names += [f"{prefix}.{name}[{i}]" for i in range(shape[0])] if shape else [f"{prefix}.{name}"]
        return tuple(names)

    @property
    def bounds(self) -> np.ndarray:
        """Logarithms of the bounds of the free parameters, a row (low, high) for each number of theta."""
        pairs = [(getattr(part, f"{name}_bounds"), getattr(part, name)) for part in self.parts for name in part.free]
        rows = [bounds for bounds, value in pairs for _ in range(np.size(value))]
        return np.log(np.asarray(rows, np.float64).reshape(-1, 2))

    def fix(self, *names: str) -> Self:
        """The kernel with these parameters left out of theta; without names, with all of them.

        Args:
            *names: of fields.

        Returns:
            The changed copy.

        Raises:
            ValueError: no parameter has this name.
        """
        for name in names:
            checks.choice("the parameter to fix", name, self.parameters)
        fixed = {f"{name}_bounds": "fixed" for name in names or self.parameters}
        return dataclasses.replace(self, **fixed)

    def spec(self) -> dict[str, Any]:
        """What `from_spec` rebuilds the kernel from: the name of the class and its fields, ready for JSON.

        Returns:
            A dictionary with the class's name under "class".
        """
        result: dict[str, Any] = {"class": type(self).__name__}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, HasParameters):
                value = value.spec()
            elif isinstance(value, (np.ndarray, tuple)):
                value = np.asarray(value).tolist()
            result[field.name] = value
        return result


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


@tiered_jit
def compiled_pullback(kernel: Any, X: jax.Array, G: jax.Array) -> jax.Array:
    """One reverse pass theta → K; the elementwise parts fuse, so that few n × n arrays are alive at a time."""
    theta = kernel.theta
    if theta.shape == (0,):
        return jnp.zeros(0)
    _, back = jax.vjp(lambda values: kernel.with_theta(values).matrix(X, None), theta)
    return back(G)[0]
