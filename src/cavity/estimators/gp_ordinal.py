"""Gaussian process regression of ordered classes."""

import warnings
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri
from sklearn.base import ClassifierMixin

from cavity._core import checks
from cavity.estimators._base import label_weights, loo_log_predictive
from cavity.estimators._types import ClassWeight, FittedModel, KernelChoice, MethodChoice, Rows, Seed, Vector, Verbose
from cavity.estimators.gaussian_process import GaussianProcess
from cavity.estimators.one_versus_rest import present_classes
from cavity.factors import OrdinalProbit
from cavity.models._latent_gaussian.rows import unique_rows


class GPOrdinal(ClassifierMixin, GaussianProcess):
    """Classes with an order: the class is seen whose interval a Gaussian process plus N(0, 1) noise falls into.

    Args:
        kernel: a kernel of `cavity.kernels` or of scikit-learn, or "rbf", "matern", "linear", "poly". None: a variance
            times the Gaussian kernel, its length scale started at the median distance of two rows.
        thresholds: the bounds between the classes, increasing, one less than classes; None learns them.
        order: the labels from the lowest to the highest; None: sorted, of which text is warned.
        approximation: None fits the process exactly, O(n³). "inducing": values at `rank` points, found by k-means,
            carry it, O(n · rank²); with `method=PowerEP(p)`, p < 1, it comes nearer to the variational form.
            "learned": the search moves these points too. "features": `rank` random features. "auto": exact up to 5000
            different rows, "inducing" above, with a warning.
        rank: how many points (None: 500) or features (1000).
        method: `cavity.EP(...)` or another method; None is the library's default.
        optimize: whether the kernel's free parameters are set where the evidence is largest.
        restarts: how many more searches to start, at random places within the kernel's bounds.
        class_weight: a dictionary of factors on the sample weights; "balanced" gives all classes the same total.
        random_state: seed of restarts, and of `sample_posterior` where that is given none.
        verbose: 1 prints a line for every point of the search and every sweep of the last run, and at the end how many
            seconds went into compiling and running; a function is called with these lines instead.
        max_seconds: of every model fitted: the search ends with the best point so far, the run after its sweep with
            the status `time_budget`; a first sweep is always made.

    Attributes:
        classes_: the labels from the lowest to the highest.
        thresholds_: the bounds between them, as given or learned.
        likelihood_: the likelihood with these thresholds.
        log_evidence_: log p(labels | inputs, kernel).
        loo_log_predictive_: for every row of the training data log p(its label | the other rows).
        status_: how the fit ended; `status_.sentence` says it in words.
        kernel_: the kernel with the values learned.
        approximation_: what carries the process: "exact", "exact, 3 features", "500 inducing inputs", …
        n_sweeps_: sweeps of the last run of EP.
        models_: the fitted model, in a list.
        n_features_in_: columns of X.
        feature_names_in_: their names, where X had any.

    Examples:
        >>> import cavity as cv
        >>> X, y = [[0.0], [0.5], [1.0], [1.5], [2.0], [2.5]], ["mild", "mild", "hot", "hot", "fiery", "fiery"]
        >>> process = cv.GPOrdinal(thresholds=[-1.0, 1.0], order=["mild", "hot", "fiery"]).fit(X, y)
        >>> process.predict([[0.0], [1.25], [2.5]]).tolist()
        ['mild', 'hot', 'fiery']
        >>> process.predict_proba([[1.25]]).round(2).tolist()
        [[0.21, 0.58, 0.21]]
    """

    def __init__(
        self,
        kernel: KernelChoice = None,
        thresholds: Vector | None = None,
        order: Vector | None = None,
        approximation: str | None = "auto",
        rank: int | None = None,
        method: MethodChoice = None,
        optimize: bool = True,
        restarts: int = 0,
        class_weight: ClassWeight = None,
        random_state: Seed = None,
        verbose: Verbose = 0,
        max_seconds: float | None = None,
    ) -> None:
        super().__init__(kernel, approximation, rank, method, optimize, restarts, random_state, verbose, max_seconds)
        self.thresholds = thresholds
        self.order = order
        self.class_weight = class_weight

    def fit(self, X: Rows, y: Vector, sample_weight: Vector | None = None) -> "GPOrdinal":
        """Fit to labelled rows.

        Args:
            X: (n, d) inputs.
            y: (n,) labels, numbers or text.
            sample_weight: (n,), how often each row counts; fractions raise its likelihood to that power.

        Returns:
            The estimator itself, fitted. A model that did not converge gives a `ConvergenceWarning`.

        Raises:
            ValueError: an argument cannot be used, or the posterior is improper.
        """
        X, y = self._checked_rows(X, y)
        weights = label_weights(self, X, y, sample_weight)
        classes = self._ordered(present_classes(y, weights))
        places = y[:, None] == classes
        codes, known = places.argmax(axis=1), places.any(axis=1)
        unique = unique_rows(X, codes, weights, self.kernel)
        factor = OrdinalProbit(self._first_thresholds(unique.y, unique.sample_weight, len(classes)))
        free = ("thresholds",) if self.thresholds is None else ()
        model = self._fit_process(unique, factor, free, self._seed())
        self._warn([model], [""])
        self.classes_ = classes
        self._summarise([model])
        self.loo_log_predictive_ = np.where(known, loo_log_predictive(model, unique, X, codes), -np.inf)
        return self

    def _ordered(self, classes: np.ndarray) -> np.ndarray:
        """The classes as `order` has them, those without a row included."""
        if self.order is None:
            if classes.dtype.kind not in "biuf" and len(classes) > 2:
                words = " < ".join(repr(label) for label in classes.tolist())
                message = f"y holds text and order is None, so its classes are in the order of the alphabet: {words}."
                warnings.warn(f"{message} Name them from the lowest to the highest in order.", stacklevel=3)
            return classes
        order = np.asarray(self.order)
        missing = [label for label in classes.tolist() if label not in order.tolist()]
        if order.ndim != 1 or missing or len(set(order.tolist())) != len(order):
            found = f"{missing[0]!r} is missing" if missing else f"found {order.tolist()}"
            raise ValueError(f"order must name every class of y once, from the lowest; {found}.")
        return order

    def _first_thresholds(self, codes: np.ndarray, weights: np.ndarray, classes: int) -> np.ndarray:
        """The thresholds given, or those that a latent of variance 1 needs for the shares of the classes."""
        if self.thresholds is not None:
            given = checks.array("thresholds", self.thresholds, (1,))
            if len(given) != classes - 1 or not (np.diff(given) > 0).all():
                raise ValueError(f"thresholds must be {classes - 1} increasing numbers; found {given.tolist()}.")
            return given
        totals = np.bincount(codes.astype(int), weights, classes) + 0.5  # a class without a row keeps an interval
        return np.sqrt(2.0) * ndtri(np.cumsum(totals)[:-1] / totals.sum())

    def _summarise(self, models: Sequence[FittedModel]) -> None:
        super()._summarise(models)
        self.thresholds_ = np.asarray(self.likelihood_.thresholds)

    def predict_proba(self, X: Rows) -> np.ndarray:
        """Probabilities of the classes.

        Args:
            X: (n, d) inputs.

        Returns:
            (n, classes) probabilities, columns in the order of `classes_`.

        Raises:
            NotFittedError: the estimator has not been fitted.
            ValueError: X cannot be used, or has other columns than in `fit`.
        """
        (found,) = self._predictions(X)
        return found["probabilities"] / found["probabilities"].sum(axis=1, keepdims=True)

    def predict(self, X: Rows) -> np.ndarray:
        """The most probable class of every row.

        Args:
            X: (n, d) inputs.

        Returns:
            (n,) labels, of `classes_`.

        Raises:
            NotFittedError: the estimator has not been fitted.
            ValueError: X cannot be used, or has other columns than in `fit`.
        """
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]
