"""Gaussian process regression with Gaussian, Student-t or Poisson observations."""

from collections.abc import Sequence

import numpy as np
from sklearn.base import RegressorMixin

from cavity._core import checks
from cavity.estimators._base import check_size, checked_sample_weight, loo_log_predictive, refuse_text
from cavity.estimators._types import FittedModel, KernelChoice, MethodChoice, Rows, Seed, Vector, Verbose
from cavity.estimators.gaussian_process import GaussianProcess
from cavity.factors import Factor, Gaussian, Poisson, StudentT
from cavity.models._latent_gaussian.rows import unique_rows

LIKELIHOODS = ("gaussian", "student_t", "poisson")
#: where a search for the noise starts, in standard deviations of y.
FIRST_NOISE = 0.3


class GPRegressor(RegressorMixin, GaussianProcess):
    """y = f(x) + noise with f a Gaussian process; for counts y ~ Poisson(e^f(x)).

    Args:
        kernel: a kernel of `cavity.kernels` or of scikit-learn, or "rbf", "matern", "linear", "poly". None: a variance
            times the Gaussian kernel, its length scale started at the median distance of two rows.
        likelihood: "gaussian"; "student_t", which lets single observations be far off; "poisson" for counts.
        noise: standard deviation of Gaussian noise, or scale of Student's t, in the units of y; "auto" learns it.
        df: degrees of freedom of Student's t; "auto" learns them.
        normalize_y: whether mean and scale of y are taken out before the process sees it, so that a kernel of
            variance 1 suits. Not for counts, whose constant level is a part of the kernel made for None.
        approximation: None fits the process exactly, O(n³). "inducing": values at `rank` points, found by k-means,
            carry it, O(n · rank²); with `method=PowerEP(p)`, p < 1, it comes nearer to the variational form.
            "learned": the search moves these points too. "features": `rank` random features. "auto": exact up to 5000
            different rows, "inducing" above, with a warning.
        rank: how many points (None: 500) or features (1000).
        method: `cavity.EP(...)` or another method; None is the library's default.
        optimize: whether the kernel's free parameters are set where the evidence is largest.
        restarts: how many more searches to start, at random places within the kernel's bounds.
        random_state: seed of restarts, and of `sample_posterior` where that is given none.
        verbose: 1 prints a line for every point of the search and every sweep of the last run, and at the end how many
            seconds went into compiling and running; a function is called with these lines instead.
        max_seconds: of every model fitted: the search ends with the best point so far, the run after its sweep with
            the status `time_budget`; a first sweep is always made.

    Attributes:
        log_evidence_: log p(y | inputs), in the units of y.
        loo_log_predictive_: for every row of the training data log p(its y | the other rows).
        status_: how the fit ended; `status_.sentence` says it in words.
        kernel_: the kernel with the values learned.
        approximation_: what carries the process: "exact", "exact, 3 features", "500 inducing inputs", …
        likelihood_: the likelihood in the units of y with the values learned, such as `likelihood_.df`.
        noise_: its noise, as given or learned; None for counts.
        n_sweeps_: sweeps of the last run of EP.
        models_: the fitted model, in a list.
        n_features_in_: columns of X.
        feature_names_in_: their names, where X had any.

    Examples:
        Far from the data the variance is that of the prior, 1, and of the noise:

        >>> import cavity as cv
        >>> import numpy as np
        >>> X = np.linspace(0.0, 3.0, 7)[:, None]
        >>> process = cv.GPRegressor(cv.kernels.RBF(1.0), noise=0.1, normalize_y=False, optimize=False)
        >>> mean, std = process.fit(X, np.sin(X[:, 0])).predict([[1.5], [20.0]], return_std=True)
        >>> print(mean[0].round(2), std.round(3))
        1.0 [0.126 1.005]
    """

    def __init__(
        self,
        kernel: KernelChoice = None,
        likelihood: str = "gaussian",
        noise: float | str = "auto",
        df: float | str = 4.0,
        normalize_y: bool = True,
        approximation: str | None = "auto",
        rank: int | None = None,
        method: MethodChoice = None,
        optimize: bool = True,
        restarts: int = 0,
        random_state: Seed = None,
        verbose: Verbose = 0,
        max_seconds: float | None = None,
    ) -> None:
        super().__init__(kernel, approximation, rank, method, optimize, restarts, random_state, verbose, max_seconds)
        self.likelihood = likelihood
        self.noise = noise
        self.df = df
        self.normalize_y = normalize_y

    def fit(self, X: Rows, y: Vector, sample_weight: Vector | None = None) -> "GPRegressor":
        """Fit to rows with their observations.

        Args:
            X: (n, d) inputs.
            y: (n,) numbers; whole numbers from 0 for counts.
            sample_weight: (n,), how often each row counts; fractions raise its likelihood to that power.

        Returns:
            The estimator itself, fitted. A model that did not converge gives a `ConvergenceWarning`.

        Raises:
            ValueError: an argument cannot be used, or the posterior is improper.
        """
        refuse_text(y)
        X, y = self._checked_rows(X, y, y_numeric=True)
        check_size("y", y)
        unique = unique_rows(X, np.asarray(y, np.float64), checked_sample_weight(sample_weight, X), self.kernel)
        offset, scale = self._location(unique.y, unique.sample_weight)
        factor, free = self._likelihood(unique.y, scale)
        unique = unique._replace(y=(unique.y - offset) / scale)
        bias = 0.0
        if isinstance(factor, Poisson):
            bias = 1.0 + np.log(max(np.average(unique.y, weights=unique.sample_weight), 1e-3)) ** 2
        model = self._fit_process(unique, factor, free, self._seed(), bias=bias)
        self._warn([model], [""])
        self._offset, self._scale, self._total_weight = offset, scale, float(unique.sample_weight.sum())
        self._summarise([model])
        scaled = (np.asarray(y, np.float64) - offset) / scale
        self.loo_log_predictive_ = loo_log_predictive(model, unique, X, scaled) - np.log(scale)
        return self

    def _location(self, y: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
        """Mean and standard deviation that are taken out of y."""
        if checks.choice("likelihood", self.likelihood, LIKELIHOODS) == "poisson" or not self.normalize_y:
            return 0.0, 1.0
        mean = float(np.average(y, weights=weights))
        # Divided by the largest before they are squared: small numbers must not vanish.
        largest = float(np.abs(y - mean).max()) or 1.0
        spread = largest * float(np.sqrt(np.average(((y - mean) / largest) ** 2, weights=weights)))
        # Equal numbers differ from their mean by rounding alone.
        return mean, spread if spread > 1e-12 * abs(mean) else 1.0

    def _likelihood(self, y: np.ndarray, unit: float) -> tuple[Factor, tuple[str, ...]]:
        """(factor for y divided by `unit`, its parameters that are to be learned)."""
        if self.likelihood == "poisson":
            wrong = (y < 0) | (y != np.round(y))
            if wrong.any():
                raise ValueError(f"y must hold counts 0, 1, 2, … for a Poisson; found {y[wrong][0]}.")
            return Poisson(), ()
        learned = isinstance(self.noise, str)
        if learned:
            checks.choice("noise", self.noise, ("auto",))
        noise = FIRST_NOISE if learned else checks.positive("noise", self.noise) / unit
        if self.likelihood == "gaussian":
            return Gaussian(noise**2), ("variance",) if learned else ()
        free = ("scale",) if learned else ()
        if isinstance(self.df, str):
            checks.choice("df", self.df, ("auto",))
            return StudentT(noise, 4.0), (*free, "df")
        return StudentT(noise, checks.positive("df", self.df)), free

    def _summarise(self, models: Sequence[FittedModel]) -> None:
        super()._summarise(models)
        self.log_evidence_ -= self._total_weight * float(np.log(self._scale))
        fitted, self.noise_ = self.likelihood_, None
        if isinstance(fitted, Gaussian):
            self.likelihood_ = Gaussian(fitted.variance * self._scale**2)
            self.noise_ = float(np.sqrt(fitted.variance)) * self._scale
        elif isinstance(fitted, StudentT):
            self.noise_ = float(fitted.scale) * self._scale
            self.likelihood_ = StudentT(self.noise_, fitted.df)

    def predict(self, X: Rows, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Mean of a new observation at every row of X; for counts the expected count.

        Args:
            X: (n, d) inputs.
            return_std: whether to give its standard deviation too, noise included.

        Returns:
            (n,) means; with `return_std` a pair of means and standard deviations.

        Raises:
            NotFittedError: the estimator has not been fitted.
            ValueError: X cannot be used, or has other columns than in `fit`.
        """
        (found,) = self._predictions(X)
        mean = found["mean"] * self._scale + self._offset
        return (mean, np.sqrt(found["variance"]) * self._scale) if return_std else mean

    def sample_posterior(self, X: Rows, n_samples: int = 1, random_state: Seed = None) -> np.ndarray:
        """Draws of the function without noise at the rows of X, jointly over the rows; for counts of the log rate.

        Args:
            X: (n, d) inputs.
            n_samples: how many draws.
            random_state: seed of the draws; the estimator's own `random_state` when None.

        Returns:
            (n, n_samples), in the units of y.

        Raises:
            NotFittedError: the estimator has not been fitted.
            ValueError: X cannot be used, or `n_samples` is no whole number from 1.
        """
        return super().sample_posterior(X, n_samples, random_state) * self._scale + self._offset
