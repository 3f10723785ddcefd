"""What all estimators share: fitting machines side by side, a truthful summary, draws from the posterior, saving."""

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, validate_data

from cavity._core.checks import LARGEST
from cavity._core.precision import float64
from cavity.estimators.defaults import plain
from cavity.factors import Factor
from cavity.families.gaussian import Gaussian
from cavity.inference.status import FIXED_POINTS, Status
from cavity.models.latent_gaussian.padding import bucket, padded
from cavity.models.latent_gaussian.unique_rows import UniqueRows

#: from good to bad; what a set of machines reports is the worst of theirs.
SEVERITY = (
    *FIXED_POINTS,
    Status.SINGLE_PASS,
    Status.RUNNING,
    Status.INTERRUPTED,
    Status.TIME_BUDGET,
    Status.MAX_SWEEPS,
    Status.STALLED,
    Status.SITES_SKIPPED,
    Status.NONFINITE_FACTOR,
    Status.IMPROPER_POSTERIOR,
)
#: rows predicted at a time.
CHUNK = 8192
#: what needs no warning: a fixed point, or a method that seeks none.
AS_PROMISED = (*FIXED_POINTS, Status.SINGLE_PASS)


class LatentGaussianEstimator(BaseEstimator):
    """One or several machines, each a latent Gaussian model, fitted and summed up.

    A subclass fits with `_fit_machines`, hands the machines to `_summarise` and says by `_features` what they see of X.
    """

    machines_: list[Any]

    def _features(self, X: Any) -> np.ndarray:
        """The rows the machines were fitted on, made of checked inputs."""
        return X

    def _checked(self, X: Any) -> Any:
        """New inputs, checked against the ones in training."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **self._input_checks())
        check_size("X", X)
        return X

    def _predictions(self, X: Any) -> list[dict[str, np.ndarray]]:
        """For every machine what its likelihood predicts at the rows of X."""
        rows = self._checked(X)
        parts = [self._features(rows[start : start + CHUNK]) for start in range(0, rows.shape[0], CHUNK)]
        found = [[predicted(plain(m.factor), *m.latent(part)) for part in parts] for m in self.machines_]
        return [{name: np.concatenate([part[name] for part in own]) for name in own[0]} for own in found]

    def _input_checks(self) -> dict[str, Any]:
        """What `validate_data` is told about X."""
        return {"dtype": np.float64}

    def _seed(self) -> int:
        """A whole number from `random_state`, for restarts of the search."""
        return int(check_random_state(self.random_state).randint(2**31 - 1))  # type: ignore[attr-defined]

    def _fit_machines(self, fit: Callable[[int], Any], count: int) -> list[Any]:
        """`fit(0)`, …, `fit(count − 1)` in `n_jobs` threads: compiled code lets go of Python."""
        jobs = getattr(self, "n_jobs", None)
        return list(Parallel(n_jobs=jobs, prefer="threads")(delayed(fit)(number) for number in range(count)))

    def _summarise(self, machines: Sequence[Any]) -> None:
        """Attributes that follow from the machines."""
        self.machines_ = list(machines)
        self.log_evidence_ = float(sum(machine.log_evidence for machine in machines))
        self.status_: Status = max((machine.status for machine in machines), key=SEVERITY.index)
        self.n_sweeps_ = max(int(machine.sweeps) for machine in machines)
        likelihoods = [plain(machine.factor) for machine in machines]
        self.likelihood_: Any = likelihoods[0] if len(likelihoods) == 1 else likelihoods

    def _warn(self, machines: Sequence[Any], names: Sequence[str]) -> None:
        """A `ConvergenceWarning` for every machine that fell short; an error where its numbers mean nothing.

        It comes before anything is assigned: where it ends the call, the estimator is what it was before.
        """
        for machine, name in zip(machines, names, strict=True):
            status, who = machine.status, f"{type(self).__name__}{name}"
            noise = getattr(plain(machine.factor), "label_noise", None)
            hint = " With label_noise=0 no label may be wrong; allow for some." if noise == 0 else ""
            # Without label noise, a site that cannot be matched at all means labels that nothing explains.
            stuck = noise == 0 and not np.isfinite(machine.mismatch)
            if status is Status.IMPROPER_POSTERIOR or stuck or not np.isfinite(machine.log_evidence):
                raise ValueError(f"{who} could not be fitted: {status}. {status.sentence}{hint}")
            if status not in AS_PROMISED:
                message = f"{who} did not converge: {status} (mismatch {machine.mismatch:.1e}). {status.sentence}{hint}"
                warnings.warn(message, ConvergenceWarning, stacklevel=3)

    def sample_posterior(self, X: Any, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draws of the latent function at the rows of X, jointly over the rows.

        Args:
            X: inputs, one a row.
            n_samples: how many draws.
            random_state: seed of the draws; the estimator's own `random_state` when None.

        Returns:
            (rows, n_samples); with one machine a class (rows, classes, n_samples).
        """
        rows = self._features(self._checked(X))
        if isinstance(n_samples, bool) or not isinstance(n_samples, int | np.integer) or n_samples < 1:
            raise ValueError(f"n_samples must be a whole number from 1; found {n_samples!r}.")
        source: Any = self.random_state if random_state is None else random_state  # type: ignore[attr-defined]
        keys = jax.random.split(jax.random.key(int(check_random_state(source).randint(2**31 - 1))), len(self.machines_))
        draws = [machine.sample(rows, key, n_samples).T for machine, key in zip(self.machines_, keys, strict=True)]
        return np.asarray(draws[0]) if len(draws) == 1 else np.stack(draws, axis=1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file that `cavity.load` reads: arrays and JSON, no pickle."""
        from cavity.estimators.saving import save  # which knows all estimators

        save(self, path)


def check_size(name: str, values: Any) -> None:
    """Refuse numbers that are finite but have no square to compute with."""
    numbers = np.asarray(values.data if sparse.issparse(values) else values)
    far = np.abs(numbers) > LARGEST
    if far.any():
        raise ValueError(f"{name} must hold numbers between ±{LARGEST:g}; found {numbers[far][0]:g}: scale it.")


def leave_one_out(machine: Any, merged: UniqueRows, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """log p(yᵢ | the other rows) for every row handed in, whatever its weight.

    A row that shares its site with others is predicted from all copies but one. A row of weight 0 is not in q: its
    label is predicted from all others. Under fractional weights the label still counts as a whole.
    """
    if merged.exponents is None:
        values = np.asarray(machine.loo_log_predictive)
    else:
        values = log_predictive(plain(machine.factor), machine.cavities(), merged.y)
    result = values[merged.site]
    left_out = merged.site < 0
    if left_out.any():
        mean, variance = machine.latent(X[left_out])
        marginals = np.stack([mean, np.ones_like(mean)], axis=1) / np.maximum(variance, np.finfo(float).tiny)[:, None]
        result[left_out] = log_predictive(plain(machine.factor), marginals, y[left_out])
    return result


@float64
def predicted(factor: Factor, mean: np.ndarray, variance: np.ndarray) -> dict[str, np.ndarray]:
    """What the likelihood makes of latents, padded to few sizes so that few are compiled."""
    size = bucket(len(mean))
    found = compiled_prediction(factor, padded(mean, size), padded(variance, size))
    return {name: np.asarray(values)[: len(mean)] for name, values in found.items()}


@jax.jit
def compiled_prediction(factor: Any, mean: jax.Array, variance: jax.Array) -> dict[str, jax.Array]:
    return factor.predict(mean, variance)


@float64
def log_predictive(factor: Factor, cavities: np.ndarray, data: np.ndarray) -> Any:
    """log ∫ t(f; y) cavity(f) df, a cavity (ν, τ) and a y a row; −∞ where the cavity is improper."""
    proper = cavities[:, 1] > 0
    safe = np.where(proper[:, None], cavities, [0.0, 1.0])
    size = bucket(len(data))
    found = np.asarray(compiled_log_z(factor, padded(safe, size), padded(np.asarray(data, float), size)))
    return np.where(proper, found[: len(data)], -np.inf)


@jax.jit
def compiled_log_z(factor: Factor, cavities: jax.Array, data: jax.Array) -> jax.Array:
    def log_z(cavity: jax.Array, datum: jax.Array) -> jax.Array:
        return factor.tilted(Gaussian(), cavity, datum, 1.0).log_z

    return jax.vmap(log_z)(cavities, data)
