"""Frozen dataclasses as JAX pytrees: the one way in which this package makes a class that JAX sees through.

A class whose instances travel through `jit`, `vmap` or `grad` (factors, kernels, projections, problems, solutions) is
decorated with `pytree_dataclass`; `cavity.factors.factor` and `cavity.kernels.kernel` are that decorator.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, dataclass_transform

import jax
from jax.tree_util import GetAttrKey

from cavity._core.precision import host_state

C = TypeVar("C", bound=type)


def static(**kwargs: Any) -> Any:
    """A field that belongs to the structure and is not traced: a function, a name, a degree.

    Args:
        **kwargs: options of `dataclasses.field`, such as `default`.

    Returns:
        The field; its values must be hashable.

    Examples:
        >>> from collections.abc import Callable
        >>> import jax
        >>> import cavity as cv
        >>> @cv.factors.factor
        ... class Power(cv.factors.Factor):
        ...     weight: float
        ...     function: Callable = cv.factors.static(default=abs)
        >>> jax.tree.leaves(Power(2.0))
        [2.0]
    """
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(frozen_default=True, field_specifiers=(static,))
def pytree_dataclass(cls: C, *, eq: bool = True) -> C:
    """Class decorator: a frozen dataclass that is a JAX pytree.

    Fields are leaves, traced and differentiable; those made by `static()` belong to the structure. JAX rebuilds an
    instance from its leaves without calling `__init__` or `__post_init__`, because leaves may be placeholders. What is
    pickled or copied has NumPy arrays in the place of JAX's.

    Args:
        cls: the class.
        eq: whether instances are compared by their fields, as dataclasses are, or by identity.

    Returns:
        The class.

    Examples:
        >>> import jax
        >>> import cavity as cv
        >>> @cv.factors.factor
        ... class Shifted(cv.factors.Factor):
        ...     shift: float
        >>> jax.tree.map(lambda leaf: 2 * leaf, Shifted(1.5))
        Shifted(shift=3.0)
    """
    made = dataclasses.dataclass(frozen=True, eq=eq)(cls)
    made.__getstate__ = host_state
    fields = dataclasses.fields(made)
    meta = [field.name for field in fields if field.metadata.get("static", False)]
    register(made, [field.name for field in fields if field.name not in meta], meta)
    return made


def register(cls: type, data_fields: Sequence[str], meta_fields: Sequence[str]) -> None:
    """Make a dataclass a pytree: `data_fields` are its leaves, `meta_fields` and the class make its structure.

    This stands in for `jax.tree_util.register_dataclass`, whose structures are equal for different classes with as
    many fields (jaxlib 0.10.2), though their hashes differ; so now and then `jax.jit` takes the program compiled for
    another class. tests/_core/test_pytrees.py shows the case.
    """
    data, meta = tuple(data_fields), tuple(meta_fields)
    keys = tuple(map(GetAttrKey, data))

    def flatten(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        read = functools.partial(getattr, tree)
        return tuple(map(read, data)), tuple(map(read, meta))

    def flatten_with_keys(tree: Any) -> tuple[tuple[tuple[Any, Any], ...], tuple[Any, ...]]:
        leaves, structure = flatten(tree)
        return tuple(zip(keys, leaves, strict=True)), structure

    def unflatten(structure: tuple[Any, ...], leaves: Iterable[Any]) -> Any:
        tree = object.__new__(cls)
        for name, value in zip(data + meta, (*leaves, *structure), strict=True):
            object.__setattr__(tree, name, value)
        return tree

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
