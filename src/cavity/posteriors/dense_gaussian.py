"""q over n latents with a dense prior covariance K: the kernel form (thesis 5.4).

A sequential sweep reads q's covariance window by window. Window S needs only its rows against the windows that are
still to come, covariance[·, S] − (columns of the windows before it), and q is rebuilt after the last one. With the
symmetry used, the columns take n³/3 flops and the rebuild n³: a sweep is two thirds of an n × n × n product.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity.numerics import blocked
from cavity.numerics.blocked import Blocks
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
        blocks, none = cut_columns(k, window_sizes(size)[0]), jnp.zeros(size)
        return Dense(none, jnp.diagonal(k), blocks, jnp.ones(size), none, jnp.zeros(()), jnp.ones((), bool))

    def marginals(self, prior: Any, q: Dense, scope: Any, index: jax.Array) -> jax.Array:
        precision = 1.0 / q.variance[index]
        return jnp.stack([q.mean[index] * precision, precision], axis=-1)

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
            blocks = tuple(chain.from_iterable(map(partial(cut_columns, width=width), q.covariance)))
            blocks = tuple(pad_block(block, missing, width) for block in blocks) if missing else blocks
            return Pass(jnp.pad(q.mean, (0, missing)), blocks, columns, signs)
        whole = blocked.symmetric_from_columns(q.covariance)
        starts = range(0, order.size, width)
        blocks = tuple(whole[order[start:, None], order[start : start + width]] for start in starts)
        return Pass(q.mean[order], blocks, columns, signs)

    def open(self, prior: KernelPrior, passed: Any, scope: Any, number: jax.Array, index: jax.Array) -> Window:
        if isinstance(passed, Window):
            return windows.open_inside(passed, number * index.size, index.size)
        size, width = passed.mean.size, index.size

        def reach(first: int) -> jax.Array:
            """Rows from window `first` on, against that window; rows before it are not needed any more."""
            start = first * width
            stop, known = start + width, passed.covariance[first]
            if first:
                done = passed.columns[start:stop, :start] * passed.column_signs[:start]
                known = known - passed.columns[start:, :start] @ done.T
            return jnp.concatenate([jnp.zeros((start, width)), known])

        found = jax.lax.switch(number, [partial(reach, first) for first in range(size // width)])
        own = jax.lax.dynamic_slice(found, (number * width, 0), (width, width))
        mean = jax.lax.dynamic_slice(passed.mean, (number * width,), (width,))
        return windows.open_window(mean, own, found)

    def close(self, passed: Any, number: jax.Array, window: Window | Absorbed) -> Any:
        if isinstance(passed, Window):
            assert isinstance(window, Window)
            return windows.close_inside(passed, number * window.mean.size, window)
        width = window.moves.size
        if isinstance(window, Absorbed):
            moved, columns, signs = window.reach @ window.moves, windows.absorbed_columns(window), window.signs
        else:
            spread = windows.update_columns(window)
            moved, columns = spread @ window.moves, spread * jnp.sqrt(jnp.abs(window.gains))
            signs = jnp.sign(window.gains)
        return passed._replace(
            mean=passed.mean + moved,
            columns=jax.lax.dynamic_update_slice(passed.columns, columns, (0, number * width)),
            column_signs=jax.lax.dynamic_update_slice(passed.column_signs, signs, (number * width,)),
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

    def seen(self, prior: KernelPrior, scope: Any, index: jax.Array, x: jax.Array) -> jax.Array:
        return x[index]

    def coordinates(self, prior: KernelPrior, q: Dense) -> Coordinates:
        """f = G z with K = G Gᵀ: eigenvectors scaled by the roots of their eigenvalues, the smallest left out."""
        values, vectors = jnp.linalg.eigh(prior.covariance)
        kept = int(jnp.sum(values > NEGLIGIBLE * values[-1]))
        scale, basis = jnp.sqrt(values[-kept:]), vectors[:, -kept:]
        back = basis / scale
        covariance = back.T @ blocked.symmetric_from_columns(q.covariance) @ back
        return Coordinates(jnp.zeros_like(q.mean), basis * scale, back.T @ q.mean, covariance)


def cut_columns(block: jax.Array, width: int) -> tuple[jax.Array, ...]:
    """A block of columns cut into blocks of `width`, each from its own diagonal on."""
    return tuple(block[start:, start : start + width] for start in range(0, block.shape[1], width))


def pad_block(block: jax.Array, missing: int, width: int) -> jax.Array:
    """Columns of a covariance with latents of variance 1 behind the last row, and columns up to `width`."""
    columns = block.shape[1]
    wide = jnp.pad(block, ((0, missing), (0, width - columns)))
    return jnp.where(blocked.identity(*wide.shape) & (jnp.arange(width) >= columns), 1.0, wide)


def solve_dense(covariance: jax.Array, groups: tuple[Equations, ...]) -> tuple[jax.Array, ...]:
    """The equations of all groups, site i of each on latent i, by one factorisation of a dense matrix.

    In local coordinates the statistics of latent i are (u, −u²/2), u = (f − mean)/sd, and with the correlations ρ of q

        Cov(uᵢ, uⱼ) = ρᵢⱼ,    Cov(uᵢ²/2, uⱼ²/2) = ρᵢⱼ²/2,    Cov(uᵢ, uⱼ²/2) = 0.
    """
    root = jnp.sqrt(jnp.diagonal(covariance))
    rho = covariance / (root[:, None] * root)
    couplings = (rho, 0.5 * rho**2)
    size = rho.shape[0]
    rows = []
    for number, group in enumerate(groups):
        for i in range(2):
            row = [group.mixing[:, i, j, None] * couplings[j] * other.copies for other in groups for j in range(2)]
            for j in range(2):
                place = 2 * number + j
                row[place] = row[place] + jnp.diag(group.own[:, i, j])
            rows.append(jnp.concatenate(row, axis=1))
    right = jnp.concatenate([group.right.T.ravel() for group in groups])
    found = jnp.linalg.solve(jnp.concatenate(rows), right).reshape(len(groups), 2, size)
    return tuple(jnp.moveaxis(own, 0, -1) for own in found)
