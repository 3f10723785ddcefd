"""Schedules: in which order, and how many at a time, the sites of a group are visited in one sweep.

A schedule makes tables of visits, one row per block. The sites of a block are updated in parallel from the same q, the
blocks one after another; so blocks of one site are sequential EP and one block of all sites is parallel EP. Rows are
padded with the number of sites, an index no site has. Within one table a site appears at most once; an order that
repeats sites takes several tables. Shapes are written as in docs/notation.md.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from cavity.families.base import Family
from cavity.families.product import Product

#: A NumPy array where the table is known beforehand, so that visits as the data come need no gathering.
Table = Int[Array | np.ndarray, "_blocks _width"]


class Schedule(ABC):
    """In which order, and how many at a time, the sites of a group are visited in one sweep.

    Subclasses are frozen dataclasses: hashable, static under `jit`.

    Examples:
        Three sites in two blocks: sites 0 and 2 together, then site 1 and padding:

        >>> import jax
        >>> import numpy as np
        >>> import cavity as cv
        >>> (table,) = cv.EveryNth(2).visits(0, 3, jax.random.key(0), np.zeros(3))
        >>> np.asarray(table).tolist()
        [[0, 2], [1, 3]]
    """

    #: whether `visits` wants the mismatch of every site measured afresh before each sweep.
    needs_mismatch: ClassVar[bool] = False

    #: whether `visits` uses its key.
    random: ClassVar[bool] = False

    #: whether it refers to sites by their numbers, so that a problem cannot be padded for it.
    names_sites: ClassVar[bool] = False

    @abstractmethod
    def visits(self, group: int, size: int, key: Key[Array, ""], mismatch: Float[Array, " sites"]) -> tuple[Table, ...]:
        """Tables of visits, each (blocks, sites in a block), for the sites of group number `group`, `size` of them.

        Args:
            group: from 0.
            size: number of sites.
            key: a new one every sweep.
            mismatch: of every site, measured afresh where `needs_mismatch` is set.

        Returns:
            The tables, gone through one after another; rows are padded with `size`.
        """

    def parts(self, family: Family) -> tuple[Bool[np.ndarray, " k"] | None, ...]:
        """Every table is gone through once for each of these: which numbers of a site may change, None for all.

        Args:
            family: of the group's messages.

        Returns:
            Masks over the natural parameters of a site, in the order in which they are used.
        """
        return (None,)


@dataclass(frozen=True)
class InOrder(Schedule):
    """One site after another, as the data come: sequential EP.

    Examples:
        >>> import cavity as cv
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> found = cv.infer(problem, cv.EP(schedule=cv.InOrder()))
        >>> at_once = cv.infer(problem, cv.EP(schedule=cv.Parallel()))
        >>> print(found.mean.round(4), at_once.mean.round(4), found.sweeps < at_once.sweeps)
        1.7688 1.7688 True
    """

    def visits(self, group: int, size: int, key: Key[Array, ""], mismatch: Float[Array, " sites"]) -> tuple[Table, ...]:
        return (np.arange(size)[:, None],)


@dataclass(frozen=True)
class ThereAndBack(Schedule):
    """One site after another, as the data come, and back again: on a chain one sweep carries information to both ends.

    Examples:
        >>> import cavity as cv
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> found = cv.infer(problem, cv.EP(schedule=cv.ThereAndBack()))
        >>> in_order = cv.infer(problem, cv.EP(schedule=cv.InOrder()))
        >>> print(found.mean.round(4), found.sweeps <= in_order.sweeps)
        1.7688 True
    """

    def visits(self, group: int, size: int, key: Key[Array, ""], mismatch: Float[Array, " sites"]) -> tuple[Table, ...]:
        there = np.arange(size)[:, None]
        return (there,) if size < 2 else (there, there[::-1])


@dataclass(frozen=True)
class Shuffled(Schedule):
    """One site after another, in a new random order every sweep, drawn with the `key` of `infer`.

    Examples:
        >>> import cavity as cv
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> found = cv.infer(problem, cv.EP(schedule=cv.Shuffled()))
        >>> print(found.status, found.mean.round(4))
        converged 1.7688
    """

    random: ClassVar[bool] = True

    def visits(self, group: int, size: int, key: Key[Array, ""], mismatch: Float[Array, " sites"]) -> tuple[Table, ...]:
        return (jax.random.permutation(key, size)[:, None],)


@dataclass(frozen=True)
class Order(Schedule):
    """One site after another in the order given; sites may be repeated or left out.

    Attributes:
        sites: numbers of the sites, from 0; for a problem of several groups one such order per group.

    Raises:
        ValueError: if an order is empty or holds no whole numbers; when it is run, if a site or an order is missing.

    Examples:
        ADF depends on the order of the data, a fixed point of EP does not:

        >>> import cavity as cv
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> backwards = cv.Order((4, 3, 2, 1, 0))
        >>> [cv.infer(problem, cv.ADF(schedule=order)).mean.round(2).item() for order in (cv.InOrder(), backwards)]
        [-0.14, 0.83]
        >>> [cv.infer(problem, cv.EP(schedule=order)).mean.round(2).item() for order in (cv.InOrder(), backwards)]
        [1.77, 1.77]
    """

    sites: tuple[int, ...] | tuple[tuple[int, ...], ...]

    names_sites: ClassVar[bool] = True

    def __post_init__(self) -> None:
        nested = len(self.sites) > 0 and not isinstance(self.sites[0], int | np.integer | float)
        orders = tuple(tuple(own) for own in (self.sites if nested else (self.sites,)))  # type: ignore[union-attr]
        for own in orders:
            if not own:
                raise ValueError("sites is empty: an order needs at least one site.")
            if any(int(site) != site for site in own):
                raise ValueError(f"sites must be whole numbers; found {own}.")
        object.__setattr__(self, "sites", tuple(tuple(int(site) for site in own) for own in orders))

    def visits(self, group: int, size: int, key: Key[Array, ""], mismatch: Float[Array, " sites"]) -> tuple[Table, ...]:
        if group >= len(self.sites):
            raise ValueError(f"sites must hold one order per group; found {len(self.sites)}.")
        order: tuple[int, ...] = self.sites[group]  # type: ignore[assignment]
        if min(order) < 0 or max(order) >= size:
            raise ValueError(f"sites of the order must lie in 0..{size - 1}; found {min(order)}..{max(order)}.")
        tables: list[dict[int, None]] = [{}]
        for site in order:
            if site in tables[-1]:
                tables.append({})
            tables[-1][site] = None
        return tuple(np.array([*table])[:, None] for table in tables)


@dataclass(frozen=True)
class LargestMismatchFirst(Schedule):
    """One site after another, the worst matched first, measured afresh before every sweep.

    Examples:
        The measurement visits every site once more, so that five sites take ten evaluations a sweep:

        >>> import cavity as cv
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> found = cv.infer(problem, cv.EP(schedule=cv.LargestMismatchFirst()))
        >>> print(found.status, int(found.evaluations / found.sweeps))
        converged 10
    """

    needs_mismatch: ClassVar[bool] = True

    def visits(self, group: int, size: int, key: Key[Array, ""], mismatch: Float[Array, " sites"]) -> tuple[Table, ...]:
        return (jnp.argsort(-mismatch)[:, None],)


@dataclass(frozen=True)
class OneMessage(Schedule):
    """One message at a time: a visit changes a site's message to one of its variables and leaves the others.

    Attributes:
        order: a schedule of sites, gone through for the first variable of all sites, then for the second, and so on.

    Examples:
        Loopy belief propagation, message by message:

        >>> import cavity as cv
        >>> graph = cv.DiscreteGraph([2, 2, 2])
        >>> for pair in ([0, 1], [1, 2], [2, 0]):
        ...     graph.add_factor(pair, [[3.0, 1.0], [1.0, 2.0]])
        >>> print(cv.infer(graph, cv.EP(schedule=cv.OneMessage())).marginals[0].round(3))
        [0.724 0.276]
    """

    order: Schedule = InOrder()

    @property
    def needs_mismatch(self) -> bool:  # type: ignore[override]
        """Whether `order` wants the mismatch measured afresh."""
        return self.order.needs_mismatch

    @property
    def random(self) -> bool:  # type: ignore[override]
        """Whether `order` uses its key."""
        return self.order.random

    def visits(self, group: int, size: int, key: Key[Array, ""], mismatch: Float[Array, " sites"]) -> tuple[Table, ...]:
        return self.order.visits(group, size, key, mismatch)

    def parts(self, family: Family) -> tuple[Bool[np.ndarray, " k"] | None, ...]:
        if not isinstance(family, Product):
            return (None,)
        numbers = np.arange(family.size)
        return tuple((numbers >= own.start) & (numbers < own.stop) for own in family.slices)


@dataclass(frozen=True)
class Parallel(Schedule):
    """All sites at once from the same q. Cheap sweeps, but more of them, and often a need for damping.

    Examples:
        >>> import cavity as cv
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> found = cv.infer(problem, cv.EP(schedule=cv.Parallel(), damping=0.8))
        >>> print(found.status, found.mean.round(4))
        converged 1.7688
    """

    def visits(self, group: int, size: int, key: Key[Array, ""], mismatch: Float[Array, " sites"]) -> tuple[Table, ...]:
        return (np.arange(size)[None, :],)


@dataclass(frozen=True)
class EveryNth(Schedule):
    """n blocks per sweep, one after another: block k holds the sites k, k + n, k + 2n, …, updated in parallel.

    Sites that are next to each other in the data are in different blocks: most of what sequential visits gain, at a
    price near that of parallel ones, where neighbours matter to each other and others hardly do.

    Attributes:
        n: number of blocks.

    Raises:
        ValueError: if `n` is not a whole number of at least 1.

    Examples:
        >>> import cavity as cv
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> sweeps = [cv.infer(problem, cv.EP(schedule=own)).sweeps for own in (cv.EveryNth(2), cv.Parallel())]
        >>> bool(sweeps[0] < sweeps[1])
        True
    """

    n: int

    def __post_init__(self) -> None:
        if not isinstance(self.n, int) or self.n < 1:
            raise ValueError(f"n must be a whole number of at least 1; found {self.n!r}.")

    def visits(self, group: int, size: int, key: Key[Array, ""], mismatch: Float[Array, " sites"]) -> tuple[Table, ...]:
        blocks = min(self.n, size)
        sites = np.arange(-(-size // blocks) * blocks).reshape(-1, blocks).T
        return (np.minimum(sites, size),)


@dataclass(frozen=True)
class Blocks(Schedule):
    """Blocks of sites in parallel, the blocks one after another: between `InOrder` and `Parallel`.

    Attributes:
        block_size: sites in a block, 1 for sequential EP.
        shuffled: whether the sites are dealt to the blocks anew, at random, every sweep.

    Raises:
        ValueError: if `block_size` is not a whole number of at least 1.

    Examples:
        >>> import cavity as cv
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> found = cv.infer(problem, cv.EP(schedule=cv.Blocks(2, shuffled=True)))
        >>> print(found.status, found.mean.round(4))
        converged 1.7688
    """

    block_size: int
    shuffled: bool = False

    random: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.block_size, int) or self.block_size < 1:
            raise ValueError(f"block_size must be a whole number of at least 1; found {self.block_size!r}.")

    def visits(self, group: int, size: int, key: Key[Array, ""], mismatch: Float[Array, " sites"]) -> tuple[Table, ...]:
        blocks = -(-size // self.block_size)
        if not self.shuffled:
            return (np.minimum(np.arange(blocks * self.block_size), size).reshape(blocks, self.block_size),)
        order, padding = jax.random.permutation(key, size), jnp.full(blocks * self.block_size - size, size)
        return (jnp.concatenate([order, padding]).reshape(blocks, self.block_size),)
