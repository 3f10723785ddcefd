"""q over n latents with a dense prior covariance K: the kernel form (thesis 5.4).

With site precisions τ and ν, T = diag τ, R = τ^½ where τ > 0 (numerics.blocked has the algebra):

    B = I + R K R,    covariance = R⁻¹ (I − B⁻¹) R⁻¹,    mean = covariance · ν,    (K + T⁻¹)⁻¹ = R B⁻¹ R.

R is kept above 1e-60 of K's scale, where the covariance is that of a flat site to all digits. Sites with τ < 0 are
added in a second stage on top of the covariance Σ₁ of the others: with W = √−τ on them, L₂ L₂ᵀ = I − W Σ₁ W, they add
F₂ F₂ᵀ, F₂ = Σ₁ W L₂⁻ᵀ; when that factor does not exist, q is improper. L takes n³/3 flops, B⁻¹ from it twice that.

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
from cavity._numerics.blocked import BlockedCholesky, Blocks, cholesky, divide_right, identity
from cavity.posteriors import windows
from cavity.posteriors.base import Coordinates, Equations
from cavity.posteriors.windows import Absorbed, Window, WindowedPosterior


class KernelPrior(NamedTuple):
    """f ~ N(0, covariance)."""

    covariance: jax.Array


class Dense(NamedTuple):
    """q: mean and marginal variances of the latents, and their covariance.

    covariance: its columns window by window, each from the window's own rows on, as a pass in order reads them.
    weak: 1 − τᵢ Σᵢᵢ, small where a site says more of its latent than all the rest. weights: α with mean = K α.
    log_partition: log ∫ prior ∏ sites, sites without their scales.
    """

    mean: jax.Array
    variance: jax.Array
    covariance: Blocks
    weak: jax.Array
    weights: jax.Array
    log_partition: jax.Array
    proper: jax.Array


#: windows a pass is cut into at most, sites a window has where there are fewer, and sites of the windows inside it
WINDOWS, WINDOW, INNERMOST = 8, 256, 32


def window_sizes(size: int) -> tuple[int, int]:
    """(window, window inside it) for a pass over `size` sites: a whole number of the second makes the first."""
    if size <= INNERMOST:
        return size, size
    count = min(WINDOWS, -(-size // WINDOW))
    least = -(-size // (count * INNERMOST))
    # As many inner windows as leave the least padding; where it is none, the covariance need not be gathered.
    inside = min(range(least, 2 * least), key=lambda inside: -size % (count * inside))
    width = -(-size // (count * inside))
    return inside * width, width


#: the smallest R beside K^−½: products of four of them are still far from underflow
SMALLEST_ROOT = 1e-60


class Stage(NamedTuple):
    """q with some of its sites: its covariance in blocks, `weak`, ½ log |B₂| of the negative ones taken in.

    left: precisions of the sites to come.
    """

    covariance: Blocks
    weak: jax.Array
    log_det: jax.Array
    left: jax.Array


def dense(k: jax.Array, nu: jax.Array, tau: jax.Array) -> Dense:
    """q for the sites (ν, τ)."""
    root, width = roots(k, tau), window_sizes(tau.size)[0]
    factor = blocked.blocked_cholesky(k, root, width)
    positive = weights_and_mean(k, factor, root, nu)
    # With the positive sites alone: covariance = R⁻¹ (I − B⁻¹) R⁻¹.
    found, blocks = blocked.blocked_inverse(factor, width), []
    for start, block in zip(range(0, tau.size, width), found.columns, strict=True):
        own = slice(start, start + width)
        centred = jnp.where(identity(*block.shape), found.complement[own], -block)
        blocks.append(centred / (root[start:, None] * root[own]))
    stage = Stage(tuple(blocks), found.diagonal, jnp.zeros(()), tau)
    stage = jax.lax.while_loop(lambda stage: jnp.any(stage.left < 0), partial(with_portion, tau), stage)
    variance = jnp.concatenate(list(map(jnp.diagonal, stage.covariance)))

    def all_sites() -> tuple[jax.Array, jax.Array]:
        """From Σ: α = ν − T mean, where the share of a site's own ν is 1 − τᵢ Σᵢᵢ, without a difference."""
        others = blocked.off_diagonal_product(stage.covariance, nu)
        return stage.weak * nu - tau * others, variance * nu + others

    weights, mean = jax.lax.cond(jnp.any(tau < 0), all_sites, lambda: positive)
    log_partition = 0.5 * nu @ mean - 0.5 * jnp.sum(jnp.log1p(factor.excess)) - stage.log_det
    proper = jnp.isfinite(log_partition) & jnp.all(jnp.isfinite(mean)) & jnp.all(variance > 0)
    return Dense(mean, variance, stage.covariance, stage.weak, weights, log_partition, proper)


def weights_and_mean(
    k: jax.Array, factor: BlockedCholesky, root: jax.Array, nu: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(α, mean) with mean = K α, where no site is negative: α = R B⁻¹ (R⁻¹ ν) = ν − R B⁻¹ R K ν.

    The first form has no difference but divides by R: it serves the strong sites, R² K > 1, and the second the others.
    So does mean = T⁻¹ (ν − α): beside a strong site's ν it must be right to the last digit, which K α need not be.
    """
    strong = root**2 * jnp.diagonal(k) > 1.0
    rest = jnp.where(strong, 0.0, nu)
    right = jnp.where(strong, nu / root, 0.0) - root * (k @ rest)
    weights = rest + root * blocked.blocked_solve(factor, right)
    return weights, jnp.where(strong, (nu - weights) / root**2, k @ weights)


def roots(k: jax.Array, tau: jax.Array) -> jax.Array:
    """R: the square roots of the positive site precisions, and next to nothing for the others."""
    return jnp.maximum(jnp.sqrt(jnp.maximum(tau, 0.0)), SMALLEST_ROOT / jnp.sqrt(jnp.diagonal(k)))


class Portion(NamedTuple):
    """The most negative of the sites left: their numbers, W = √−τ, and where their columns go (nowhere if not < 0)."""

    chosen: jax.Array
    root: jax.Array
    place: jax.Array


def portion(left: jax.Array) -> Portion:
    """An eighth of the sites at most: their work grows with the portions there are."""
    index = jnp.argsort(left)[: min(max(32, left.size // 8), left.size)]
    root = jnp.sqrt(jnp.maximum(-left[index], 0.0))
    return Portion(index, root, jnp.where(root > 0, index, left.size))


def factor_portion(left: jax.Array, own: Portion, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """L₂ with L₂ L₂ᵀ = I − W Σ W, from the columns Σ W of the portion, and what is left after it.

    A failure ends it: what would follow is not a number either.
    """
    square = -own.root[:, None] * rows[own.chosen]
    lower = cholesky(jnp.where(identity(own.chosen.size), square + 1.0, square))
    failed = ~jnp.all(jnp.isfinite(jnp.diagonal(lower)))
    return lower, jnp.where(failed, 0.0, left.at[own.place].set(0.0, mode="drop"))


def with_portion(tau: jax.Array, stage: Stage) -> Stage:
    """The stage with its most negative sites taken in: Σ + Σ W B₂⁻¹ W Σ with B₂ = I − W Σ W = L₂ L₂ᵀ."""
    width, own = stage.covariance[0].shape[1], portion(stage.left)
    rows = blocked.some_columns(stage.covariance, own.chosen) * own.root
    lower, left = factor_portion(stage.left, own, rows)
    added, blocks = divide_right(lower, rows), []
    for start, block in zip(range(0, tau.size, width), stage.covariance, strict=True):
        blocks.append(block + added[start:] @ added[start : start + width].T)
    variance = jnp.concatenate(list(map(jnp.diagonal, blocks)))
    known = stage.weak - jnp.where(stage.left < 0, 0.0, tau) * jnp.sum(added**2, axis=1)
    return Stage(
        covariance=tuple(blocks),
        weak=jnp.where((stage.left < 0) & (left == 0), 1.0 - tau * variance, known),
        log_det=stage.log_det + jnp.sum(jnp.log(jnp.diagonal(lower))),
        left=left,
    )


def information(q: Dense, tau: jax.Array) -> jax.Array:
    """(K + T⁻¹)⁻¹ = T − T Σ T."""
    return jnp.where(
        identity(tau.size), tau * q.weak, -tau[:, None] * blocked.symmetric_from_columns(q.covariance) * tau
    )


@jax.jit
def response(prior: KernelPrior, sites: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(G, signs) with (K + T⁻¹)⁻¹ = (G · signs) Gᵀ for weighted sites: what predictions need.

    A latent with prior variance k and covariances c with the others has the posterior variance k − Σ signs (c G)².
    """
    k, tau = prior.covariance, sites[:, 1]
    root, signs = roots(k, tau), jnp.where(tau < 0, -1.0, 1.0)
    square = root[:, None] * k * root
    lower = cholesky(jnp.where(identity(tau.size), square + 1.0, square))

    def with_next(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        # The columns of sites that are not in yet are next to nothing, whatever their sign.
        matrix, left = carry
        own = portion(left)
        seen = (matrix * signs) @ (matrix.T @ (k[:, own.chosen] * own.root))
        rows = k[:, own.chosen] * own.root - k @ seen
        lower, left = factor_portion(left, own, rows)
        new = (-seen).at[own.chosen, jnp.arange(own.chosen.size)].add(own.root)
        return matrix.at[:, own.place].set(divide_right(lower, new), mode="drop"), left

    first = divide_right(lower, jnp.diag(root)), tau
    return jax.lax.while_loop(lambda carry: jnp.any(carry[1] < 0), with_next, first)[0], signs


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
