"""Double precision as a scope, and what leaves it.

Nothing in this package touches JAX's global configuration. Every public function or method that computes with JAX is
decorated with `float64`; what is only called from such functions needs no decorator. The scope is open for the length
of the call; what is handed back to code outside such a scope are NumPy arrays, because a float64 JAX array would
silently be rounded to float32 by the first operation done outside. Large arrays of an accelerator stay there all the
same: to bring them back may take longer than the run that made them. What is pickled or copied is NumPy altogether
(`host_state`), because JAX's own arrays lose half their digits where they are unpickled outside the scope.

A process that was forked from one that has computed is told so where the scope opens: it has none of the threads that
JAX waits for. The first call also lets `compiling` know of the programs that are compiled from then on.

At the end: numbers that may be differentiated forward and not in reverse.
"""

import functools
import operator
import os
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from cavity._core.compiling import listen

P = ParamSpec("P")
R = TypeVar("R")

#: bytes from which an array stays on its accelerator
LARGE = 2**24
#: the process that has computed here, by its number; before the first call there is none
computing: list[int] = []


def refuse_fork() -> None:
    """Refuse to compute in a fork of a process that has computed: the threads JAX would wait for are not copied."""
    own = os.getpid()
    if not computing:
        computing.append(own)
        listen()
    elif computing[0] != own:
        raise RuntimeError(
            "this process was forked from one in which cavity had computed, and JAX does not survive that: start "
            'workers by multiprocessing.get_context("spawn") or "forkserver", by joblib\'s loky, or by Dask.'
        )


def double_precision() -> Any:
    """The scope: `with double_precision(): ...`, at public entry points that `float64` cannot decorate."""
    refuse_fork()
    return jax.enable_x64(True)


def is_traced(tree: Any) -> bool:
    """Whether any leaf is being traced (inside `jit`, `vmap` or `grad`), so that its value cannot be looked at."""
    return any(map(Tracer.__instancecheck__, jax.tree.leaves(tree)))


def library_of(*values: Any) -> Any:
    """`jax.numpy` where one of the values is an array of JAX, else `numpy`, which has nothing to compile."""
    return jnp if any(isinstance(value, jax.Array) for value in values) else np


def is_tracing() -> bool:
    """Whether JAX is tracing, as inside a `jit`: what is called there becomes part of the program being made."""
    return isinstance(jnp.zeros(()), Tracer)


def refuse_cut(tree: Any) -> None:
    """Refuse traced numbers in single precision, which a `jit` may have rounded on their way here.

    `vmap` and `grad` alone hand the numbers on as they are, only marked as float32: what they hold is looked at.
    """
    for value in jax.tree.leaves(tree):
        while isinstance(value, Tracer):
            held = getattr(value, "val", getattr(value, "primal", None))
            if isinstance(held, jax.Array | np.ndarray | np.generic | float):
                value = held
            elif value.dtype == jnp.float32:
                raise TypeError(
                    "numbers arrive here in float32: jax.jit rounds its arguments unless double precision is open "
                    "around the call. Give it float64 arrays and write: with jax.enable_x64(True): ..."
                )
            else:
                break


def is_far(value: Any) -> bool:
    """Whether this is an array that lies on an accelerator."""
    concrete = isinstance(value, jax.Array) and not isinstance(value, Tracer)
    return concrete and {"cpu"} != set(map(operator.attrgetter("platform"), value.devices()))


def to_numpy(tree: Any, fetch: bool = False) -> Any:
    """The tree with JAX arrays replaced by NumPy arrays; what is traced or a random key stays.

    What is large and lies on an accelerator stays too, unless `fetch`.
    """
    leaves, structure = jax.tree.flatten(tree)
    found = leaves.copy()
    for place, leaf in enumerate(leaves):
        if not isinstance(leaf, jax.Array) or isinstance(leaf, Tracer):
            continue
        stays = not fetch and leaf.nbytes >= LARGE and is_far(leaf)
        if stays or jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            continue
        found[place] = np.asarray(leaf)[()]  # numbers come back as numbers, not as arrays without axes
    return tree if all(map(operator.is_, found, leaves)) else jax.tree.unflatten(structure, found)


def host_state(self: Any) -> dict[str, Any]:
    """The state of what may hold JAX arrays: `pickle`, `joblib` and `copy` find NumPy arrays in their place."""
    return {name: to_numpy(value, fetch=True) for name, value in vars(self).items()}


def float64(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` in double precision whatever the caller's setting; a no-op when the scope is already open.

    Opening it comes too late for arguments that a user's `jit` has rounded: these are refused.
    """

    @functools.wraps(function)
    def scoped(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_fork()
        if jnp.result_type(float) == np.float64:
            return function(*args, **kwargs)
        refuse_cut((args, kwargs))
        with double_precision():
            return to_numpy(function(*args, **kwargs))

    return scoped


def open_float64(cls: type, names: str) -> None:
    """Let the methods of these names that the class defines itself run in double precision, as by `float64`."""
    for name in set(names.split()) & vars(cls).keys():
        setattr(cls, name, float64(getattr(cls, name)))


REFUSED = (
    "infer has no derivatives in reverse mode (jax.grad, jax.vjp, jax.jacrev), because its number of sweeps is not "
    "known beforehand: take jax.jvp or jax.jacfwd. Or differentiate -energy(problem, solution.sites).value at a fixed "
    "point, where the sites may be held fixed: from cavity.inference.energy import energy."
)

#: the identity, whose transpose is a refusal
forward_only_p = Primitive("forward_only")
forward_only_p.def_impl(lambda value: value)
forward_only_p.def_abstract_eval(lambda value: value)
batching.defvectorized(forward_only_p)
mlir.register_lowering(forward_only_p, lambda context, value: [value])


def refuse(*unused: Any) -> Any:
    """What reverse mode meets first, since it begins at the end."""
    raise TypeError(REFUSED)


ad.deflinear2(forward_only_p, refuse)


def forward_only(tree: Any) -> Any:
    """The same numbers; `jax.grad` of them is refused with a sentence instead of one about while loops."""

    def wrapped(leaf: Any) -> Any:
        return forward_only_p.bind(leaf) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else leaf

    return jax.tree.map(wrapped, tree)
