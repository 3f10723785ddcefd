"""q = ∏ q_k(x_k) over many variables of a few families: what a graph approximates when it is disconnected (thesis 4.1).

Variables of one family are the rows of one array. A site sees the variables of its factor's scope, and is one
message to each of them. Which rows these are is data, not structure: another graph of the same shape, or the same
one with other evidence, is not compiled again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from cavity.families.base import Family
from cavity.posteriors.base import Equations, Posterior

#: numbers in q beyond which its linear equations are not solved
LARGEST_SYSTEM = 6_000


class GraphPrior(NamedTuple):
    """Natural parameters of every variable alone, one array per family; the wires; the log of constant factors.

    Of a continuous variable they are those of its prior density, of a discrete one the log of a factor like others.
    """

    etas: tuple[jax.Array, ...]
    wires: tuple[jax.Array, ...]
    log_constant: jax.Array


class Network(NamedTuple):
    """q: natural parameters, one array (variables, parameters) per family, and the wires."""

    etas: tuple[jax.Array, ...]
    wires: tuple[jax.Array, ...]


class Reach(NamedTuple):
    """The scope of a group: its number among the wires, and the family number of each slot."""

    group: int
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Factorised(Posterior):
    """families: one for each array of variables."""

    families: tuple[Family, ...]

    variable: ClassVar[str] = "x"

    def refresh(self, prior: GraphPrior, groups: tuple[tuple[Reach, jax.Array], ...]) -> Network:
        q = Network(tuple(jnp.asarray(eta, float) for eta in prior.etas), prior.wires)
        for scope, sites in groups:
            q = self.spread(q, scope, q.wires[scope.group], sites)
        return q

    def spread(self, q: Network, scope: Reach, rows: jax.Array, change: jax.Array) -> Network:
        """q times one row of messages per site, each cut into one message per slot."""
        etas, start = list(q.etas), 0
        for slot, number in enumerate(scope.slots):
            size = self.families[number].size
            etas[number] = etas[number].at[rows[:, slot]].add(change[:, start : start + size])
            start += size
        return q._replace(etas=tuple(etas))

    def marginals(self, prior: GraphPrior, q: Network, scope: Reach, index: jax.Array) -> jax.Array:
        return self.local(q, scope, index)

    def local(self, window: Network, scope: Reach, place: jax.Array) -> jax.Array:
        rows = window.wires[scope.group][place]
        parts = [window.etas[number][rows[:, slot]] for slot, number in enumerate(scope.slots)]
        return jnp.concatenate(parts, axis=-1)

    def absorb(self, window: Network, scope: Reach, place: jax.Array, change: jax.Array) -> Network:
        return self.spread(window, scope, window.wires[scope.group][place], change)

    def is_valid(self, q: Network | GraphPrior) -> jax.Array:
        each = [jnp.all(family.is_allowed(eta)) for family, eta in zip(self.families, q.etas, strict=True)]
        return jnp.all(jnp.stack(each))

    def is_normalisable(self, q: Network) -> jax.Array:
        each = [jnp.all(family.is_proper(eta)) for family, eta in zip(self.families, q.etas, strict=True)]
        return jnp.all(jnp.stack(each))

    def can_solve(self, prior: GraphPrior, sites: int) -> bool:
        return sum(eta.size for eta in prior.etas) <= LARGEST_SYSTEM

    def solve(self, prior: GraphPrior, q: Network, groups: tuple[Equations, ...]) -> tuple[jax.Array, ...]:
        """Through the change y = Σ w x of all variables: (I + Σ w D⁺ M F) y = Σ w D⁺ g, then x = D⁺ (g − M F y).

        F is the covariance under q, one block per variable; D⁺ the pseudo-inverse, since log weights are known up to a
        constant only.
        """
        fishers = [self.covariances(family, eta) for family, eta in zip(self.families, q.etas, strict=True)]
        sizes = [family.local_size for family in self.families]
        counts = [eta.shape[0] for eta in q.etas]
        starts = [
            sum(size * count for size, count in zip(sizes[:k], counts[:k], strict=True)) for k in range(len(sizes))
        ]
        total = sum(size * count for size, count in zip(sizes, counts, strict=True))
        fisher = jnp.zeros((total, total))
        for own, size, count, start in zip(fishers, sizes, counts, starts, strict=True):
            place = start + size * jnp.arange(count)[:, None] + jnp.arange(size)
            fisher = fisher.at[place[:, :, None], place[:, None, :]].add(own)
        matrix, right = jnp.eye(total), jnp.zeros(total)
        parts = []
        for group in groups:
            rows = q.wires[group.scope.group]
            place = jnp.concatenate(
                [
                    starts[number] + sizes[number] * rows[:, slot, None] + jnp.arange(sizes[number])
                    for slot, number in enumerate(group.scope.slots)
                ],
                axis=1,
            )
            inverse = jnp.linalg.pinv(group.own, hermitian=True)
            weighted = group.multiplicity[:, None, None] * (inverse @ group.mixing)
            matrix = matrix.at[place].add(jnp.einsum("ijk,ikl->ijl", weighted, fisher[place]))
            right = right.at[place].add(jnp.einsum("i,ijk,ik->ij", group.multiplicity, inverse, group.right))
            parts.append((group, inverse, place))
        moved = fisher @ jnp.linalg.solve(matrix, right)
        return tuple(
            jnp.einsum("ijk,ik->ij", inverse, group.right - jnp.einsum("ijk,ik->ij", group.mixing, moved[place]))
            for group, inverse, place in parts
        )

    def covariances(self, family: Family, eta: jax.Array) -> jax.Array:
        """Covariance of every variable's statistics in local coordinates."""

        def one(own: jax.Array) -> jax.Array:
            def moments(x: jax.Array) -> jax.Array:
                return family.local_moments(own, own + family.from_local(own, x))

            return jax.jacfwd(moments)(jnp.zeros(family.local_size))

        return jax.vmap(one)(eta)

    def log_partition(self, q: Network | GraphPrior) -> jax.Array:
        """Σ log Z_k; of the prior that of the continuous variables alone, minus the log of the constant factors.

        The weights of single discrete variables are factors like others, so the evidence is the graph's own partition
        function and not that of a normalised prior.
        """
        if isinstance(q, GraphPrior):
            return self.sum_partitions(q, discrete=False) - q.log_constant
        return self.sum_partitions(q, discrete=True) + self.sum_partitions(q, discrete=False)

    def sum_partitions(self, q: Network | GraphPrior, discrete: bool) -> jax.Array:
        """Σ log Z_k of the discrete variables, or of all others."""
        pairs = zip(self.families, q.etas, strict=True)
        found = [family.log_partition(eta) for family, eta in pairs if family.cavities_proper == discrete]
        return sum(map(jnp.sum, found), jnp.zeros(()))

    def log_mass(self, prior: GraphPrior) -> jax.Array:
        return self.sum_partitions(prior, discrete=True) + prior.log_constant

    def divergence(self, prior: GraphPrior, q: Network) -> jax.Array | None:
        if all(family.cavities_proper for family in self.families):
            return None
        rows = zip(self.families, q.etas, prior.etas, strict=True)
        return sum((jnp.sum(family.kl(eta, before)) for family, eta, before in rows), jnp.zeros(()))

    def views(self, prior: GraphPrior, q: Network) -> dict[str, Callable[[], Any]]:
        def each(question: str) -> tuple[jax.Array, ...]:
            return tuple(getattr(own, question)(eta) for own, eta in zip(self.families, q.etas, strict=True))

        return {name: partial(each, name) for name in ("moments", "mean", "covariance")}

    def sample(self, key: jax.Array, prior: GraphPrior, q: Network, draws: int) -> tuple[jax.Array, ...]:
        """One array (draws, variables) per family."""
        keys = jax.random.split(key, len(self.families))
        triples = zip(self.families, keys, q.etas, strict=True)
        return tuple(family.sample(own, eta, (draws,)) for family, own, eta in triples)

    def log_density(self, prior: GraphPrior, q: Network, x: tuple[jax.Array, ...]) -> jax.Array:
        triples = zip(self.families, q.etas, x, strict=True)
        return jnp.sum(
            jnp.stack([jnp.sum(own.log_density(eta, value), axis=-1) for own, eta, value in triples]), axis=0
        )

    def factor_arguments(self, prior: GraphPrior, scope: Reach, index: jax.Array, x: tuple[jax.Array, ...]) -> Any:
        rows = prior.wires[scope.group][index]
        return tuple(x[number][rows[:, slot]] for slot, number in enumerate(scope.slots))
