"""From rows and what is observed of them to a problem: the one place where latent Gaussian problems are assembled.

Rows are padded to a bucket, so that data sets of similar size share one compiled program. Padding has multiplicity 0:
it is in no posterior, cavity or evidence. Three forms of the prior are known: over the latents of the rows
(`kernel_problem`), over the weights of a linear model (`LinearRows.problem`), and over the weights of a basis that
carries a process (`basis_problem`).
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import is_far, is_traced
from cavity._core.system import check_room, is_accelerator
from cavity.factors.base import Factor
from cavity.factors.wrappers import GaussianConvolved, Tempered
from cavity.families.gaussian import Gaussian
from cavity.inference.problem import Problem, SiteGroup, as_mask
from cavity.inference.schedule import Blocks, InOrder, Parallel, Schedule
from cavity.kernels import Basis
from cavity.models.latent_gaussian.hyperparameters import as_numbers
from cavity.models.latent_gaussian.rows import bucket, feature_bucket, padded, padded_with_zeros, split_weights
from cavity.moments.base import ClosedForm, Moments
from cavity.numerics.blocked import cholesky, identity
from cavity.posteriors.dense_gaussian import DenseGaussian, KernelPrior, window_sizes
from cavity.posteriors.weight_gaussian import WeightGaussian, WeightPrior

#: arrays of n × n numbers that a run of the kernel form holds at a time
SQUARES = 6.6
#: from so many latents on an accelerator visits them in blocks, and how many blocks of a linear model
MANY_LATENTS, BLOCKS = 512, 16
#: from so many rows, and so many per weight, a linear model is visited in parallel
MANY, MANY_PER_WEIGHT = 2000, 100
CLOSED_FORM = ClosedForm()


@dataclasses.dataclass(frozen=True)
class PaddedRows:
    """n rows with what is observed of their latents; X and data are padded by repetitions of the first row.

    Attributes:
        X: (size, columns), the inputs.
        data: what the sites hold: the observations, with the exponents where there are any.
        factor: the likelihood of a site, raised to the exponents where there are any.
        multiplicity: (n,), how many equal factors each row stands for.
    """

    X: np.ndarray
    data: Any
    factor: Factor
    multiplicity: np.ndarray

    @classmethod
    def of(cls, X: Any, y: Any, factor: Factor, sample_weight: Any = None) -> "PaddedRows":
        """The rows of X with their observations.

        Args:
            X: (n, columns), the inputs.
            y: what the likelihood takes, one entry per row.
            factor: the likelihood.
            sample_weight: (n,), how often each row counts; fractions raise its likelihood to that power. 1 by default.
        """
        X = np.asarray(X, float)
        size = bucket(len(X))
        data, factor, multiplicity = weighted_sites(y, factor, sample_weight, len(X))
        return cls(padded(X, size), padded(data, size), factor, multiplicity)

    @property
    def count(self) -> int:
        """The rows before padding."""
        return len(self.multiplicity)

    def taking_part(self, some: Any) -> np.ndarray:
        """Multiplicities of all sites: 0 for padding and for rows that are not among `some`."""
        return np.where(some, padded_with_zeros(self.multiplicity, len(self.X)), 0.0)


def weighted_sites(y: Any, factor: Factor, sample_weight: Any, n: int) -> tuple[Any, Factor, np.ndarray]:
    """Data, factor and multiplicity of sites that count `sample_weight` times."""
    multiplicity, exponents = (np.ones(n), None) if sample_weight is None else split_weights(sample_weight)
    return (y, factor, multiplicity) if exponents is None else ((y, exponents), Tempered(factor), multiplicity)


def site_group(factor: Factor, data: Any, multiplicity: Any, moments: Moments = CLOSED_FORM) -> SiteGroup:
    """Sites of one Gaussian latent each."""
    return SiteGroup(factor, data, Gaussian(), moments, as_mask(multiplicity))


def kernel_problem(rows: PaddedRows, kernel: Any, factor: Factor) -> Problem:
    """f ~ N(0, K) over the rows.

    A latent of no prior variance is 0 whatever is observed: its row is replaced like padding by an independent latent,
    and what is observed of it is a constant of the evidence.
    """
    prior, multiplicity = kernel_prior(rows, kernel)
    group = site_group(factor, rows.data, multiplicity)
    return Problem(prior, (group,), DenseGaussian(), schedule=kernel_schedule(len(rows.X)))


def kernel_prior(rows: PaddedRows, kernel: Any) -> tuple[KernelPrior, np.ndarray]:
    """K of padded rows, and the multiplicities of those that take part."""
    k, some = with_independent(jnp.asarray(kernel(rows.X)), np.arange(len(rows.X)) < rows.count)
    return KernelPrior(k), rows.taking_part(some)


@jax.jit
def with_independent(k: jax.Array, real: jax.Array) -> tuple[jax.Array, jax.Array]:
    """K with independent latents of variance 1 for padding and for those of no variance, and which are neither."""
    some = real & (jnp.diagonal(k) > 0)
    return jnp.where(some[:, None] & some, k, jnp.eye(some.size)), some


def kernel_schedule(n: int) -> Schedule:
    """One site after another; on an accelerator sixteen blocks or so, where steps that small would cost most.

    The sites of a block are visited together, from the same q; they are few enough that it takes hardly more sweeps.
    """
    width = window_sizes(n)[0]
    return Blocks(width if width % 2 else width // 2) if n >= MANY_LATENTS and is_accelerator() else InOrder()


def check_kernel_room(n: int) -> None:
    """Refuse a kernel matrix that leaves no room for the run."""
    check_room("The kernel form", n, lambda n: 8.0 * SQUARES * n**2, "Beyond, take inducing points or random features.")


def basis_problem(rows: PaddedRows, basis: Basis, kernel: Any, factor: Factor) -> Problem:
    """f = aᵀv + e over the rows, v ~ N(0, I) and e ~ N(0, r) independent.

    A latent of no variance is 0 whatever is observed: it has multiplicity 0 here.
    """
    spanned = basis(kernel, rows.X)
    some = np.asarray(jnp.any(spanned.rows != 0, axis=1))
    group = site_group(GaussianConvolved(factor), (rows.data, spanned.residual), rows.taking_part(some))
    return weight_problem(jnp.where(some[:, None], spanned.rows, 1.0), (group,))


def weight_problem(rows: jax.Array, groups: tuple[SiteGroup, ...]) -> Problem:
    """Sites along the rows under weights v ~ N(0, I)."""
    width = rows.shape[1]
    prior = WeightPrior(rows, jnp.zeros(width), jnp.eye(width))
    return Problem(prior, groups, WeightGaussian(), schedule=weight_schedule(*rows.shape))


def weight_schedule(n: int, d: int) -> Schedule:
    """The faster kind for a linear model: parallel where every site is a small part of the whole, else sequential.

    A parallel sweep costs a sixth to a tenth of a sequential one, but where a site weighs much it may not converge. On
    an accelerator blocks take the place of single sites, as in the kernel form.
    """
    if n >= max(MANY, MANY_PER_WEIGHT * d):
        return Parallel()
    return Blocks(-(-n // BLOCKS)) if n >= MANY_LATENTS and is_accelerator() else InOrder()


@dataclasses.dataclass(frozen=True)
class LinearRows(PaddedRows):
    """Rows of a linear model, without those that are all zero: wᵀ0 is 0 whatever is observed.

    Features are padded too, by columns of zeros: their weights keep their prior, and nothing else sees them.

    Attributes:
        d: the features before that.
        left_out: (n,), what the rows that are all zero would have as multiplicity.
    """

    d: int
    left_out: np.ndarray

    @classmethod
    def of(cls, X: Any, y: Any, factor: Factor, sample_weight: Any = None, size: int | None = None) -> "LinearRows":
        """As for `PaddedRows`; size: the number of rows after padding, None for a bucket."""
        X = np.asarray(X, float)
        (n, d), size = X.shape, bucket(len(X)) if size is None else size
        empty = ~X.any(axis=1)
        filled = np.zeros((size, feature_bucket(d)))
        filled[:n, :d] = X
        if empty.any():
            filled[:n][empty, :d] = X[np.argmin(empty)] if not empty.all() else 1.0
        filled[n:] = filled[0]
        data, factor, multiplicity = weighted_sites(y, factor, sample_weight, n)
        kept, left_out = np.where(empty, 0.0, multiplicity), np.where(empty, multiplicity, 0.0)
        return cls(filled, padded(data, size), factor, kept, d, left_out)

    def group(self, factor: Factor | None = None) -> SiteGroup:
        """The sites of these rows."""
        factor = as_numbers(self.factor) if factor is None else factor
        return site_group(factor, self.data, padded_with_zeros(self.multiplicity, len(self.X)))

    def problem(self, shift: np.ndarray, precision: np.ndarray, factor: Factor | None = None) -> Problem:
        """These rows under a Gaussian prior of the weights, given by its natural parameters."""
        wide = np.eye(self.X.shape[1])
        wide[: self.d, : self.d] = precision
        prior = WeightPrior(jnp.asarray(self.X), jnp.asarray(padded_with_zeros(shift, len(wide))), jnp.asarray(wide))
        schedule = weight_schedule(len(self.X), self.d)
        return Problem(prior, (self.group(factor),), WeightGaussian(), schedule=schedule)


#: a kernel matrix may miss positive definiteness by this much of its largest entry, times n: rounding
ROUNDING = 1e-12


def check_finite_rows(name: str, rows: Any) -> None:
    """Refuse a kernel that overflows or has no Cholesky factor at the inducing inputs."""
    if not (jnp if is_far(rows) else np).isfinite(rows).all():
        raise ValueError(f"{name} must be finite and positive semi-definite at the points of the basis; it is not.")


def covariance_matrix(matrix: Any, n: int, name: str = "kernel_matrix") -> Any:
    """A symmetric positive semi-definite matrix, up to rounding."""
    k = checks.array(name, matrix, (2,))
    if k.shape != (n, n):
        raise ValueError(f"{name} must have shape ({n}, {n}), one row per observation; found {k.shape}.")
    if not is_traced(k):
        check_covariance(name, k)
    return k


def check_covariance(name: str, k: Any) -> None:
    """Refuse a matrix that is not finite, not symmetric, has a latent of no variance, or is indefinite."""
    if not (jnp if is_far(k) else np).isfinite(k).all():
        raise ValueError(f"{name} must be finite: with these inputs and parameters the kernel overflows.")
    check_symmetric(name, k)
    variances = np.asarray(k.diagonal())
    if (flat := variances <= 0).any():
        where = f"found {variances[flat][0]:g} at {int(flat.argmax())}"
        raise ValueError(f"{name} must have a positive diagonal, a latent of no variance observes nothing; {where}.")
    if not has_cholesky_factor(k, ROUNDING * len(k) * float(abs(k).max())):
        raise ValueError(f"{name} must be positive semi-definite; its smallest eigenvalue is negative beyond rounding.")


def check_symmetric(name: str, k: Any) -> None:
    """Refuse a matrix that differs from its transpose beyond rounding."""
    gap = float(abs(k - k.T).max())
    if gap > 1e-10 * float(abs(k).max()):
        raise ValueError(f"{name} must be symmetric; entries differ from their mirror images by up to {gap:.3g}.")


def has_cholesky_factor(k: Any, moved_by: float = 0.0) -> bool:
    """Whether the matrix is positive definite, its diagonal moved by what rounding may have done to it."""
    if is_far(k):
        lower = cholesky(jnp.where(identity(len(k)), k + moved_by, k))
        return bool(jnp.isfinite(lower[-1, -1]))
    moved = k.copy()
    moved[np.diag_indices_from(moved)] += moved_by
    try:
        np.linalg.cholesky(moved)
    except np.linalg.LinAlgError:
        return False
    return True


def weight_precision(prior_variance: Any, d: int) -> jax.Array:
    """The inverse prior covariance of the weights."""
    if np.ndim(prior_variance) == 2:
        given = checks.array("prior_variance", prior_variance, (2,))
        if given.shape != (d, d):
            raise ValueError(f"prior_variance must have shape ({d}, {d}); found {given.shape}.")
        if not is_traced(given):
            check_symmetric("prior_variance", given)
            if not has_cholesky_factor(given):
                raise ValueError("prior_variance must be positive definite; found a matrix that is not.")
        return jnp.linalg.inv(jnp.asarray(given))
    given = checks.array("prior_variance", np.atleast_1d(prior_variance), (1,))
    if given.shape not in {(1,), (d,)}:
        raise ValueError(f"prior_variance must be a number or one per feature, {d}; found {given.shape}.")
    if not is_traced(given) and not (np.asarray(given) > 0).all():
        raise ValueError(f"prior_variance must be positive; found {np.asarray(given).min()}.")
    return jnp.diag(jnp.broadcast_to(1.0 / given, (d,)))
