"""The way back from a file to a fitted estimator."""

import os
from typing import Any

import numpy as np

from cavity import _storage, factors
from cavity._core import checks
from cavity._storage import StorageError
from cavity._storage.npz import reason
from cavity.estimators._saving import ARRAYS, ESTIMATORS, NUMBERS, decode_parameter
from cavity.estimators.bayes_point_machine import BayesPointMachine
from cavity.estimators.gp_classifier import GPClassifier
from cavity.estimators.gp_ordinal import GPOrdinal
from cavity.estimators.gp_regressor import GPRegressor
from cavity.estimators.sklearn_kernels import kernel_from_spec
from cavity.kernels import Linear
from cavity.models._latent_gaussian import ExactGP, LinearModel, SparseGP
from cavity.models._latent_gaussian.validation import check_fitted, check_numbers

CLASSES: dict[str, Any] = {cls.__name__: cls for cls in (GPClassifier, BayesPointMachine, GPRegressor, GPOrdinal)}
MODELS: dict[str, Any] = {cls.__name__: cls for cls in (ExactGP, LinearModel, SparseGP)}
BINARY, PROCESSES = (factors.Step, factors.Probit, factors.Logistic), (ExactGP, SparseGP)
#: models and likelihoods that an estimator may have
PARTS: dict[str, tuple[tuple[type, ...], tuple[type, ...]]] = {
    "GPClassifier": (PROCESSES, BINARY),
    "BayesPointMachine": ((LinearModel, ExactGP), BINARY),
    "GPRegressor": (PROCESSES, (factors.Gaussian, factors.StudentT, factors.Poisson)),
    "GPOrdinal": (PROCESSES, (factors.OrdinalProbit,)),
}


def load(path: str | os.PathLike[str], max_bytes: int | None = None) -> Any:
    """The estimator that its `save` wrote, fitted.

    Args:
        path: of a file of format version 1.
        max_bytes: refuse a file that unpacks to more than this; None: to more than 256 MiB and 64 times its size.

    Returns:
        An estimator that predicts the same numbers.

    Raises:
        StorageError: the file holds no estimator, or is damaged.

    Examples:
        >>> import cavity as cv
        >>> import tempfile
        >>> from pathlib import Path
        >>> machine = cv.BayesPointMachine().fit([[1.0, 2.0], [2.0, 1.0], [-1.0, -2.0]], ["yes", "yes", "no"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     machine.save(Path(folder) / "machine.npz")
        ...     cv.load(Path(folder) / "machine.npz").predict([[1.0, 0.5]]).tolist()
        ['yes']
    """
    kind, header, arrays = _storage.load(path, max_bytes)
    if kind not in ESTIMATORS:
        raise StorageError(f"{path} holds {kind!r}, which is not an estimator: {', '.join(ESTIMATORS)}.")
    try:
        estimator = CLASSES[kind](**{key: decode_parameter(value) for key, value in header["params"].items()})
        for key, value in header["numbers"].items():
            if key in NUMBERS:
                setattr(estimator, key, value)
        for key in ARRAYS:
            if key in arrays:
                # Names of features come back as scikit-learn holds them, as objects.
                value = arrays[key].astype(object) if key == "feature_names_in_" else arrays[key]
                setattr(estimator, key, value)
        models = [model_from_state(own, arrays, number) for number, own in enumerate(header["models"])]
        check_estimator(estimator, models, sum(array.size for array in arrays.values()))
        estimator._summarise(models)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, ArithmeticError) as error:
        raise StorageError(f"{path} is damaged: it does not describe a fitted {kind} ({reason(error)}).") from None
    return estimator


def check_estimator(estimator: Any, models: list[Any], most: int) -> None:
    """Refuse an estimator whose parts do not fit together. most: numbers in the file, more than it has features."""
    kinds, likelihoods = PARTS[type(estimator).__name__]
    d = estimator.n_features_in_
    if type(d) is not int or not 1 <= d <= most:
        raise ValueError(f"n_features_in_ must be a whole number from 1 to {most}; found {d!r}")
    columns = estimator._features(np.zeros((1, d))).shape[1]
    for model in models:
        if not isinstance(model, kinds) or not isinstance(model.factor, likelihoods):
            raise ValueError(f"it has no {type(model).__name__} with {type(model.factor).__name__}")
        if isinstance(estimator, BayesPointMachine) and isinstance(model, ExactGP) and type(model.kernel) is not Linear:
            raise ValueError(f"its kernel is linear; found {type(model.kernel).__name__}")
        check_fitted(model, columns)
    if isinstance(estimator, GPRegressor):
        checks.number("offset", estimator._offset)
        checks.positive("scale", estimator._scale)
        checks.positive("total weight", estimator._total_weight)
        count = 1
    else:
        count = check_classes(estimator, models[0])
    if len(models) != count:
        raise ValueError(f"there must be {count} models; found {len(models)}")
    check_rows(estimator, d)


def check_classes(estimator: Any, model: Any) -> int:
    """Refuse labels that cannot be those of these models; how many models these classes need."""
    classes = estimator.classes_
    ordered = isinstance(estimator, GPOrdinal)
    wanted = len(model.factor.thresholds) + 1 if ordered else max(2, len(classes))
    different = np.unique(classes) if ordered is False else classes
    if classes.dtype.kind == "c" or classes.shape != (wanted,) or not np.array_equal(different, classes):
        raise ValueError(f"classes_ must be {wanted} different labels in order; found {classes.tolist()!r:.60}")
    if ordered and model.factor.scale != 1.0:
        raise ValueError(f"the scale of its likelihood is 1; found {model.factor.scale}")
    if len(set(classes.tolist())) < wanted or (classes.dtype.kind == "f" and not np.isfinite(classes).all()):
        raise ValueError(f"classes_ must be different labels; found {classes.tolist()!r:.60}")
    return 1 if ordered or wanted == 2 else wanted


def check_rows(estimator: Any, d: int) -> None:
    """Refuse names of features, and what was left of the rows, in other shapes or with impossible values."""
    held = vars(estimator)
    names = held.get("feature_names_in_")
    if names is not None and (names.shape != (d,) or not all(isinstance(name, str) for name in names)):
        raise ValueError(f"feature_names_in_ must be {d} names; found {names.tolist()!r:.60}")
    own, shares = held.get("loo_log_predictive_"), held.get("loo_probabilities_")
    if own is not None:
        check_numbers("loo_log_predictive_", own, own.size, finite=False)
    if own is not None and shares is not None:
        check_numbers("loo_probabilities_", shares, own.size, len(estimator.classes_), least=0.0)


def model_from_state(header: dict[str, Any], arrays: dict[str, np.ndarray], number: int) -> Any:
    """The model of that number in a file."""
    prefix = f"model{number}/"
    own = {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
    known = () if header["kind"] == "LinearModel" else (kernel_from_spec,)
    return MODELS[header["kind"]].from_state(header, own, *known)
