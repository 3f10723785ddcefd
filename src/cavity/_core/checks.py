"""Checks of what users hand in: one sentence naming the argument and what was found, before any computing.

Public entry points call these on every argument that is a number or an array, before anything is compiled. Values that
are being traced cannot be looked at; their shapes still are.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import is_far, is_traced, refuse_cut

#: numbers beyond this are refused: sums of their squares, and these times a kernel's variance, would overflow.
LARGEST = 1e100


def refuse_masked(name: str, value: Any) -> None:
    """Refuse masked entries, of an array or of those in a list: NumPy would quietly take what is under the mask."""
    parts = value if isinstance(value, list | tuple) else (value,)
    if any(isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part) for part in parts):
        raise ValueError(f"{name} has masked entries; fill in the values or leave the rows out.")


def number_array(name: str, value: Any) -> np.ndarray:
    """An array of any shape, in the machine's byte order: whole numbers and booleans as they are, all others float64.

    NaN and ±∞ are let through; no text, even where it reads like numbers, no dates, nothing complex, nothing masked.
    """
    refuse_masked(name, value)
    try:
        found = np.asarray(value)
        words = found.dtype == object and any(isinstance(cell, str | bytes) for cell in found.ravel())
        if words or found.dtype.kind not in "biufO":
            raise TypeError
        whole = found.dtype.kind in "biu"
        return found.astype(found.dtype.newbyteorder("=") if whole else np.float64, copy=False)
    except (TypeError, ValueError):
        kind = "complex numbers" if np.iscomplexobj(value) else type(value).__name__
        raise ValueError(f"{name} must be real numbers; found {kind}.") from None


def real_numbers(name: str, value: Any) -> Any:
    """A new float64 array of any shape, NaN and ±∞ included, of what `number_array` takes."""
    return number_array(name, value).astype(np.float64)


def array(name: str, value: Any, dimensions: tuple[int, ...]) -> Any:
    """A float64 array with one of the given numbers of dimensions, not empty, all finite."""
    if is_traced(value) or is_far(value):
        refuse_cut(value)
        result = jnp.asarray(value, float)
    else:
        result = real_numbers(name, value)
    if result.ndim not in dimensions:
        wanted = " or ".join(str(d) for d in dimensions)
        raise ValueError(f"{name} must have {wanted} dimension(s); found shape {tuple(result.shape)}.")
    if result.size == 0:
        raise ValueError(f"{name} is empty: shape {tuple(result.shape)}.")
    return finite(name, result)


def finite(name: str, value: Any) -> Any:
    """A float64 array of any shape, all finite."""
    result = jnp.asarray(value, float) if is_traced(value) or is_far(value) else real_numbers(name, value)
    if not is_traced(result) and not (jnp if is_far(result) else np).isfinite(result).all():
        place = np.argwhere(~np.isfinite(np.asarray(result)))[0]
        found = result[tuple(place)]
        raise ValueError(f"{name} must be finite; found {found} at index {tuple(int(i) for i in place)}.")
    return result


def number(name: str, value: Any) -> Any:
    """A finite real number."""
    if is_traced(value):
        refuse_cut(value)
        return jnp.asarray(value, float)
    if isinstance(value, (str, bytes, bool)) or np.ndim(value) != 0:
        raise ValueError(f"{name} must be a number; found {value!r}.")
    try:
        result = float(number_array(name, value))
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number; found {value!r}.") from None
    if not np.isfinite(result):
        raise ValueError(f"{name} must be finite; found {result}.")
    return result


def positive(name: str, value: Any) -> Any:
    """A number above zero."""
    result = number(name, value)
    if not is_traced(result) and not result > 0:
        raise ValueError(f"{name} must be positive; found {result}.")
    return result


def fraction(name: str, value: Any) -> Any:
    """A number in [0, 1]."""
    result = number(name, value)
    if not is_traced(result) and not 0 <= result <= 1:
        raise ValueError(f"{name} must lie in [0, 1]; found {result}.")
    return result


def is_symmetric(matrix: Any, tolerance: float = 1e-10) -> bool:
    """Whether matrices, on the last two axes, are their transposes up to rounding.

    Rounding moves the covariance of two variables by about 1e-16 of the product of their standard deviations.
    """
    sd = abs(matrix.diagonal(0, -2, -1)) ** 0.5
    gap = abs(matrix - matrix.swapaxes(-1, -2))
    return bool((gap <= tolerance * sd[..., :, None] * sd[..., None, :]).all())


def symmetric(name: str, matrix: Any) -> None:
    """Refuse a matrix, or any of a stack of them, that is not symmetric."""
    if not is_symmetric(matrix):
        gap = float(abs(matrix - matrix.swapaxes(-1, -2)).max())
        raise ValueError(f"{name} must be symmetric; entries differ from their mirror images by up to {gap:.3g}.")


def choice(name: str, value: Any, options: tuple[str, ...]) -> str:
    """One of the given names."""
    if not isinstance(value, str) or value not in options:
        found = repr(value) if isinstance(value, str) else type(value).__name__
        raise ValueError(f"{name} must be one of {', '.join(options)}; found {found}.")
    return value


def random_key(name: str, value: Any) -> Any:
    """A key that `jax.random.key` made, and no seed."""
    if not jax.dtypes.issubdtype(getattr(value, "dtype", None), jax.dtypes.prng_key):
        raise TypeError(f"{name} must be made by jax.random.key(...); found {type(value).__name__}.")
    return value
