"""Gaussian process classification by expectation propagation, robust to wrong labels."""

from cavity.estimators._types import ClassWeight, FittedModel, KernelChoice, MethodChoice, Seed, Verbose
from cavity.estimators.gaussian_process import GaussianProcess
from cavity.estimators.one_versus_rest import OneVersusRest, binary_likelihood
from cavity.factors import Factor, Step
from cavity.models._latent_gaussian.rows import UniqueRows


class GPClassifier(OneVersusRest, GaussianProcess):
    """A Gaussian process behind each label: P(label | f) = ε + (1 − 2ε) t(label · f)  (thesis 5.4).

    With two classes there is one process; with more, one for each class against the rest.

    Args:
        kernel: a kernel of `cavity.kernels` or of scikit-learn, or "rbf", "matern", "linear", "poly". None: the
            Gaussian kernel, its length scale started at the median distance of two rows.
        likelihood: t: "step", "probit", "logistic", or a factor, which brings its own label noise.
        label_noise: ε in [0, ½), the share of labels taken to be wrong; "auto" learns it from the evidence.
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
        n_jobs: how many classes to fit at a time, in threads.
        verbose: 1 prints a line for every point of the search and every sweep of the last run, and at the end how many
            seconds went into compiling and running; a function is called with these lines instead.
        max_seconds: of every model fitted: the search ends with the best point so far, the run after its sweep with
            the status `time_budget`; a first sweep is always made.

    Attributes:
        classes_: the labels, sorted.
        log_evidence_: log p(labels | inputs, kernel), the sum over the models.
        loo_log_predictive_: for every row of the training data log p(its label | the other rows).
        loo_probabilities_: (rows, classes), the same of every label as it would be observed, as probabilities.
        status_: how the fit ended, the worst of the models' statuses; `status_.sentence` says it in words.
        kernel_: the kernel with the values learned; a list of them for more than two classes.
        approximation_: what carries the process: "exact", "exact, 3 features", "500 inducing inputs", …
        likelihood_: the likelihood of the labels −1 and +1 with the values learned; a list for more than two classes.
        label_noise_: ε as given or learned; one per class for more than two.
        n_sweeps_: sweeps of the last run of EP, the most over the models.
        models_: the fitted binary models.
        n_features_in_: columns of X.
        feature_names_in_: their names, where X had any.

    Examples:
        >>> import cavity as cv
        >>> X, y = [[-2.0], [-1.0], [-0.5], [0.5], [1.0], [2.0]], ["low", "low", "low", "high", "high", "high"]
        >>> classifier = cv.GPClassifier(likelihood="probit", label_noise=0.0).fit(X, y)
        >>> classifier.predict([[-1.5], [1.5]]).tolist(), round(classifier.log_evidence_, 2)
        (['low', 'high'], -3.02)
        >>> classifier.predict_proba([[0.0]]).round(2).tolist()
        [[0.5, 0.5]]
    """

    def __init__(
        self,
        kernel: KernelChoice = None,
        likelihood: str | Factor = "step",
        label_noise: float | str = 0.1,
        approximation: str | None = "auto",
        rank: int | None = None,
        method: MethodChoice = None,
        optimize: bool = True,
        restarts: int = 0,
        class_weight: ClassWeight = None,
        random_state: Seed = None,
        n_jobs: int | None = None,
        verbose: Verbose = 0,
        max_seconds: float | None = None,
    ) -> None:
        super().__init__(kernel, approximation, rank, method, optimize, restarts, random_state, verbose, max_seconds)
        self.likelihood = likelihood
        self.label_noise = label_noise
        self.class_weight = class_weight
        self.n_jobs = n_jobs

    def _fit_model(self, unique: UniqueRows, seed: int, name: str) -> FittedModel:
        factor, free = binary_likelihood(self.likelihood, self.label_noise)
        return self._fit_process(unique, factor, free, seed, name, amplitude=not isinstance(factor, Step))
