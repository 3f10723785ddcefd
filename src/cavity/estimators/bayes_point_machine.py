"""The Bayes Point Machine: a linear classifier averaged over all weights that explain the labels (thesis 5.1–5.3)."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from cavity._core import checks
from cavity.estimators._base import label_weights, progress_lines
from cavity.estimators._types import ClassWeight, FittedModel, MethodChoice, Rows, Seed, Vector, Verbose
from cavity.estimators.one_versus_rest import LabelledRows, binary_likelihood, class_codes, model_names
from cavity.estimators.streaming import SeenRows, StreamingClassifier, stream_classes
from cavity.factors import Factor, Step
from cavity.inference.methods import ADF
from cavity.kernels import Linear
from cavity.models._latent_gaussian import ExactGP, LinearModel, fit_exact_gp, fit_linear_model
from cavity.models._latent_gaussian.rows import UniqueRows

#: numbers a table of features may hold, 2 GiB of them.
MOST_NUMBERS = 2**28


class BayesPointMachine(StreamingClassifier):
    """label = sign(wᵀφ(x)) with w ~ N(0, prior_variance I), each label wrong with probability ε.

    q(w) is a Gaussian; its mean is the Bayes point. With more features than rows the same posterior is computed over
    the latents of the rows instead of the weights. The length of a feature vector φ(x) does not matter to the step.

    Args:
        label_noise: ε in [0, ½); "auto" learns it from the evidence. With 0 the classes must be separable by weights,
            else there is no posterior and `fit` says so.
        bias: whether φ(x) ends with a constant 1.
        likelihood: "step", "probit", "logistic", or a factor, which brings its own label noise.
        prior_variance: of every weight. "auto" learns it; the step does not see it.
        degree: φ(x) holds all monomials of x up to this degree.
        method: `cavity.EP(...)` or another method; None is the library's default.
        class_weight: a dictionary of factors on the sample weights; "balanced" gives all classes the same total.
        random_state: seed of `sample_posterior` where that is given none.
        n_jobs: how many classes to fit at a time, in threads.
        verbose: 1 prints a line for every point of the search and every sweep of the last run, and at the end how many
            seconds went into compiling and running; a function is called with these lines instead.
        max_seconds: of every model fitted: the search ends with the best point so far, the run after its sweep with
            the status `time_budget`; a first sweep is always made.

    Attributes:
        coef_: (1 or classes, features), posterior mean of the weights.
        intercept_: (1 or classes,), that of the bias; 0 without one.
        classes_: the labels, sorted.
        log_evidence_: log p(labels | inputs), the sum over the models.
        loo_log_predictive_: for every row of the training data log p(its label | the other rows).
        loo_probabilities_: (rows, classes), the same of every label as it would be observed, as probabilities.
        status_: how the fit ended, the worst of the models' statuses; `status_.sentence` says it in words.
        likelihood_: the likelihood of the labels −1 and +1 with the values learned; a list for more than two classes.
        label_noise_: ε as given or learned; one per class for more than two.
        n_sweeps_: sweeps of the last run of EP, the most over the models.
        models_: the fitted binary models.
        n_features_in_: columns of X.
        feature_names_in_: their names, where X had any.

    Examples:
        >>> import cavity as cv
        >>> X = [[1.0, 2.0], [2.0, 1.0], [1.0, 1.0], [-1.0, -2.0], [-2.0, -1.0], [-1.0, -1.0]]
        >>> machine = cv.BayesPointMachine().fit(X, ["yes", "yes", "yes", "no", "no", "no"])
        >>> machine.coef_.round(3).tolist(), round(machine.log_evidence_, 2)
        ([[0.838, 0.838]], -2.07)
        >>> machine.classes_.tolist(), machine.predict_proba([[1.0, 0.0]]).round(3).tolist()
        (['no', 'yes'], [[0.207, 0.793]])
    """

    def __init__(
        self,
        label_noise: float | str = 0.1,
        bias: bool = True,
        likelihood: str | Factor = "step",
        prior_variance: float | str = 1.0,
        degree: int = 1,
        method: MethodChoice = None,
        class_weight: ClassWeight = None,
        random_state: Seed = None,
        n_jobs: int | None = None,
        verbose: Verbose = 0,
        max_seconds: float | None = None,
    ) -> None:
        self.label_noise = label_noise
        self.bias = bias
        self.likelihood = likelihood
        self.prior_variance = prior_variance
        self.degree = degree
        self.method = method
        self.class_weight = class_weight
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.max_seconds = max_seconds

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    _input_checks: ClassVar[dict[str, Any]] = {"dtype": np.float64, "accept_sparse": "csr"}

    def _features(self, X: Any) -> np.ndarray:
        """φ(x) of every row, dense or sparse, as a dense table."""
        if isinstance(self.degree, bool) or not isinstance(self.degree, int | np.integer) or self.degree < 1:
            raise ValueError(f"degree must be a whole number from 1; found {self.degree!r}.")
        expansion = PolynomialFeatures(self.degree, include_bias=False).fit(np.zeros((1, X.shape[1])))
        columns = expansion.n_output_features_ + bool(self.bias)
        if X.shape[0] * columns > MOST_NUMBERS:
            raise ValueError(
                f"X has {X.shape[0]} rows, which with {columns} features each are a table of more than "
                f"{MOST_NUMBERS} numbers; hand the rows to fit_stream, or use fewer features."
            )
        rows: Any = X.toarray() if sparse.issparse(X) else X
        with np.errstate(over="ignore"):
            rows = rows if self.degree == 1 else expansion.transform(rows)
        if not (np.abs(rows) <= checks.LARGEST).all():
            raise ValueError(f"X is too large for degree={self.degree}: a monomial is beyond {checks.LARGEST:g}.")
        return np.column_stack([rows, np.ones(len(rows))]) if self.bias else rows

    def _parts(self) -> tuple[Factor, tuple[str, ...], float]:
        """(likelihood, names of what is learned, prior variance)."""
        factor, free = binary_likelihood(self.likelihood, self.label_noise)
        if not isinstance(self.prior_variance, str):
            return factor, free, checks.positive("prior_variance", self.prior_variance)
        checks.choice("prior_variance", self.prior_variance, ("auto",))
        if isinstance(factor, Step):
            raise ValueError('prior_variance="auto" has no meaning for the step likelihood, which does not see it.')
        return factor, (*free, "prior_variance"), 1.0

    def _fit_model(self, unique: UniqueRows, seed: int, name: str) -> FittedModel:
        factor, free, variance = self._parts()
        options: dict[str, Any] = {"factor": factor, "sample_weight": unique.sample_weight}
        options |= {"method": self.method, "seed": seed, "max_seconds": self.max_seconds}
        with progress_lines(self.verbose, f"{type(self).__name__}{name}") as lines:
            if lines is not None:
                options |= {"callback": lines.sweep, "search_callback": lines.point}
            if unique.X.shape[1] <= len(unique.X):
                return fit_linear_model(
                    unique.X, unique.y, prior_variance=variance, optimize=bool(free), free=free, **options
                )
            kernel = Linear(variance) if "prior_variance" in free else Linear(variance).fix()
            free = tuple(name for name in free if name != "prior_variance")
            return fit_exact_gp(unique.X, unique.y, kernel=kernel, free=free, **options)

    def _summarise(self, models: Sequence[FittedModel]) -> None:
        super()._summarise(models)
        weights = np.stack([mean_weights(model) for model in models])
        bias = int(bool(self.bias))
        self.coef_ = weights[:, : weights.shape[1] - bias]
        self.intercept_ = weights[:, -1] if bias else np.zeros(len(weights))

    def _finish(self, models: Sequence[FittedModel], rows: LabelledRows) -> None:
        super()._finish(models, rows)
        pairs = zip(rows.sets, models, strict=True)
        self._seen = [SeenRows.none().with_sites(unique, model.sites) for unique, model in pairs]

    def partial_fit(
        self, X: Rows, y: Vector, classes: Vector | None = None, sample_weight: Vector | None = None
    ) -> "BayesPointMachine":
        """One pass over new rows from the present posterior: assumed-density filtering. Rows are not kept.

        The first call starts from the prior. `loo_log_predictive_` is not defined for a stream; `refine` makes it.

        Args:
            X: (n, d) inputs.
            y: (n,) labels.
            classes: all labels that will ever come; needed in the first call.
            sample_weight: (n,), how often each row counts.

        Returns:
            The estimator itself, with the new rows absorbed.

        Raises:
            ValueError: an argument cannot be used, a parameter is to be learned, or `fit` has seen fewer rows than
                features.
        """
        first = not hasattr(self, "models_")
        if first and classes is None:
            raise ValueError("classes must name all labels in the first call of partial_fit.")
        self._refuse_balanced("partial_fit")
        X, y = self._checked_rows(X, y, reset=first)
        known_classes = stream_classes(classes, None if first else self.classes_)
        rows = self._labelled(known_classes, X, y, sample_weight)
        factor, free, variance = self._parts()
        if first and free:
            raise ValueError(f"partial_fit cannot learn {free[0]} from a stream; give it as a number.")
        if not first:
            self._check_linear("partial_fit")

        def absorb(unique: UniqueRows, model: LinearModel | None) -> LinearModel:
            options: dict[str, Any] = {"sample_weight": unique.sample_weight, "method": ADF()}
            if model is None:
                return fit_linear_model(unique.X, unique.y, factor=factor, prior_variance=variance, **options)
            return model.absorb(unique.X, unique.y, **options)

        models = self._in_threads(absorb, rows.sets, [None] * len(rows.sets) if first else self.models_)
        self._warn(models, model_names(known_classes))
        seen = [SeenRows.none() for _ in models] if first else getattr(self, "_seen", None)
        if seen is not None:
            self._seen = [old.with_sites(new, m.sites) for old, new, m in zip(seen, rows.sets, models, strict=True)]
        self.classes_ = known_classes
        self._summarise(models)
        for name in ("loo_log_predictive_", "loo_probabilities_"):
            self.__dict__.pop(name, None)
        return self

    def refine(self, X: Rows, y: Vector, sample_weight: Vector | None = None) -> "BayesPointMachine":
        """EP on all rows seen so far, in any order, started from their present sites.

        Args:
            X: (n, d), the inputs of `fit` or of all calls of `partial_fit`.
            y: (n,), their labels.
            sample_weight: (n,), their weights.

        Returns:
            The estimator itself, refined.

        Raises:
            NotFittedError: the estimator has not been fitted.
            ValueError: these are not the rows seen so far, or their sites were not kept, as after `load` or
                `fit_stream`.
        """
        check_is_fitted(self)
        self._check_linear("refine")
        if not hasattr(self, "_seen"):
            raise ValueError(
                "refine needs the sites of all rows seen, which are not kept in files, nor after fit_stream: fit again."
            )
        X, y = self._checked_rows(X, y, reset=False)
        rows, names = self._labelled(self.classes_, X, y, sample_weight), model_names(self.classes_)

        def refine(unique: UniqueRows, model: LinearModel, seen: SeenRows, name: str) -> LinearModel:
            known = dataclasses.replace(model, sites=seen.sites_of(unique))
            options: dict[str, Any] = {"sample_weight": unique.sample_weight, "method": self.method}
            with progress_lines(self.verbose, f"{type(self).__name__}{name}") as lines:
                return known.refine(unique.X, unique.y, callback=None if lines is None else lines.sweep, **options)

        models = self._in_threads(refine, rows.sets, self.models_, self._seen, names)
        self._warn(models, names)
        self._finish(models, rows)
        return self

    def _check_linear(self, what: str) -> None:
        """Streams need the form with weights."""
        if any(isinstance(model, ExactGP) for model in self.models_):
            raise ValueError(f"{what} cannot go on from a fit to fewer rows than features; begin with partial_fit.")

    def _labelled(self, classes: np.ndarray, X: Rows, y: np.ndarray, sample_weight: Vector | None) -> LabelledRows:
        """Rows whose classes are known already."""
        if (strange := class_codes(classes, y) < 0).any():
            raise ValueError(f"y holds the class {y[strange].tolist()[0]!r}, which is not one of {classes.tolist()}.")
        weights = label_weights(self, X, y, sample_weight, classes)
        return LabelledRows.of(classes, self._features(X), y, weights)


def mean_weights(model: Any) -> np.ndarray:
    """Posterior mean of the weights; from the kernel form it is prior_variance · Xᵀα."""
    if isinstance(model, ExactGP):
        return model.kernel.variance * (model.X.T @ model.alpha)
    return np.asarray(model.mean)
