"""Independent product of families: eta is the concatenation, a value x is a tuple with one entry for each family."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, pairwise, starmap
from operator import attrgetter, itemgetter
from typing import Any

import jax
import jax.numpy as jnp

from cavity.families.base import Family

#: equal families up to which each is asked for itself; more are asked together, which takes less compiling
ASKED_APART = 3


def moment_size(family: Family) -> int:
    """Number of expected statistics; a family may carry more natural parameters than that."""
    return jax.eval_shape(family.moments, family.uniform()).shape[-1]


def tilted_size(family: Family) -> int:
    """Length of the tilted statistics, which a family may choose to be other than its expected statistics."""
    return getattr(family, "tilted_size", moment_size(family))


def consecutive_slices(sizes: Iterable[int]) -> tuple[slice, ...]:
    """Consecutive slices of these lengths."""
    return tuple(starmap(slice, pairwise(accumulate(sizes, initial=0))))


@dataclass(frozen=True)
class Product(Family):
    """p(x₁, x₂, …) = p₁(x₁) p₂(x₂) …; a product of independent families, whose methods join the results of the parts.

    Args:
        families: the family of each part.

    Raises:
        ValueError: there are no families.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> pair = cv.families.Product((cv.families.Gaussian(), cv.families.Categorical(2)))
        >>> pair.size, len(pair.parts(np.zeros(pair.size)))
        (6, 2)
    """

    families: tuple[Family, ...]

    def __post_init__(self) -> None:
        if not self.families:
            raise ValueError("Product needs at least one family, got an empty tuple.")

    @property
    def cavities_proper(self) -> bool:  # type: ignore[override]
        return all(map(attrgetter("cavities_proper"), self.families))

    @property
    def size(self) -> int:
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """The lengths of the families' natural parameters."""
        return list(map(attrgetter("size"), self.families))

    @property
    def tilted_size(self) -> int:
        """Length of the tilted statistics."""
        return sum(tilted_size(family) for family in self.families)

    @property
    def event_shape(self) -> tuple[Any, ...]:
        return tuple(family.event_shape for family in self.families)

    def joined(self, question: str, *columns: Iterable[Any]) -> jax.Array:
        """The answers of all families to one question, each about its own entries of the columns, in one vector."""
        rows = zip(self.families, *columns, strict=True)
        return jnp.concatenate([getattr(family, question)(*own) for family, *own in rows], axis=-1)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where each family's natural parameters lie."""
        return consecutive_slices(self.sizes)

    def parts(self, eta: jax.Array) -> list[jax.Array]:
        """The natural parameters of each family."""
        return self.split(eta, self.sizes)

    def split(self, stats: jax.Array, sizes: list[int]) -> list[jax.Array]:
        """Statistics cut into one piece for each family."""
        return jnp.split(jnp.asarray(stats), list(accumulate(sizes))[:-1], axis=-1)

    def each(self, question: str, *etas: jax.Array) -> list[Any]:
        """The answers of all families to one question about their own parameters."""
        count, family = len(self.families), self.families[0]
        if count > ASKED_APART and all(own == family for own in self.families):
            rows = [jnp.asarray(eta).reshape(*jnp.shape(eta)[:-1], count, family.size) for eta in etas]
            found = jax.vmap(getattr(family, question), in_axes=-2)(*rows)
            return [jax.tree.map(itemgetter(k), found) for k in range(count)]
        pieces = zip(*map(self.parts, etas), strict=True)
        answers = []
        for family, own in zip(self.families, pieces, strict=True):
            answers.append(getattr(family, question)(*own))
        return answers

    def flat(self) -> jax.Array:
        return jnp.concatenate([family.flat() for family in self.families])

    def coordinates(self, eta: jax.Array) -> tuple[jax.Array, ...]:
        """The coordinates of all families, one after the other."""
        return sum(self.each("coordinates", eta), ())

    def statistics(self, x: Any) -> jax.Array:
        return self.joined("statistics", x)

    def log_partition(self, eta: jax.Array) -> jax.Array:
        return reduce(jnp.add, self.each("log_partition", eta))

    def moments(self, eta: jax.Array) -> jax.Array:
        return jnp.concatenate(self.each("moments", eta), axis=-1)

    def natural(self, mu: jax.Array) -> jax.Array:
        return self.joined("natural", self.split(mu, [moment_size(family) for family in self.families]))

    def is_proper(self, eta: jax.Array) -> jax.Array:
        return reduce(jnp.logical_and, self.each("is_proper", eta))

    def is_allowed(self, eta: jax.Array) -> jax.Array:
        return reduce(jnp.logical_and, self.each("is_allowed", eta))

    def sample(self, key: jax.Array, eta: jax.Array, shape: tuple[int, ...] = ()) -> Any:
        keys = jax.random.split(key, len(self.families))
        triples = zip(self.families, keys, self.parts(eta), strict=True)
        return tuple(family.sample(own_key, own, shape) for family, own_key, own in triples)

    def mean(self, eta: jax.Array) -> Any:
        return tuple(self.each("mean", eta))

    def covariance(self, eta: jax.Array) -> Any:
        """The covariance of each part; there is none between parts."""
        return tuple(self.each("covariance", eta))

    def log_density(self, eta: jax.Array, x: Any) -> jax.Array:
        triples = zip(self.families, self.parts(eta), x, strict=True)
        return reduce(jnp.add, [family.log_density(own, value) for family, own, value in triples])

    def entropy(self, eta: jax.Array) -> jax.Array:
        return reduce(jnp.add, self.each("entropy", eta))

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        return reduce(jnp.add, self.each("kl", eta, other))

    def expected_exponent(self, message: jax.Array, eta: jax.Array) -> jax.Array:
        return reduce(jnp.add, self.each("expected_exponent", message, eta))

    def distance(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        return reduce(jnp.maximum, self.each("distance", eta, other))

    @property
    def local_size(self) -> int:
        return sum(family.local_size for family in self.families)

    def from_local(self, reference: jax.Array, x: jax.Array) -> jax.Array:
        pieces = self.split(x, [family.local_size for family in self.families])
        return self.joined("from_local", self.parts(reference), pieces)

    def to_local(self, reference: jax.Array, change: jax.Array) -> jax.Array:
        return jnp.concatenate(self.each("to_local", reference, change), axis=-1)

    def local_moments(self, reference: jax.Array, eta: jax.Array) -> jax.Array:
        return jnp.concatenate(self.each("local_moments", reference, eta), axis=-1)

    def message(self, cavity: jax.Array, stats: jax.Array) -> jax.Array:
        pieces = self.split(stats, [tilted_size(family) for family in self.families])
        return self.joined("message", self.parts(cavity), pieces)

    def keep_proper(self, cavity: jax.Array, stats: jax.Array, site: jax.Array, floor: float) -> jax.Array:
        """Part by part: the divergence to a product is a sum."""
        pieces = self.split(stats, [tilted_size(family) for family in self.families])
        floors = [floor] * len(self.families)
        return self.joined("keep_proper", self.parts(cavity), pieces, self.parts(site), floors)

    def tilted_stats(self, log_z: Any, cavity: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Each family differentiates log Z in its own coordinates, the others held fixed."""
        own = self.each("coordinates", cavity)
        stats = []
        for i, (family, part) in enumerate(zip(self.families, self.parts(cavity), strict=True)):

            def partial(*coordinates: jax.Array, i: int = i) -> jax.Array:
                return log_z(*sum([*own[:i], coordinates, *own[i + 1 :]], ()))

            stats.append(family.tilted_stats(partial, part)[1])
        return log_z(*sum(own, ())), jnp.concatenate(stats)
