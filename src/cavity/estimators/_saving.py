"""Estimators in files: parameters and fitted models as JSON and arrays.

What a file may name is fixed here and in `loading`: an estimator, a model, a kernel, a likelihood and the parts of a
method. Nothing in a file is executed.
"""

import dataclasses
import os
from typing import Any

import numpy as np
from sklearn.gaussian_process import kernels as sk
from sklearn.utils.validation import check_is_fitted

from cavity import _storage
from cavity._storage import StorageError
from cavity.estimators.sklearn_kernels import SklearnKernel, as_kernel, kernel_from_spec
from cavity.factors import Factor
from cavity.inference import methods, relaxed, schedule, update_rule
from cavity.inference.methods.convergent import DoubleLoop
from cavity.inference.methods.ladder import Ladder
from cavity.kernels import Kernel
from cavity.models._latent_gaussian.fit_result import factor_from_spec, factor_spec

#: estimators that may be in a file
ESTIMATORS = ("GPClassifier", "BayesPointMachine", "GPRegressor", "GPOrdinal")
#: frozen dataclasses a method is made of.
METHOD_PARTS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(methods.Sweeps, DoubleLoop, Ladder),
        *(update_rule.Matched, update_rule.Restricted, update_rule.Cowell, relaxed.Relaxed),
        *(schedule.InOrder, schedule.ThereAndBack, schedule.Shuffled, schedule.Order),
        *(schedule.LargestMismatchFirst, schedule.OneMessage, schedule.EveryNth),
        *(schedule.Parallel, schedule.Blocks),
    )
}
#: fitted attributes that do not follow from the models, where an estimator has them.
NUMBERS = ("n_features_in_", "_offset", "_scale", "_total_weight")
ARRAYS = ("classes_", "feature_names_in_", "loo_log_predictive_", "loo_probabilities_")


def save_estimator(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to exactly this path; `load` gives one that predicts the same numbers.

    A stream begun with `partial_fit` can go on from the file; `refine` cannot: it needs the sites of all rows.
    """
    check_is_fitted(estimator)
    kind = type(estimator)
    if kind.__name__ not in ESTIMATORS or not kind.__module__.startswith("cavity.estimators."):
        raise StorageError(f"{kind.__name__} cannot be saved: it is not one of {', '.join(ESTIMATORS)}.")
    params = estimator.get_params(deep=False)
    header: dict[str, Any] = {
        "params": {key: encode_parameter(key, value) for key, value in params.items()},
        "numbers": {key: getattr(estimator, key) for key in NUMBERS if hasattr(estimator, key)},
        "models": [],
    }
    arrays = {key: as_array(getattr(estimator, key)) for key in ARRAYS if hasattr(estimator, key)}
    for number, model in enumerate(estimator.models_):
        own, parts = model.state()
        header["models"].append({"kind": type(model).__name__, **own})
        arrays |= {f"model{number}/{key}": value for key, value in parts.items()}
    _storage.save(path, kind.__name__, header, arrays)


def as_array(value: Any) -> np.ndarray:
    """An array without objects: labels and names as text."""
    array = np.asarray(value)
    return array.astype(str) if array.dtype == object else array


def encode_parameter(name: str, value: Any) -> Any:
    """A parameter of an estimator as JSON; what is not plain becomes a dictionary with one key that says what it is."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Kernel | SklearnKernel | sk.Kernel):
        return {"kernel": as_kernel(value).spec()}
    if isinstance(value, Factor):
        return {"factor": factor_spec(value)}
    if isinstance(value, dict):
        return {"pairs": [[encode_parameter(name, key), encode_parameter(name, item)] for key, item in value.items()]}
    if type(value) in (list, tuple):
        return {type(value).__name__: [encode_parameter(name, item) for item in value]}
    if METHOD_PARTS.get(type(value).__name__) is type(value):
        fields = {field.name: encode_parameter(name, getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"part": type(value).__name__, "fields": fields}
    raise StorageError(f"{name} cannot be saved: it is of type {type(value).__name__}.")


def decode_parameter(value: Any) -> Any:
    """What `encode_parameter` wrote."""
    if not isinstance(value, dict):
        return value
    if "kernel" in value:
        kernel = kernel_from_spec(value["kernel"])
        return kernel.kernel if isinstance(kernel, SklearnKernel) else kernel
    if "factor" in value:
        return factor_from_spec(value["factor"])
    if "pairs" in value:
        return {decode_parameter(key): decode_parameter(item) for key, item in value["pairs"]}
    for kind in (list, tuple):
        if kind.__name__ in value:
            return kind(decode_parameter(item) for item in value[kind.__name__])
    return METHOD_PARTS[value["part"]](**{key: decode_parameter(item) for key, item in value["fields"].items()})
