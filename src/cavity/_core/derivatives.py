"""Numbers that may be differentiated forward and not in reverse."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

REFUSED = (
    "infer has no derivatives in reverse mode (jax.grad, jax.vjp, jax.jacrev), because its number of sweeps is not "
    "known beforehand: take jax.jvp or jax.jacfwd. Or differentiate -energy(problem, solution.sites).value at a fixed "
    "point, where the sites may be held fixed."
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
