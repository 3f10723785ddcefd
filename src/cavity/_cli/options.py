"""What a user names on the command line: options of commands that read labelled files, and the estimator they mean."""

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import cavity
from cavity._cli.preprocessing import MISSING
from cavity._core import checks
from cavity.estimators import BayesPointMachine, GPClassifier
from cavity.estimators.gaussian_process import LONGEST, SHORTEST, typical_distance
from cavity.estimators.one_versus_rest import BINARY
from cavity.kernels import RBF, Constant, Kernel, Matern, Polynomial

#: kernels by name. ard: a length scale for each column; matern: rougher functions than rbf; poly: of degree 2; linear:
#: planes, by the Bayes Point Machine, whose cost grows with the rows and not with their cube
KERNELS = ("rbf", "ard", "matern", "poly", "linear")
LIKELIHOODS = tuple(BINARY)
#: methods by name; auto is EP, and what helps where it fails
METHODS: dict[str, cavity.Method | None] = {
    "auto": None,
    "ep": cavity.EP(),
    "power-ep": cavity.PowerEP(0.5),
    "relaxed-ep": cavity.RelaxedEP(1.0),
    "restricted-ep": cavity.RestrictedEP(),
    "convergent-ep": cavity.ConvergentEP(),
    "adf": cavity.ADF(),
}

DataFile = Annotated[Path, typer.Argument(help="A CSV file with a row of names.", show_default=False)]
Label = Annotated[str, typer.Option(help="The column of labels.", show_default=False)]
Noise = Annotated[str, typer.Option(help="Share of wrong labels, in [0, 0.5), or auto to learn it.")]
Method = Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}; auto: EP, and what helps where it fails.")]
Optimize = Annotated[
    bool, typer.Option("--optimize/--no-optimize", help="Search for the kernel's parameters by the evidence.")
]
Categorical = Annotated[
    list[str] | None, typer.Option(help="A column of names: a column of 0 and 1 for each level. May be repeated.")
]
Ignore = Annotated[list[str] | None, typer.Option(help="A column to leave out. May be repeated.")]
Missing = Annotated[
    str,
    typer.Option(
        help=f"Missing values (empty, NA, NaN, null, ?): one of {', '.join(MISSING)}. drop leaves out the row, "
        "mean puts the column's mean there."
    ),
]
Standardize = Annotated[
    bool, typer.Option("--standardize/--no-standardize", help="Give number columns mean 0 and standard deviation 1.")
]
Separator = Annotated[str, typer.Option(help="What stands between cells.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of whatever is random.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace output files that exist already.")]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A classifier by the names of its parts.

    width: a factor on the length scale, which is then not searched for. optimize: whether to search at all.
    """

    kernel: str = "rbf"
    likelihood: str = "step"
    label_noise: str = "auto"
    method: str = "auto"
    optimize: bool = True
    seed: int = 0
    width: float | None = None

    def __post_init__(self) -> None:
        checks.choice("--kernel", self.kernel, KERNELS)
        checks.choice("--likelihood", self.likelihood, LIKELIHOODS)
        checks.choice("--method", self.method, tuple(METHODS))
        if self.label_noise == "auto" and self.method == "adf":
            raise ValueError(
                "--method adf finds no fixed point, so --label-noise must be a number with it; found auto."
            )
        if self.label_noise != "auto" and not 0 <= self.noise() < 0.5:
            raise ValueError(f"--label-noise must be auto or a number in [0, 0.5); found {self.label_noise}.")

    def noise(self) -> Any:
        """ε as the estimators take it."""
        if self.label_noise == "auto":
            return "auto"
        try:
            return checks.number("--label-noise", float(self.label_noise))
        except ValueError:
            raise ValueError(
                f"--label-noise must be auto or a number in [0, 0.5); found {self.label_noise!r}."
            ) from None

    def estimator(self, X: np.ndarray) -> GPClassifier | BayesPointMachine:
        """An estimator to be fitted to the rows of X, whose scale its search starts from."""
        learns = self.optimize and self.method != "adf" and self.width is None
        known = {"likelihood": self.likelihood, "label_noise": self.noise()}
        known |= {"method": METHODS[self.method], "random_state": self.seed}
        if self.kernel == "linear":
            variance = "auto" if learns and self.likelihood != "step" else 1.0
            return BayesPointMachine(prior_variance=variance, **known)
        return GPClassifier(kernel=self.kernel_for(X), optimize=learns, **known)

    def kernel_for(self, X: np.ndarray) -> Kernel:
        """The kernel where its search starts. Only likelihoods other than the step see its amplitude."""
        typical = typical_distance(X)
        start = typical * (1.0 if self.width is None else self.width)
        bounds = (typical * SHORTEST, typical * LONGEST)
        kernel: Kernel
        if self.kernel == "poly":
            kernel = Polynomial(degree=2, scale=1.0 / X.shape[1], offset_bounds="fixed")
        elif self.kernel == "matern":
            kernel = Matern(start, length_scale_bounds=bounds)
        else:
            kernel = RBF(np.full(X.shape[1], start) if self.kernel == "ard" else start, length_scale_bounds=bounds)
        return kernel if self.likelihood == "step" else Constant(1.0) * kernel


def fit_with_notes(
    estimator: Any, X: np.ndarray, y: np.ndarray, callback: Callable[[str], Any] | None = None
) -> list[str]:
    """Fit; returns what a user should know, each thing once: warnings, and a search that failed.

    callback: called with a line for every step.
    """
    if callback is not None:
        estimator.set_params(verbose=callback)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(X, y)
    if callback is not None:
        estimator.set_params(verbose=0)  # a function cannot be saved
    notes = [str(warning.message) for warning in caught]
    if not searched(estimator):
        notes.append("The search for parameters found no fixed point of EP; they are what it started from.")
    return list(dict.fromkeys(notes))


def searched(estimator: Any) -> bool:
    """Whether every search that was begun got anywhere: a point without a fixed point of EP is refused."""
    histories = [model.history for model in estimator.models_ if model.history]
    return all(any(not step["refused"] for step in history) for history in histories)
