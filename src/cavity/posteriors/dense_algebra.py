"""The algebra of q over n latents with a dense prior covariance K: its covariance from site precisions of either sign.

With site precisions τ and ν, T = diag τ, R = τ^½ where τ > 0 (`_numerics.blocked` has the blocked factors):

    B = I + R K R,    covariance = R⁻¹ (I − B⁻¹) R⁻¹,    mean = covariance · ν,    (K + T⁻¹)⁻¹ = R B⁻¹ R.

R is kept above 1e-60 of K's scale, where the covariance is that of a flat site to all digits. Sites with τ < 0 are
added in a second stage on top of the covariance Σ₁ of the others: with W = √−τ on them, L₂ L₂ᵀ = I − W Σ₁ W, they add
F₂ F₂ᵀ, F₂ = Σ₁ W L₂⁻ᵀ; when that factor does not exist, q is improper. L takes n³/3 flops, B⁻¹ from it twice that.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._numerics import blocked
from cavity._numerics.blocked import BlockedCholesky, Blocks, cholesky, divide_right, identity


class KernelPrior(NamedTuple):
    """f ~ N(0, covariance)."""

    covariance: jax.Array


class Dense(NamedTuple):
    """q: mean and marginal variances of the latents, and their covariance.

    covariance: its columns window by window, each from the window's own rows on, as a pass in order reads them.
    weak: 1 − τᵢ Σᵢᵢ, small where a site says more of its latent than all the rest. weights: α with mean = K α.
    log_partition: log ∫ prior ∏ sites, sites without their scales. divergence: KL(q ‖ prior) = ½ (α · mean + log |B| −
    Σ τᵢ Σᵢᵢ), whose terms are of its own size.
    """

    mean: jax.Array
    variance: jax.Array
    covariance: Blocks
    weak: jax.Array
    weights: jax.Array
    log_partition: jax.Array
    divergence: jax.Array
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


@jax.custom_jvp
def dense(k: jax.Array, nu: jax.Array, tau: jax.Array) -> Dense:
    """q for the sites (ν, τ). Its derivatives are those of `dense_slopes`, in reverse mode too."""
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
    half_log_det = 0.5 * jnp.sum(jnp.log1p(factor.excess)) + stage.log_det
    log_partition = 0.5 * nu @ mean - half_log_det
    divergence = 0.5 * jnp.sum(weights * mean - (1.0 - stage.weak)) + half_log_det
    proper = jnp.isfinite(log_partition) & jnp.all(jnp.isfinite(mean)) & jnp.all(variance > 0)
    return Dense(mean, variance, stage.covariance, stage.weak, weights, log_partition, divergence, proper)


@dense.defjvp
def dense_slopes(primals: tuple[jax.Array, ...], tangents: tuple[jax.Array, ...]) -> tuple[Dense, Dense]:
    """How q moves with K, ν and τ: with P = I − Σ T,

    dΣ = P dK Pᵀ − Σ dT Σ,    dmean = P dK α + Σ (dν − dT mean),    dα = dν − dT mean − T dmean,
    d ½ log |I + K T| = ½ tr (T P dK) + ½ Σ dτᵢ Σᵢᵢ.
    """
    (k, nu, tau), (dk, dnu, dtau) = primals, tangents
    q = dense(k, nu, tau)
    covariance = blocked.symmetric_from_columns(q.covariance)
    dk = 0.5 * (dk + dk.T)  # of a triangle alone nothing is known
    part = jnp.where(identity(tau.size), q.weak, -covariance * tau)
    pull = dnu - dtau * q.mean
    dmean = part @ (dk @ q.weights) + covariance @ pull
    dweights = pull - tau * dmean
    dcovariance = part @ dk @ part.T - (covariance * dtau) @ covariance
    dvariance = jnp.diagonal(dcovariance)
    dweak = -dtau * q.variance - tau * dvariance
    dhalf_log_det = 0.5 * (jnp.sum(tau[:, None] * part * dk) + jnp.sum(dtau * q.variance))
    dlog_partition = 0.5 * (dnu @ q.mean + nu @ dmean) - dhalf_log_det
    ddivergence = 0.5 * (dweights @ q.mean + q.weights @ dmean + jnp.sum(dweak)) + dhalf_log_det
    blocks = blocked.cut_columns((dcovariance,), q.covariance[0].shape[1])
    none: Any = np.zeros(np.shape(q.proper), jax.dtypes.float0)
    return q, Dense(dmean, dvariance, blocks, dweak, dweights, dlog_partition, ddivergence, none)


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
