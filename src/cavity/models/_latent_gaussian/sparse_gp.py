"""A Gaussian process carried by a basis, f = a(x)ᵀv + e, held as a Gaussian over the basis's weights v.

With q(v) = N(m, V), the sites are about g = aᵀv and the factors know the variance r of e. With c copies of a site, at a
fixed point of EP

    ∂ log Z / ∂aᵢ  =  cᵢ E_q[(νᵢ − τᵢ aᵢᵀv) v]  =  cᵢ (νᵢ m − τᵢ (V aᵢ + (aᵢᵀm) m)),
    ∂ log Z / ∂rᵢ  =  cᵢ (d₁² + d₂) / (2 · power),    for r widens the cavity that the factor sees.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, ClassVar, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64, is_far
from cavity._core.tiers import tiered_jit
from cavity._numerics.blocked import sample_gaussian
from cavity.factors.base import Factor
from cavity.factors.wrappers import GaussianConvolved
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.solution import Solution
from cavity.kernels import Basis, InducingInputs, Kernel, RandomFeatures, Spanned
from cavity.kernels.exact_features import ExactFeatures
from cavity.models._latent_gaussian.evidence_search import SearchOptions, SearchSpace, check_free, fit_evidence, inner
from cavity.models._latent_gaussian.fit_result import FitResult, Latents, result_fields, row_chunks
from cavity.models._latent_gaussian.linear_model import weight_problem
from cavity.models._latent_gaussian.lost_digits import warn_of_lost_digits
from cavity.models._latent_gaussian.rows import bucket, padded, padded_group, weighted_sites
from cavity.posteriors.weight_gaussian import WeightPrior

#: bases that may be named in a file
BASES: dict[str, type[Basis]] = {cls.__name__: cls for cls in (InducingInputs, RandomFeatures, ExactFeatures)}
#: rows predicted at a time
CHUNK = 8192


def basis_problem(group: SiteGroup, spanned: Spanned, size: int, varies: np.ndarray | None = None) -> Problem:
    """f = aᵀv + e over the rows, v ~ N(0, I) and e ~ N(0, r) independent, padded to `size`.

    A latent of no variance is 0 whatever is observed: it has multiplicity 0 here.

    Args:
        group: the sites of the rows.
        spanned: a and r of the rows, or of padded ones.
        size: the number of sites.
        varies: which of the padded rows have any variance; all of them if None.
    """
    along, residual = padded(spanned, size)
    width = along.shape[1]
    if varies is not None:
        along, varies = jnp.where(varies[:, None], along, 1.0), varies[: group.size]
    group = padded_group(group, size, varies)
    group = dataclasses.replace(group, factor=GaussianConvolved(group.factor), data=(group.data, residual))
    return weight_problem(group, WeightPrior(along, jnp.zeros(width), jnp.eye(width)), size)


def check_finite_rows(name: str, rows: Any) -> None:
    """Refuse a kernel that overflows or has no Cholesky factor at the inducing inputs."""
    if not (jnp if is_far(rows) else np).isfinite(rows).all():
        raise ValueError(f"{name} must be finite and positive semi-definite at the points of the basis; it is not.")


@tiered_jit
def spanned_latents(
    rows: jax.Array, residual: jax.Array, mean: jax.Array, covariance: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Mean aᵀm and variance aᵀV a + r of latents aᵀv + e."""
    return rows @ mean, jnp.maximum(jnp.sum((rows @ covariance) * rows, axis=1), 0.0) + residual


def basis_latents(kernel: Any, basis: Basis, mean: Any, covariance: Any, X: Any) -> Latents:
    """Mean and variance at the rows of X of a process that a basis carries; of its weights under q."""
    means, variances = [], []
    for rows in row_chunks(X, CHUNK):
        found = spanned_latents(*basis(kernel, rows), mean, covariance)
        means.append(np.asarray(found[0]))
        variances.append(np.asarray(found[1]))
    return np.concatenate(means)[: len(X)], np.concatenate(variances)[: len(X)]


@tiered_jit(static_argnames=("power",))
def spanned_gradient(problem: Problem, q: Any, sites: jax.Array, power: float = 1.0) -> Spanned:
    """What a change of the basis, a and r of every row, does to the log evidence."""
    (group,) = problem.groups
    rows, (nu, tau) = problem.prior.rows, sites.T
    spread, seen = rows @ q.covariance, rows @ q.mean
    towards = nu[:, None] * q.mean - tau[:, None] * (spread + seen[:, None] * q.mean)
    precision = 1.0 / jnp.sum(spread * rows, axis=1)
    held = group.multiplicities > 0
    local = jnp.stack([seen * precision, precision], axis=-1)
    cavity = jnp.where(held[:, None], local - power * sites, local)

    def bend(cavity: jax.Array, data: Any) -> jax.Array:
        d1, d2 = group.factor.tilted(group.family, cavity, data, power).stats
        return (d1**2 + d2) / (2.0 * power)

    bends = jax.vmap(bend)(cavity, jax.tree.map(jnp.asarray, group.data))
    return Spanned(group.multiplicities[:, None] * towards, jnp.where(held, group.multiplicities * bends, 0.0))


@dataclasses.dataclass(eq=False, kw_only=True)
class SparseGP(FitResult):
    """f = a(x)ᵀv + e observed through `factor`; q(v) = N(weight_mean, weight_covariance), e ~ N(0, r(x)) as before.

    `latent_mean` and `latent_variance` are those of g = aᵀv, which the sites see.

    Attributes:
        kernel: with the parameters learned.
        basis: what carries the process.
        weight_mean: of v under q.
        weight_covariance: of v under q.
        residual: r of the rows it was fitted to.
    """

    kernel: Any
    basis: Basis
    weight_mean: np.ndarray
    weight_covariance: np.ndarray
    residual: np.ndarray

    ARRAYS: ClassVar[tuple[str, ...]] = (*FitResult.ARRAYS, "weight_mean", "weight_covariance", "residual")

    @property
    def carrier(self) -> str:
        """What carries the process, in words."""
        if isinstance(self.basis, ExactFeatures):
            return f"exact, {self.basis.width} features"
        kind = "inducing inputs" if isinstance(self.basis, InducingInputs) else "random features"
        return f"{self.basis.width} {kind}"

    @float64
    def latent(self, X: Any) -> tuple[Any, Any]:
        """Mean and variance of the latent at the rows of X."""
        return basis_latents(self.kernel, self.basis, self.weight_mean, self.weight_covariance, X)

    @float64
    def sample(self, X: Any, key: jax.Array, draws: int) -> Any:
        """Draws of the latent at the rows of X, jointly."""
        rows = self.basis(self.kernel, X).rows
        covariance = self.basis.residual_covariance(self.kernel, X) + rows @ self.weight_covariance @ rows.T
        return sample_gaussian(key, rows @ self.weight_mean, covariance, draws)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """(header, arrays): what a file holds."""
        header, arrays = super().state()
        header |= {"kernel": self.kernel.spec(), "basis": type(self.basis).__name__}
        return header, arrays | {f"basis_{name}": value for name, value in self.basis.arrays().items()}

    @classmethod
    def from_state(
        cls, header: dict[str, Any], arrays: dict[str, np.ndarray], kernel_from_spec: Callable[[dict[str, Any]], Any]
    ) -> "SparseGP":
        """The model that was stored."""
        of_basis = {name.removeprefix("basis_"): value for name, value in arrays.items() if name.startswith("basis_")}
        kernel, basis = kernel_from_spec(header["kernel"]), BASES[header["basis"]].from_arrays(of_basis)
        return cls(kernel=kernel, basis=basis, **cls.fields_from_state(header, arrays))


@float64
def fit_sparse_gp(
    X: Any,
    y: Any,
    *,
    kernel: Kernel,
    factor: Factor,
    basis: Basis,
    learn_inputs: bool = False,
    sample_weight: Any = None,
    optimize: bool = True,
    free: tuple[str, ...] = (),
    deviations: Any = None,
    **search: Unpack[SearchOptions],
) -> SparseGP:
    """Fit by EP; with `optimize`, kernel parameters and the likelihood's `free` ones maximise the log evidence.

    Args:
        basis: what carries the process.
        learn_inputs: whether the search moves inducing inputs too, within the range of X.
        X, y, kernel, factor, sample_weight, optimize, free, deviations, **search: as for `fit_exact_gp`.
    """
    began = time.perf_counter()
    check_free(factor, free)
    X = np.asarray(X, float)
    if learn_inputs and not isinstance(basis, InducingInputs):
        raise TypeError(f"learn_inputs needs inducing inputs; found {type(basis).__name__}.")
    sites, inputs = weighted_sites(y, factor, sample_weight), padded(X, bucket(len(X)))
    low, span = X.min(axis=0), np.ptp(X, axis=0)
    shares = shares_of(basis.inputs, low, span) if isinstance(basis, InducingInputs) and learn_inputs else np.zeros(0)
    space = SearchSpace(kernel.theta, kernel.bounds, sites.factor, free, deviations, shares)

    def moved(others: np.ndarray) -> Basis:
        return InducingInputs(low + span * others.reshape(-1, span.size)) if learn_inputs else basis

    def build(theta: np.ndarray, factor: Factor, others: np.ndarray) -> Problem:
        spanned = moved(others)(kernel.with_theta(theta), inputs)
        varies = np.asarray(jnp.any(spanned.rows != 0, axis=1))
        return basis_problem(dataclasses.replace(sites, factor=factor), spanned, len(inputs), varies)

    def gradient(theta: np.ndarray, others: np.ndarray, solution: Solution) -> tuple[Any, Any]:
        if not theta.size and not learn_inputs:
            return theta, others
        pull = spanned_gradient(solution.problem, solution.q, solution.sites[0], power=solution.method.power)
        by_theta, by_basis = moved(others).pullback(kernel.with_theta(theta), inputs, pull)
        if learn_inputs and isinstance(by_basis, InducingInputs):
            return by_theta, np.ravel(span * np.asarray(by_basis.inputs))
        return by_theta, others

    check_finite_rows("kernel(X)", build(*space.parameters(space.start)).prior.rows)
    found = fit_evidence(space, build, gradient, optimize=optimize, **search)
    solution = found.solution
    warn_of_lost_digits(solution, learned=bool(free))
    (group,) = solution.problem.groups
    latent = solution.view("latent_mean"), solution.view("latent_variance")
    return SparseGP(
        kernel=kernel.with_theta(found.theta),
        basis=moved(found.others),
        factor=inner(found.factor),
        weight_mean=np.array(solution.q.mean),
        weight_covariance=np.array(solution.q.covariance),
        residual=np.array(group.data[1][: len(X)]),
        **result_fields(solution, sites.multiplicity, latent, found.history, time.perf_counter() - began),
    )


def shares_of(inputs: Any, low: np.ndarray, span: np.ndarray) -> np.ndarray:
    """Inducing inputs as shares of the range of X, one flat vector: the search wants numbers without a unit."""
    share = (np.asarray(inputs) - low) / np.where(span > 0, span, 1.0)
    return np.clip(share, 0.0, 1.0).ravel()
