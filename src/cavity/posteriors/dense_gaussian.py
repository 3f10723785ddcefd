"""q over n latents with a dense prior covariance K: the kernel form (thesis 5.4), with the algebra of `dense_algebra`.

A sequential sweep reads q's covariance window by window. Window S needs only its rows against the windows that are
still to come, covariance[·, S] − (columns of the windows before it), and q is rebuilt after the last one. With the
symmetry used, the columns take n³/3 flops and the rebuild n³: a sweep is two thirds of an n × n × n product.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._numerics import blocked
from cavity._numerics.blocked import Blocks, identity
from cavity.posteriors import windows
from cavity.posteriors.base import Coordinates, Equations
from cavity.posteriors.dense_algebra import Dense, KernelPrior, dense, window_sizes
from cavity.posteriors.windows import Absorbed, Window, WindowedPosterior


class Pass(NamedTuple):
    """A sequential pass on its way: q's mean and covariance in visiting order, and the columns of the windows closed.

    q's covariance is covariance − (columns · column_signs) columnsᵀ in the rows still to come.
    """

    mean: jax.Array
    covariance: Blocks
    columns: jax.Array
    column_signs: jax.Array


#: windows are blocks that are visited together where there are at most so many: each has a program of its own
MOST_BLOCKS = 32

#: sites up to which the dense system, 2 × 2 numbers for each pair of sites, is solved
LARGEST = 3000

#: directions of the latents that have less than this share of the largest variance are no coordinates: they move a
#: latent by less than 1e-5 of a standard deviation
NEGLIGIBLE = 1e-10


@dataclass(frozen=True)
class DenseGaussian(WindowedPosterior):
    """q over the latents of a process, mean and covariance. Site i of every group acts on latent i.

    Examples:
        >>> import cavity as cv
        >>> model = cv.models.latent_gaussian([1.0, 1.0], cv.factors.Probit(), kernel_matrix=[[1.0, 0.5], [0.5, 1.0]])
        >>> model.problem().posterior
        DenseGaussian()
        >>> cv.infer(model).variance.round(3).tolist()
        [0.663, 0.663]
    """

    variable: ClassVar[str] = "f"

    def refresh(self, prior: KernelPrior, groups: tuple[tuple[Any, jax.Array], ...]) -> Dense:
        _, sites = zip(*groups, strict=True)
        nu, tau = jnp.sum(jnp.stack(sites), axis=0).T
        return dense(prior.covariance, nu, tau)

    def flat(self, prior: KernelPrior) -> Dense:
        k, size = prior.covariance, prior.covariance.shape[0]
        blocks, none = blocked.cut_columns((k,), window_sizes(size)[0]), jnp.zeros(size)
        zero, sites = jnp.zeros(()), jnp.zeros((size, 2))
        return Dense(none, jnp.diagonal(k), blocks, jnp.ones(size), none, sites, zero, zero, jnp.ones((), bool))

    def marginals(self, prior: Any, q: Dense, scope: Any, index: jax.Array) -> jax.Array:
        precision = 1.0 / q.variance[index]
        return jnp.stack([q.mean[index] * precision, precision], axis=-1)

    def divergence(self, prior: KernelPrior, q: Dense) -> jax.Array:
        return q.divergence

    def cavities(
        self, prior: Any, q: Dense, scope: Any, index: jax.Array, removed: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """From 1 − τᵢ Σᵢᵢ and α, which keep their digits where a site says more than all the rest.

        Without (ν, τ) the variance is Σᵢᵢ / u with u = 1 − τ Σᵢᵢ, and the mean lower by (ν − τ mean) Σᵢᵢ / u. Where
        (ν, τ) is all that the sites say of latent i, u = 1 − τᵢ Σᵢᵢ and ν − τ mean = αᵢ.
        """
        seen, (nu, tau) = self.marginals(prior, q, scope, index), removed.T
        mean, variance, weak = q.mean[index], q.variance[index], q.weak[index]
        nothing_left = jnp.all(removed == q.sites[index], axis=-1)
        share = jnp.where(nothing_left, weak, 1.0 - tau * variance)
        pull = jnp.where(nothing_left, q.weights[index], nu - tau * mean)
        precision = share / variance
        return seen, jnp.stack([(mean - pull * variance / share) * precision, precision], axis=-1)

    def window_sizes(self, size: int, block: int) -> tuple[int, ...]:
        if block > 1 and size <= MOST_BLOCKS * block:
            return (block,)
        return window_sizes(size)

    def begin(self, prior: KernelPrior, q: Dense, scope: Any, order: Any, width: int) -> Pass:
        columns, signs = jnp.zeros((order.size, order.size)), jnp.zeros(order.size)
        # In order, known beforehand: 0, 1, … and the last number again where the end is filled up.
        last = q.mean.size - 1
        in_order = isinstance(order, np.ndarray) and np.array_equal(order, np.minimum(np.arange(order.size), last))
        if in_order and order.size > last and q.covariance[0].shape[1] % width == 0:
            # What fills the last window up is independent of all there is.
            missing = order.size - q.mean.size
            blocks = blocked.cut_columns(q.covariance, width)
            blocks = tuple(pad_block(block, missing, width) for block in blocks) if missing else blocks
            return Pass(jnp.pad(q.mean, (0, missing)), blocks, columns, signs)
        whole = blocked.symmetric_from_columns(q.covariance)
        starts = range(0, order.size, width)
        blocks = tuple(whole[order[start:, None], order[start : start + width]] for start in starts)
        return Pass(q.mean[order], blocks, columns, signs)

    def open(self, prior: KernelPrior, passed: Any, scope: Any, number: jax.Array, index: jax.Array) -> Window:
        size, width = passed.mean.size, index.size
        place = number * width

        def reach(first: int) -> jax.Array:
            """Rows from window `first` on, against that window; rows before it are not needed any more."""
            start = first * width
            stop, known = start + width, passed.covariance[first]
            if first:
                done = passed.columns[start:stop, :start] * passed.column_signs[:start]
                known = known - passed.columns[start:, :start] @ done.T
            return jnp.concatenate([jnp.zeros((start, width)), known])

        if isinstance(passed, Window):  # one inside another fits into a nearer cache
            found = jax.lax.dynamic_slice(passed.covariance, (0, place), (size, width))
        else:
            found = jax.lax.switch(number, [partial(reach, first) for first in range(size // width)])
        own = jax.lax.dynamic_slice(found, (place, 0), (width, width))
        return windows.open_window(jax.lax.dynamic_slice(passed.mean, (place,), (width,)), own, found)

    def close(self, passed: Any, number: jax.Array, window: Window | Absorbed) -> Any:
        place = number * window.moves.size
        if isinstance(passed, Window):
            assert isinstance(window, Window)
            # Of the inner window these are the columns as they were at their moments.
            columns = windows.update_columns(window)
            return passed._replace(
                mean=passed.mean + columns @ window.moves,
                covariance=passed.covariance - (columns * window.gains) @ columns.T,
                columns=jax.lax.dynamic_update_slice(passed.columns, columns.T, (place, 0)),
                gains=jax.lax.dynamic_update_slice(passed.gains, window.gains, (place,)),
                moves=jax.lax.dynamic_update_slice(passed.moves, window.moves, (place,)),
                proper=passed.proper & window.proper,
            )
        if isinstance(window, Absorbed):
            moved, columns, signs = window.reach @ window.moves, windows.absorbed_columns(window), window.signs
        else:
            spread = windows.update_columns(window)
            moved, columns = spread @ window.moves, spread * jnp.sqrt(jnp.abs(window.gains))
            signs = jnp.sign(window.gains)
        return passed._replace(
            mean=passed.mean + moved,
            columns=jax.lax.dynamic_update_slice(passed.columns, columns, (0, place)),
            column_signs=jax.lax.dynamic_update_slice(passed.column_signs, signs, (place,)),
        )

    def can_solve(self, prior: KernelPrior, sites: int) -> bool:
        return sites <= LARGEST

    def solve(self, prior: KernelPrior, q: Dense, groups: tuple[Equations, ...]) -> tuple[jax.Array, ...]:
        return solve_dense(blocked.symmetric_from_columns(q.covariance), groups)

    def is_valid(self, q: Any) -> jax.Array:
        return jnp.ones((), bool) if isinstance(q, KernelPrior) else q.proper

    def log_partition(self, q: Any) -> jax.Array:
        return jnp.zeros(()) if isinstance(q, KernelPrior) else q.log_partition

    def views(self, prior: KernelPrior, q: Dense) -> dict[str, Callable[[], jax.Array]]:
        return {
            "mean": lambda: q.mean,
            "variance": lambda: q.variance,
            "covariance": lambda: blocked.symmetric_from_columns(q.covariance),
            "weights": lambda: q.weights,
        }

    def sample(self, key: jax.Array, prior: KernelPrior, q: Dense, draws: int) -> jax.Array:
        return blocked.sample_gaussian(key, q.mean, blocked.symmetric_from_columns(q.covariance), draws)

    def log_density(self, prior: KernelPrior, q: Dense, x: Any) -> jax.Array:
        return blocked.gaussian_log_density(q.mean, blocked.symmetric_from_columns(q.covariance), x)

    def factor_arguments(self, prior: KernelPrior, scope: Any, index: jax.Array, x: jax.Array) -> jax.Array:
        return x[index]

    def coordinates(self, prior: KernelPrior, q: Dense) -> Coordinates:
        """f = G z with K = G Gᵀ: eigenvectors scaled by the roots of their eigenvalues, the smallest left out."""
        values, vectors = jnp.linalg.eigh(prior.covariance)
        kept = int(jnp.sum(values > NEGLIGIBLE * values[-1]))
        scale, basis = jnp.sqrt(values[-kept:]), vectors[:, -kept:]
        back = basis / scale
        covariance = back.T @ blocked.symmetric_from_columns(q.covariance) @ back
        return Coordinates(jnp.zeros_like(q.mean), basis * scale, back.T @ q.mean, covariance)


def pad_block(block: jax.Array, missing: int, width: int) -> jax.Array:
    """Columns of a covariance with latents of variance 1 behind the last row, and columns up to `width`."""
    columns = block.shape[1]
    wide = jnp.pad(block, ((0, missing), (0, width - columns)))
    return jnp.where(identity(*wide.shape) & (jnp.arange(width) >= columns), 1.0, wide)


def solve_dense(covariance: jax.Array, groups: tuple[Equations, ...]) -> tuple[jax.Array, ...]:
    """The equations of all groups, site i of each on latent i, by one factorisation of a dense matrix.

    In local coordinates the statistics of latent i are (u, −u²/2), u = (f − mean)/sd, and with the correlations ρ of q

        Cov(uᵢ, uⱼ) = ρᵢⱼ,    Cov(uᵢ²/2, uⱼ²/2) = ρᵢⱼ²/2,    Cov(uᵢ, uⱼ²/2) = 0.
    """
    root = jnp.sqrt(jnp.diagonal(covariance))
    rho = covariance / (root[:, None] * root)
    couplings = (rho, 0.5 * rho**2)
    rows, right = [], []
    for group in groups:
        for i in range(2):
            row = []
            for other in groups:
                for j in range(2):
                    block = group.mixing[:, i, j, None] * couplings[j] * other.multiplicity
                    row.append(block + jnp.diag(group.own[:, i, j]) if other is group else block)
            rows.append(jnp.concatenate(row, axis=1))
        right.append(group.right.T.ravel())
    found = jnp.linalg.solve(jnp.concatenate(rows), jnp.concatenate(right)).reshape(len(groups), 2, rho.shape[0])
    return tuple(map(jnp.transpose, found))
