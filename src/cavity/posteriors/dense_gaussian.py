"""q over n latents with a dense prior covariance K: the kernel form (thesis 5.4).

With site precisions τ and ν, S = diag τ (numerics as in GPML, negative sites as in GPstuff):

    B = I + S^½ K S^½ = L Lᵀ,    covariance = K − F Fᵀ,    F = K S^½ L⁻ᵀ,    mean = K (ν − S^½ B⁻¹ S^½ K ν).

Nothing divides by τ, so flat sites are exact. Sites with τ < 0 are added in a second stage on top of the covariance Σ₁
of the others: with W = √−τ on them, L₂ L₂ᵀ = I − W Σ₁ W, they add + F₂ F₂ᵀ, F₂ = Σ₁ W L₂⁻ᵀ; when that factor does not
exist, q is improper. A column of F belongs to a site, so both stages fit into one n × n factor with signs.

A sequential sweep is left-looking: the covariance is never formed. Window S needs only its rows against the windows
that are still to come, K[·,S] − F[·]·F[S]ᵀ − (columns of the windows before it), and q is rebuilt after the last one.
That is n³ (1 + 1/3) flops, and the rebuild as many: together the cost of four thirds of an n × n × n product.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity.numerics.linear import cholesky, divide_right, solve_triangular
from cavity.posteriors import window as windows
from cavity.posteriors.base import Posterior
from cavity.posteriors.window import Window


class KernelPrior(NamedTuple):
    """f ~ N(0, covariance)."""

    covariance: jax.Array


class Dense(NamedTuple):
    """q: mean and marginal variances of the latents; covariance = K − (factor · signs) factorᵀ.

    factor: its rows window by window, as a pass in order reads them: its products then need no copies.
    weights: α with mean = K α. log_partition: log ∫ prior ∏ sites, sites without their scales.
    """

    mean: jax.Array
    variance: jax.Array
    factor: tuple[jax.Array, ...]
    signs: jax.Array
    weights: jax.Array
    log_partition: jax.Array
    proper: jax.Array


class Pass(NamedTuple):
    """A sequential pass on its way: q's mean and factor in visiting order, and the columns of the windows closed.

    order: the latents in visiting order; None where that is their own, so that nothing is gathered.
    q's covariance is K − (factor · signs) factorᵀ − (columns · column_signs) columnsᵀ in the rows still to come.
    """

    order: jax.Array | None
    mean: jax.Array
    factor: tuple[jax.Array, ...]
    signs: jax.Array
    columns: jax.Array
    column_signs: jax.Array


#: windows a pass is cut into, sites of the innermost windows at most
WINDOWS, INNERMOST = 8, 32


def window_sizes(size: int) -> tuple[int, int]:
    """(window, window inside it) for a pass over `size` sites: a whole number of the second makes the first."""
    least = -(-size // (WINDOWS * INNERMOST))
    if least == 1:
        return min(size, INNERMOST), min(size, INNERMOST)
    # As many inner windows as leave the least padding; where it is none, rows need not be gathered.
    inside = min(range(least, 2 * least), key=lambda count: -size % (WINDOWS * count))
    width = -(-size // (WINDOWS * inside))
    return inside * width, width


@dataclass(frozen=True)
class DenseGaussian(Posterior):
    """Site i of every group acts on latent i."""

    def refresh(self, prior: KernelPrior, groups: tuple[tuple[Any, jax.Array], ...]) -> Dense:
        k, (nu, tau) = prior.covariance, jnp.sum(jnp.stack([sites for _, sites in groups]), axis=0).T
        lower, stage = factorise(k, nu, tau, with_response=False)
        # (K⁻¹ + S₁) mean = ν − S₂ mean with S₁, S₂ the positive and the negative part of S: no difference of two sums.
        pull = nu + jnp.maximum(-tau, 0.0) * stage.mean
        mean, alpha = jax.lax.cond(
            jnp.any(tau < 0), lambda: first_mean(k, lower, tau, pull), lambda: (stage.mean, stage.weights)
        )
        signs = signs_of(tau)
        variance = jnp.diagonal(k) - jnp.sum(signs * stage.factor**2, axis=1)
        log_partition = 0.5 * nu @ mean - jnp.sum(jnp.log(jnp.diagonal(lower))) - stage.log_det
        proper = jnp.isfinite(log_partition) & jnp.all(jnp.isfinite(mean)) & jnp.all(variance > 0)
        blocks = cut(stage.factor, window_sizes(k.shape[0])[0])
        return Dense(mean, variance, blocks, signs, alpha, log_partition, proper)

    def marginals(self, prior: Any, q: Dense, scope: Any, index: jax.Array) -> jax.Array:
        precision = 1.0 / q.variance[index]
        return jnp.stack([q.mean[index] * precision, precision], axis=-1)

    def window_sizes(self, size: int) -> tuple[int, ...]:
        return window_sizes(size)

    def begin(self, prior: KernelPrior, q: Dense, scope: Any, order: Any, width: int) -> Pass:
        # What is not filled is not read. Made of a number of q, the zeros are not kept in memory through a loop.
        columns, signs = jnp.full((order.size, order.size), 0.0 * q.mean[0]), jnp.zeros(order.size)
        in_order = isinstance(order, np.ndarray) and np.array_equal(order, np.arange(q.mean.size))
        if in_order and width == q.factor[0].shape[0]:
            return Pass(None, q.mean, q.factor, q.signs, columns, signs)
        factor = cut(jnp.concatenate(q.factor)[order], width)
        return Pass(jnp.asarray(order), q.mean[order], factor, q.signs, columns, signs)

    def open(self, prior: KernelPrior, passed: Any, scope: Any, number: jax.Array, index: jax.Array) -> Window:
        if isinstance(passed, Window):
            return windows.open_inside(passed, number * index.size, index.size)
        size, width, order = passed.mean.size, index.size, passed.order

        def reach(first: int) -> Callable[[], jax.Array]:
            """Rows from window `first` on, against that window; rows before it are not needed any more."""
            start = first * width
            stop = start + width

            def rows() -> jax.Array:
                if order is None:
                    known = prior.covariance[start:, start:stop]
                else:
                    known = prior.covariance[order[start:, None], order[start:stop]]
                own = (passed.factor[first] * passed.signs).T
                known = known - jnp.concatenate([block @ own for block in passed.factor[first:]])
                if first:
                    done = passed.columns[start:stop, :start] * passed.column_signs[:start]
                    known = known - passed.columns[start:, :start] @ done.T
                return jnp.concatenate([jnp.zeros((start, width)), known])

            return rows

        found = jax.lax.switch(number, [reach(first) for first in range(size // width)])
        covariance = jax.lax.dynamic_slice(found, (number * width, 0), (width, width))
        mean = jax.lax.dynamic_slice(passed.mean, (number * width,), (width,))
        return windows.opened(mean, covariance, found)

    def close(self, passed: Any, number: jax.Array, window: Window) -> Any:
        if isinstance(passed, Window):
            return windows.close_inside(passed, number * window.mean.size, window)
        width = window.mean.size
        spread = windows.spread(window)
        scaled = spread * jnp.sqrt(jnp.abs(window.gains))
        return passed._replace(
            mean=passed.mean + spread @ window.moves,
            columns=jax.lax.dynamic_update_slice(passed.columns, scaled, (0, number * width)),
            column_signs=jax.lax.dynamic_update_slice(passed.column_signs, jnp.sign(window.gains), (number * width,)),
        )

    def local(self, window: Window, scope: Any, place: jax.Array) -> jax.Array:
        return windows.local(window, place)

    def absorb(self, window: Window, scope: Any, place: jax.Array, change: jax.Array) -> Window:
        return windows.absorb(window, place, change)

    def is_proper(self, q: Any) -> jax.Array:
        return jnp.ones((), bool) if isinstance(q, KernelPrior) else q.proper

    def log_partition(self, q: Any) -> jax.Array:
        return jnp.zeros(()) if isinstance(q, KernelPrior) else q.log_partition

    def views(self, prior: KernelPrior, q: Dense) -> dict[str, Callable[[], jax.Array]]:
        return {
            "mean": lambda: q.mean,
            "variance": lambda: q.variance,
            "covariance": lambda: covariance(prior, q),
            "weights": lambda: q.weights,
        }

    def sample(self, key: jax.Array, prior: KernelPrior, q: Dense, draws: int) -> jax.Array:
        """Through the eigenvectors of the covariance, which may be singular to rounding."""
        values, vectors = jnp.linalg.eigh(covariance(prior, q))
        noise = jax.random.normal(key, (draws, q.mean.size), dtype=float)
        return q.mean + (noise * jnp.sqrt(jnp.maximum(values, 0.0))) @ vectors.T

    def log_density(self, prior: KernelPrior, q: Dense, x: Any) -> jax.Array:
        lower = cholesky(covariance(prior, q))
        scaled = solve_triangular(lower, jnp.atleast_2d(x - q.mean).T)
        constant = jnp.sum(jnp.log(jnp.diagonal(lower))) + 0.5 * q.mean.size * jnp.log(2 * jnp.pi)
        return jnp.reshape(-0.5 * jnp.sum(scaled**2, axis=0) - constant, jnp.shape(x)[:-1])


def covariance(prior: KernelPrior, q: Dense) -> jax.Array:
    """K − (F · signs) Fᵀ."""
    factor = jnp.concatenate(q.factor)
    return prior.covariance - (factor * q.signs) @ factor.T


def cut(rows: jax.Array, width: int) -> tuple[jax.Array, ...]:
    """Blocks of `width` rows; the last one may have fewer."""
    return tuple(rows[start : start + width] for start in range(0, rows.shape[0], width))


class Stage(NamedTuple):
    """q with some of its sites: factor F, mean, ½ log |B₂| of those taken in, precisions `left` of those to come.

    weights: those of the first stage, mean = K weights, for a q without negative sites.
    response: G with F = K G, where it is asked for; (K + S⁻¹)⁻¹ = (G · signs) Gᵀ.
    """

    factor: jax.Array
    mean: jax.Array
    weights: jax.Array
    log_det: jax.Array
    left: jax.Array
    response: jax.Array | None


def signs_of(tau: jax.Array) -> jax.Array:
    """The sign with which the columns of each site count."""
    return jnp.where(tau < 0, -1.0, 1.0)


def first_mean(k: jax.Array, lower: jax.Array, tau: jax.Array, pull: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(Σ₁ pull, weights) for the positive sites S₁: K weights, with weights = pull − S₁^½ B⁻¹ S₁^½ K pull."""
    root = jnp.sqrt(jnp.maximum(tau, 0.0))
    weights = pull - root * solve_triangular(lower, solve_triangular(lower, root * (k @ pull)), transposed=True)
    return k @ weights, weights


def factorise(k: jax.Array, nu: jax.Array, tau: jax.Array, *, with_response: bool) -> tuple[jax.Array, Stage]:
    """The factor L of the positive sites, and the stage with all sites."""
    size = k.shape[0]
    root = jnp.sqrt(jnp.maximum(tau, 0.0))
    # K is symmetric: read by columns, as LAPACK wants it, its transpose needs no copy. The same holds for the factor.
    lower = cholesky(plus_identity(root[:, None] * k * root).T)
    response = divide_right(jnp.diag(root), lower) if with_response else None
    mean, weights = first_mean(k, lower, tau, nu)
    factor = solve_triangular(lower, (k * root).T).T
    first = Stage(factor, mean, weights, jnp.zeros(()), tau, response)
    most = min(max(32, size // 8), size)
    return lower, jax.lax.while_loop(
        lambda stage: jnp.any(stage.left < 0), lambda stage: with_negative(k, tau, stage, most), first
    )


def plus_identity(matrix: jax.Array) -> jax.Array:
    """matrix + I, as a choice of entries: an identity matrix of its own would be kept in memory through a loop."""
    diagonal = jnp.arange(matrix.shape[0])[:, None] == jnp.arange(matrix.shape[0])
    return jnp.where(diagonal, matrix + 1.0, matrix)


def with_negative(k: jax.Array, tau: jax.Array, stage: Stage, most: int) -> Stage:
    """The stage with its `most` most negative sites taken in: Σ + Σ W B₂⁻¹ W Σ with B₂ = I − W Σ W = L₂ L₂ᵀ."""
    index = jnp.argsort(stage.left)[:most]
    root = jnp.sqrt(jnp.maximum(-stage.left[index], 0.0))
    # The factor's columns of sites not yet taken in are zero, whatever their sign.
    known = (stage.factor[index] * signs_of(tau)).T
    rows = (k[:, index] - stage.factor @ known) * root
    lower = cholesky(plus_identity(-root[:, None] * rows[index]))
    place = jnp.where(root > 0, index, k.shape[0])
    added = divide_right(rows, lower)
    response = stage.response
    if response is not None:
        own = jnp.zeros_like(rows).at[index, jnp.arange(most)].set(1.0) - response @ known
        response = response.at[:, place].set(divide_right(own * root, lower), mode="drop")
    # A failure ends it: what would follow is not a number either.
    failed = ~jnp.all(jnp.isfinite(jnp.diagonal(lower)))
    return Stage(
        factor=stage.factor.at[:, place].set(added, mode="drop"),
        mean=stage.mean + added @ solve_triangular(lower, root * stage.mean[index]),
        weights=stage.weights,
        log_det=stage.log_det + jnp.sum(jnp.log(jnp.diagonal(lower))),
        left=jnp.where(failed, 0.0, stage.left.at[place].set(0.0, mode="drop")),
        response=response,
    )


@jax.jit
def response(prior: KernelPrior, sites: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(G, signs) with (K + S⁻¹)⁻¹ = (G · signs) Gᵀ for weighted sites: what prediction and evidence gradients need.

    A latent with prior variance k and covariances c with the others has the posterior variance k − Σ signs (c G)².
    """
    nu, tau = sites.T
    _, stage = factorise(prior.covariance, nu, tau, with_response=True)
    assert stage.response is not None
    return stage.response, signs_of(tau)
