"""What an operator has learned, in a file of numbers."""

import os
from collections.abc import Callable

import numpy as np

from cavity.learned.calibration import Audits
from cavity.learned.gp_state import Labels
from cavity.learned.operator import Operator
from cavity.learned.residual_process import ResidualProcess
from cavity.learned.tuning import Tuned
from cavity.storage import StorageError, load, save

KIND = "learned operator"
ARRAYS = ("inputs", "targets", "spread", "widths", "sampling", "scales", "reference", "audited_kl", "audited_expected")


def store(operator: Operator, path: str | os.PathLike[str]) -> None:
    """Write labels, hyperparameters and counts."""
    learner = operator.learner
    if not isinstance(learner, ResidualProcess):
        raise TypeError(f"operators with {type(learner).__name__} cannot be saved.")
    if learner.store is None or learner.tuned is None or learner.reference is None:
        raise StorageError("the operator has not learned anything yet, so there is nothing to save.")
    header = {
        "tol_kl": float(operator.tol_kl),
        "noise": learner.tuned.noise,
        "tuned_at": learner.tuned_at,
        "consults": operator.consults,
        "refusals": operator.refusals,
    }
    arrays = (
        *learner.store,
        learner.tuned.widths,
        learner.tuned.sampling,
        learner.tuned.scales,
        learner.reference,
        *operator.audited,
    )
    save(path, KIND, header, dict(zip(ARRAYS, arrays, strict=True)))


def restore(make: Callable[[float], Operator], path: str | os.PathLike[str]) -> Operator:
    """The operator that `make(tol_kl)` gives, with what the file holds."""
    kind, header, arrays = load(path)
    if kind != KIND:
        raise StorageError(f"{path} holds a {kind}, not a learned operator.")
    try:
        found = [np.asarray(arrays[name], float) for name in ARRAYS]
        noise = float(header["noise"])
        counts = [int(header[name]) for name in ("tuned_at", "consults", "refusals")]
        operator = make(float(header["tol_kl"]))
    except (KeyError, TypeError) as error:
        raise StorageError(f"{path} is damaged: {error} is missing or not a number.") from None
    labels, widths, sampling, scales, reference = Labels(*found[:3]), *found[3:7]
    audits = Audits(*found[7:])
    fit = labels.inputs.ndim == labels.targets.ndim == 2 and labels.inputs.shape[1:] == widths.shape
    fit = fit and labels.targets.shape[1:] == scales.shape and reference.ndim == 1 and sampling.size in (1, scales.size)
    rows = {len(labels.inputs), len(labels.targets), len(labels.spread)}
    if not fit or len(rows) != 1 or audits.kl.shape != audits.expected.shape:
        raise StorageError(f"{path} is damaged: its arrays do not fit together.")
    if not all(np.isfinite(own).all() for own in found) or not (widths > 0).all() or not (scales > 0).all():
        raise StorageError(f"{path} is damaged: it holds numbers that no operator has.")
    learner = operator.learner
    assert isinstance(learner, ResidualProcess)
    learner.store, learner.tuned, learner.reference = labels, Tuned(widths, noise, sampling, scales), reference
    learner.tuned_at, operator.consults, operator.refusals = counts
    operator.audited, learner.inflation = audits, audits.inflation
    operator.least_ess = float(np.inf if not labels.spread.any() else 1.0 / labels.spread.max())
    learner.renew()
    return operator
