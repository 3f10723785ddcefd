"""Kernels from what their `spec` wrote: names are looked up in a table, nothing is evaluated."""

import dataclasses
from typing import Any

from cavity.kernels.base import Kernel
from cavity.kernels.composite import Product, Sum
from cavity.kernels.constant import Constant, White
from cavity.kernels.dot_product import Linear, Polynomial
from cavity.kernels.stationary import RBF, Matern

CLASSES: dict[str, type[Kernel]] = {
    cls.__name__: cls for cls in (RBF, Matern, Linear, Polynomial, Constant, White, Sum, Product)
}


def from_spec(spec: Any) -> Kernel:
    """The kernel a `spec` describes.

    Args:
        spec: a dictionary with the name of the class under "class" and the class's fields.

    Returns:
        The kernel.

    Raises:
        ValueError: if the dictionary describes no kernel of `cavity.kernels`.

    Examples:
        >>> from cavity import kernels
        >>> kernels.from_spec(kernels.RBF(2.0).spec()).length_scale
        2.0
    """
    if not isinstance(spec, dict):
        raise ValueError(f"a kernel's spec must be a dictionary; found {type(spec).__name__}.")
    name = spec.get("class")
    cls = CLASSES.get(name) if isinstance(name, str) else None
    if cls is None:
        raise ValueError(f"a kernel's spec must name one of {', '.join(CLASSES)} as its class; found {name!r}.")
    expected = {field.name for field in dataclasses.fields(cls)}
    given = set(spec) - {"class"}
    if given != expected:
        wrong = ", ".join(sorted(repr(field) for field in given ^ expected))
        raise ValueError(f"the spec of {name} must have the fields {', '.join(sorted(expected))}; check {wrong}.")
    fields = {field: spec[field] for field in expected}
    if issubclass(cls, (Sum, Product)):
        fields = {field: from_spec(value) for field, value in fields.items()}
    return cls(**fields)
