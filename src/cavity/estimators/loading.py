"""The way back from a file to a fitted estimator."""

import os
from typing import Any

import numpy as np

from cavity import _storage
from cavity._storage import StorageError
from cavity.estimators._saving import ARRAYS, ESTIMATORS, NUMBERS, decode_parameter
from cavity.estimators._types import FittedModel
from cavity.estimators.bayes_point_machine import BayesPointMachine
from cavity.estimators.gp_classifier import GPClassifier
from cavity.estimators.gp_ordinal import GPOrdinal
from cavity.estimators.gp_regressor import GPRegressor
from cavity.estimators.sklearn_kernels import kernel_from_spec
from cavity.models._latent_gaussian import ExactGP, LinearModel, SparseGP

CLASSES: dict[str, Any] = {cls.__name__: cls for cls in (GPClassifier, BayesPointMachine, GPRegressor, GPOrdinal)}
MODELS: dict[str, type[FittedModel]] = {cls.__name__: cls for cls in (ExactGP, LinearModel, SparseGP)}


def load(path: str | os.PathLike[str]) -> Any:
    """The estimator that its `save` wrote, fitted.

    Args:
        path: of a file of format version 1.

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
    kind, header, arrays = _storage.load(path)
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
        estimator._summarise([model_from_state(own, arrays, number) for number, own in enumerate(header["models"])])
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise StorageError(f"{path} is damaged: it does not describe a fitted {kind} ({error}).") from None
    return estimator


def model_from_state(header: dict[str, Any], arrays: dict[str, np.ndarray], number: int) -> FittedModel:
    """The model of that number in a file."""
    prefix = f"model{number}/"
    own = {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
    known = () if header["kind"] == "LinearModel" else (kernel_from_spec,)
    return MODELS[header["kind"]].from_state(header, own, *known)
