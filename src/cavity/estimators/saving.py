"""Estimators in files: parameters and fitted machines as JSON and arrays, rebuilt from a table of known classes.

Files of format version 1 are read (`cavity.storage`). What a file may name is fixed here: an estimator, a kernel, a
likelihood and the parts of a method. Nothing in a file is executed.
"""

import dataclasses
import os
from typing import Any

import numpy as np
from sklearn.gaussian_process import kernels as sk
from sklearn.utils.validation import check_is_fitted

from cavity import storage
from cavity.estimators.base import LatentGaussianEstimator
from cavity.estimators.bayes_point_machine import BayesPointMachine
from cavity.estimators.defaults import as_given
from cavity.estimators.gp_classifier import GPClassifier
from cavity.estimators.gp_ordinal import GPOrdinal
from cavity.estimators.gp_regressor import GPRegressor
from cavity.estimators.sklearn_kernels import SklearnKernel, as_kernel, from_spec
from cavity.factors import Factor
from cavity.inference import methods, projection, relaxed, schedule
from cavity.kernels import Kernel
from cavity.models.latent_gaussian import ExactGP, LinearModel, SparseGP
from cavity.models.latent_gaussian.fit_result import factor_from_spec, factor_spec
from cavity.storage import StorageError

ESTIMATORS: dict[str, type[LatentGaussianEstimator]] = {
    cls.__name__: cls for cls in (GPClassifier, BayesPointMachine, GPRegressor, GPOrdinal)
}
MACHINES: dict[str, Any] = {cls.__name__: cls for cls in (ExactGP, LinearModel, SparseGP)}
#: frozen dataclasses a method is made of.
METHOD_PARTS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        methods.Sweeps,
        methods.DoubleLoop,
        methods.Ladder,
        projection.Matched,
        projection.Restricted,
        relaxed.Relaxed,
        schedule.InOrder,
        schedule.Shuffled,
        schedule.Order,
        schedule.LargestMismatchFirst,
        schedule.OneMessage,
        schedule.EveryNth,
        schedule.Parallel,
        schedule.Blocks,
    )
}
#: fitted attributes that do not follow from the machines, where an estimator has them.
NUMBERS = ("n_features_in_", "_offset", "_scale", "_total_weight")
ARRAYS = ("classes_", "feature_names_in_", "loo_log_predictive_", "loo_probabilities_")


def save(estimator: LatentGaussianEstimator, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to exactly this path; `load` gives one that predicts the same numbers.

    A stream begun with `partial_fit` can go on from the file; `refine` cannot, for it needs what each row said.
    """
    check_is_fitted(estimator)
    name = type(estimator).__name__
    if ESTIMATORS.get(name) is not type(estimator):
        raise StorageError(f"{name} cannot be saved: it is not one of {', '.join(ESTIMATORS)}.")
    header: dict[str, Any] = {
        "params": {key: encode(key, value) for key, value in estimator.get_params(deep=False).items()},
        "numbers": {key: getattr(estimator, key) for key in NUMBERS if hasattr(estimator, key)},
        "machines": [],
    }
    arrays = {key: as_array(getattr(estimator, key)) for key in ARRAYS if hasattr(estimator, key)}
    for number, machine in enumerate(estimator.machines_):
        own, parts = machine.state()
        header["machines"].append({"kind": type(machine).__name__, **own})
        arrays |= {f"machine{number}/{key}": value for key, value in parts.items()}
    storage.save(path, name, header, arrays)


def load(path: str | os.PathLike[str]) -> Any:
    """The estimator that `save` wrote, fitted.

    Args:
        path: of a file of format version 1.
    """
    kind, header, arrays = storage.load(path)
    if kind not in ESTIMATORS:
        raise StorageError(f"{path} holds {kind!r}, which is not an estimator: {', '.join(ESTIMATORS)}.")
    try:
        estimator = ESTIMATORS[kind](**{key: decode(value) for key, value in header["params"].items()})
        for key, value in header["numbers"].items():
            if key in NUMBERS:
                setattr(estimator, key, value)
        for key in ARRAYS:
            if key in arrays:
                setattr(estimator, key, from_array(key, arrays[key]))
        machines = []
        for number, own in enumerate(header["machines"]):
            prefix = f"machine{number}/"
            parts = {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
            extra = () if own["kind"] == "LinearModel" else (from_spec,)
            machine = MACHINES[own["kind"]].from_state(own, parts, *extra)
            machines.append(dataclasses.replace(machine, factor=with_arrays(machine.factor)))
        estimator._summarise(machines)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise StorageError(f"{path} is damaged: it does not describe a fitted {kind} ({error}).") from None
    return estimator


def as_array(value: Any) -> np.ndarray:
    """An array without objects: labels and names as text."""
    array = np.asarray(value)
    return array.astype(str) if array.dtype == object else array


def from_array(key: str, array: np.ndarray) -> np.ndarray:
    """Names of features come back as scikit-learn holds them, as objects."""
    return array.astype(object) if key == "feature_names_in_" else array


def with_arrays(factor: Any) -> Any:
    """A likelihood whose vectors, lists in JSON, are arrays again."""
    fields = {field.name: getattr(factor, field.name) for field in dataclasses.fields(factor)}
    return dataclasses.replace(factor, **{k: np.asarray(v, float) for k, v in fields.items() if isinstance(v, list)})


def encode(name: str, value: Any) -> Any:
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
        return {"pairs": [[encode(name, key), encode(name, item)] for key, item in value.items()]}
    if type(value) in (list, tuple):
        return {type(value).__name__: [encode(name, item) for item in value]}
    if METHOD_PARTS.get(type(value).__name__) is type(value):
        fields = {field.name: encode(name, getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"part": type(value).__name__, "fields": fields}
    raise StorageError(f"{name} cannot be saved: it is of type {type(value).__name__}.")


def decode(value: Any) -> Any:
    """What `encode` wrote."""
    if not isinstance(value, dict):
        return value
    if "kernel" in value:
        return as_given(from_spec(value["kernel"]))
    if "factor" in value:
        return with_arrays(factor_from_spec(value["factor"]))
    if "pairs" in value:
        return {decode(key): decode(item) for key, item in value["pairs"]}
    for kind in (list, tuple):
        if kind.__name__ in value:
            return kind(decode(item) for item in value[kind.__name__])
    return METHOD_PARTS[value["part"]](**{key: decode(item) for key, item in value["fields"].items()})
