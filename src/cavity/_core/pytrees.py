"""Dataclasses as JAX pytrees that are told apart."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
from jax.tree_util import GetAttrKey


def register(cls: type, data_fields: Sequence[str], meta_fields: Sequence[str]) -> None:
    """Make a dataclass a pytree: `data_fields` are its leaves, `meta_fields` and the class make its structure.

    The structures of `jax.tree_util.register_dataclass` are equal for different classes with as many fields (jaxlib
    0.10.2), though their hashes differ; so now and then `jax.jit` takes the program compiled for another class.
    """
    data, meta = tuple(data_fields), tuple(meta_fields)

    def flatten(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(tree, name) for name in data), tuple(getattr(tree, name) for name in meta)

    def flatten_with_keys(tree: Any) -> tuple[tuple[tuple[Any, Any], ...], tuple[Any, ...]]:
        leaves, static = flatten(tree)
        return tuple((GetAttrKey(name), leaf) for name, leaf in zip(data, leaves, strict=True)), static

    def unflatten(static: tuple[Any, ...], leaves: Iterable[Any]) -> Any:
        return cls(**dict(zip(data, leaves, strict=True)), **dict(zip(meta, static, strict=True)))

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
