"""What the Gaussian process estimators share: the kernel, what carries the process for many rows, and its fit."""

import warnings
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans

from cavity._core import checks
from cavity._core.precision import refuse_fork
from cavity._core.system import is_accelerator, one_blas_thread
from cavity.estimators._base import LatentGaussianEstimator, progress_lines
from cavity.estimators._types import FittedModel, KernelChoice, MethodChoice, Seed, Verbose
from cavity.estimators.sklearn_kernels import SearchedKernel, SklearnKernel, as_kernel, fix_kernel
from cavity.factors import Factor, Gaussian
from cavity.kernels import RBF, Basis, Constant, InducingInputs, Kernel, RandomFeatures
from cavity.kernels.covariances import Stationary
from cavity.kernels.exact_features import ExactFeatures
from cavity.models._latent_gaussian import ExactGP, SparseGP, fit_exact_gp, fit_sparse_gp
from cavity.models._latent_gaussian.exact_gp import has_independent_features
from cavity.models._latent_gaussian.rows import UniqueRows

APPROXIMATIONS = ("auto", "inducing", "learned", "features")
#: different rows above which "auto" takes inducing inputs. The exact process holds about four n × n matrices, 0.8
#: GB here, and needs some 4/3 n³ operations per sweep: ten seconds here, and eight times as many for twice the rows.
MANY = 5000
#: the same on an accelerator: there 20,000 rows take 0.4 seconds per sweep
MANY_THERE = 20_000
#: inducing inputs, and random features, where the user names no number
POINTS, FEATURES = 500, 1000
#: rows looked at by k-means for every inducing input
ROWS_PER_POINT = 40
#: rows looked at for a typical distance: enough for a median, and no more than half a million distances.
ROWS_LOOKED_AT = 1000
#: how far, as a factor, a search may move the length scale below and above the typical distance.
SHORTEST, LONGEST = 1 / 30, 100.0
#: standard deviations of the logarithms of length scales and of variances, in the prior of the search
LENGTH_SCALE_DEVIATION, VARIANCE_DEVIATION = 1.0, 3.0
#: rounds of k-means: the inputs need to cover the rows, not to be at an optimum
ROUNDS = 20
#: a sweep over features costs as much as one with the kernel matrix of so many times fewer rows
FEATURE_COST = 3
#: a prior variance of so many times the noise takes half the digits of a kernel matrix
SHARP = 1e5


class GaussianProcess(LatentGaussianEstimator):
    """An estimator with the parameters kernel, approximation, rank, method, optimize, restarts, …"""

    def __init__(
        self,
        kernel: KernelChoice,
        approximation: str | None,
        rank: int | None,
        method: MethodChoice,
        optimize: bool,
        restarts: int,
        random_state: Seed,
        verbose: Verbose,
        max_seconds: float | None,
    ) -> None:
        self.kernel = kernel
        self.approximation = approximation
        self.rank = rank
        self.method = method
        self.optimize = optimize
        self.restarts = restarts
        self.random_state = random_state
        self.verbose = verbose
        self.max_seconds = max_seconds

    def _fit_process(
        self,
        unique: UniqueRows,
        factor: Factor,
        free: tuple[str, ...],
        seed: int,
        name: str = "",
        amplitude: bool = True,
        bias: float = 0.0,
    ) -> ExactGP | SparseGP:
        """The process of a set of sites.

        Args:
            unique: the sites.
            factor: their likelihood.
            free: its parameters that are learned, whether or not the kernel's are.
            seed: of restarts.
            name: which model this is, for the lines of `verbose`.
            amplitude: whether the kernel for None has a variance to be learned.
            bias: variance of a constant added to the kernel for None.
        """
        refuse_fork()
        kernel = suitable_kernel(self.kernel, unique.X, amplitude=amplitude, bias=bias)
        check_restarts(self.restarts, kernel)
        # Without a random_state a fit has no random numbers: points and features are those of one seed.
        fixed_seed = 0 if self.random_state is None else seed
        who = type(self).__name__
        form = process_form(self.approximation, self.rank, kernel, unique, factor, fixed_seed, who)
        options: dict[str, Any] = {
            "kernel": kernel if self.optimize or not free else fix_kernel(kernel),
            "factor": factor,
            "sample_weight": unique.sample_weight,
            "method": self.method,
            "optimize": bool(self.optimize or free),
            "free": free,
            "deviations": search_deviations(self.kernel, kernel) if self.optimize else None,
            "restarts": self.restarts,
            "seed": seed,
            "max_seconds": self.max_seconds,
        }
        with progress_lines(self.verbose, f"{who}{name}") as lines:
            if lines is not None:
                options |= {"callback": lines.sweep, "search_callback": lines.point}
            if form.basis is None:
                return fit_exact_gp(unique.X, unique.y, **options)
            learn_inputs = form.learn_inputs and self.optimize
            return fit_sparse_gp(unique.X, unique.y, basis=form.basis, learn_inputs=learn_inputs, **options)

    def _summarise(self, models: Sequence[FittedModel]) -> None:
        super()._summarise(models)
        found = map(attrgetter("kernel"), models)
        kernels = [kernel.kernel if isinstance(kernel, SklearnKernel) else kernel for kernel in found]
        self.kernel_ = kernels[0] if len(kernels) == 1 else kernels
        self.approximation_ = ", ".join(dict.fromkeys(map(attrgetter("carrier"), models)))


def suitable_kernel(kernel: KernelChoice, X: np.ndarray, *, amplitude: bool, bias: float = 0.0) -> SearchedKernel:
    """The kernel a user means; for None the Gaussian kernel with a length scale typical of the data.

    Args:
        kernel: what `as_kernel` takes.
        X: inputs of the sites.
        amplitude: whether the kernel for None has a variance to be learned, which the step likelihood does not see.
        bias: variance of a constant added to the kernel for None.
    """
    if kernel is not None:
        return as_kernel(kernel)
    typical = typical_distance(X)
    bounds = (typical * SHORTEST, typical * LONGEST)
    found: Kernel = RBF(typical, length_scale_bounds=bounds)
    if amplitude:
        found = Constant(1.0) * found
    if bias > 0:
        found = found + Constant(bias).fix()
    return found


def search_deviations(kernel: KernelChoice, suited: SearchedKernel) -> np.ndarray | None:
    """The prior of the search for the kernel made for None; a kernel of the user's has only its bounds."""
    if kernel is not None:
        return None
    scales = [LENGTH_SCALE_DEVIATION if "length_scale" in name else VARIANCE_DEVIATION for name in suited.names]
    return np.array(scales)


def typical_distance(X: np.ndarray) -> float:
    """The median distance of two rows that differ; 1 where none do."""
    step = -(-len(X) // ROWS_LOOKED_AT)
    distances = pdist(X[::step]) if len(X) > 1 else np.zeros(0)
    distances = distances[(distances > 0) & np.isfinite(distances)]
    return float(np.median(distances)) if distances.size else 1.0


def check_restarts(restarts: int, kernel: SearchedKernel) -> None:
    """A whole number from 0; above it the search needs bounds to draw its starts from."""
    if isinstance(restarts, bool) or not isinstance(restarts, int | np.integer) or restarts < 0:
        raise ValueError(f"restarts must be a whole number from 0; found {restarts!r}.")
    if restarts and not np.isfinite(kernel.bounds).all():
        place = int(np.argmin(np.isfinite(kernel.bounds).all(axis=1)))
        low, high = np.exp(kernel.bounds[place])
        raise ValueError(
            f"restarts draws starts within the kernel's bounds, which must be finite and above 0; found ({low:g}, "
            f"{high:g}) for {kernel.names[place]}."
        )


class ProcessForm(NamedTuple):
    """basis: None for the exact process. learn_inputs: whether the search moves the inducing inputs."""

    basis: Basis | None
    learn_inputs: bool = False


def process_form(
    approximation: str | None,
    rank: int | None,
    kernel: SearchedKernel,
    unique: UniqueRows,
    factor: Factor,
    seed: int,
    who: str,
) -> ProcessForm:
    """What a user's `approximation` and `rank` mean for these sites."""
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1):
        raise ValueError(f"rank must be a whole number from 1, or None; found {rank!r}.")
    name = None if approximation is None else checks.choice("approximation", approximation, APPROXIMATIONS)
    rows = len(unique.X)
    if name in (None, "auto") and (features := exact_features(kernel, unique, factor)) is not None:
        return ProcessForm(features)
    if name is None:
        return ProcessForm(None)
    if name == "auto":
        # Kernels of scikit-learn have no gradient between two sets of points.
        most = MANY_THERE if is_accelerator() else MANY
        if rows <= most or not isinstance(kernel, Kernel):
            return ProcessForm(None)
        message = (
            f"{who}: {rows} different rows are more than {most}, so {rank or POINTS} inducing inputs stand for them"
        )
        warnings.warn(f'{message}; approximation="inducing" says so, approximation=None fits exactly.', stacklevel=6)
    if name == "features":
        key = jax.random.key(seed)
        return ProcessForm(RandomFeatures.draw(kernel, unique.X.shape[1], int(rank or FEATURES), key))  # type: ignore[arg-type]
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f'approximation="{name}" needs a kernel of cavity.kernels; found {type(kernel.kernel).__name__} of '
            "scikit-learn."
        )
    return ProcessForm(InducingInputs(spread_points(kernel, unique, int(rank or POINTS), seed)), name == "learned")


def exact_features(kernel: SearchedKernel, unique: UniqueRows, factor: Factor) -> ExactFeatures | None:
    """A kernel's own features, where they cost less than its matrix, or where only they keep the digits."""
    rows, columns = unique.X.shape
    count = kernel.feature_count(columns) if isinstance(kernel, Kernel) else None
    if not isinstance(kernel, Kernel) or count is None or has_independent_features(kernel, unique.X):
        return None
    # A latent's variance beside the noise, or where there is none beside a unit of the latent.
    noise = factor.variance if isinstance(factor, Gaussian) else getattr(factor, "scale", 1.0) ** 2
    sharp = float(np.max(kernel.diagonal(unique.X))) > SHARP * float(noise)
    return ExactFeatures.of(kernel, unique.X) if sharp or FEATURE_COST * count <= rows else None


def spread_points(kernel: Kernel, unique: UniqueRows, count: int, seed: int) -> np.ndarray:
    """The centres of k-means in the units of the kernel's length scales; all rows where there are no more."""
    X, weights = unique.X, unique.sample_weight
    different = X[np.append(True, (X[1:] != X[:-1]).any(axis=1))]
    if len(different) <= count:
        return different
    if len(X) > ROWS_PER_POINT * count:
        some = np.random.default_rng(seed).choice(len(X), ROWS_PER_POINT * count, replace=False)
        X, weights = X[some], weights[some]
    scales = next((np.asarray(part.length_scale) for part in kernel.parts if isinstance(part, Stationary)), 1.0)
    means: Any = KMeans(count, max_iter=ROUNDS, random_state=seed)  # begun once, with k-means++
    with one_blas_thread():  # it limits the threads itself, and gives back what it has found
        return means.fit(X / scales, sample_weight=weights).cluster_centers_ * scales
