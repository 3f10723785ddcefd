"""Which machine carries a Gaussian process: the exact one, or for many rows a basis of few functions."""

import warnings
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.cluster import KMeans

from cavity._core import checks
from cavity._core.devices import is_accelerator
from cavity.kernels import Basis, InducingInputs, Kernel, RandomFeatures
from cavity.kernels.stationary import Stationary
from cavity.models.latent_gaussian import SparseGP
from cavity.models.latent_gaussian.unique_rows import UniqueRows

NAMES = ("auto", "inducing", "learned", "features")
#: different rows above which "auto" takes inducing inputs. The exact machine holds about four n × n matrices, 0.8
#: GB here, and needs some 4/3 n³ operations a sweep: ten seconds here, and eight times as many for twice the rows.
MANY = 5000
#: the same on an accelerator: there 20,000 rows take 0.4 seconds a sweep
MANY_THERE = 20_000
#: inducing inputs, and random features, where the user names no number
POINTS, FEATURES = 500, 1000
#: rows looked at by k-means for every inducing input
ROWS_A_POINT = 40
#: rounds of k-means: the inputs need to cover the rows, not to be at an optimum
ROUNDS = 20


class Choice(NamedTuple):
    """basis: None for the exact machine. learn_inputs: whether the search moves the inducing inputs."""

    basis: Basis | None
    learn_inputs: bool = False


def choose(approximation: Any, rank: Any, kernel: Any, merged: UniqueRows, seed: int, who: str) -> Choice:
    """What a user's `approximation` and `rank` mean for these sites."""
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1):
        raise ValueError(f"rank must be a whole number from 1, or None; found {rank!r}.")
    if approximation is None:
        return Choice(None)
    name, rows = checks.choice("approximation", approximation, NAMES), len(merged.X)
    if name == "auto":
        # Kernels of scikit-learn have no gradient between two sets of points.
        most = MANY_THERE if is_accelerator() else MANY
        if rows <= most or not isinstance(kernel, Kernel):
            return Choice(None)
        message = (
            f"{who}: {rows} different rows are more than {most}, so {rank or POINTS} inducing inputs stand for them"
        )
        warnings.warn(f'{message}; approximation="inducing" says so, approximation=None fits exactly.', stacklevel=5)
    if name == "features":
        key = jax.random.key(seed)
        return Choice(RandomFeatures.draw(kernel, merged.X.shape[1], int(rank or FEATURES), key))
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f'approximation="{name}" needs a kernel of cavity.kernels; found {type(kernel.kernel).__name__} of '
            "scikit-learn."
        )
    return Choice(InducingInputs(spread_points(kernel, merged, int(rank or POINTS), seed)), name == "learned")


def spread_points(kernel: Kernel, merged: UniqueRows, count: int, seed: int) -> np.ndarray:
    """The centres of k-means in the units of the kernel's length scales; all rows where there are no more."""
    X, weights = merged.X, merged.weights
    different = X[np.append(True, (X[1:] != X[:-1]).any(axis=1))]
    if len(different) <= count:
        return different
    if len(X) > ROWS_A_POINT * count:
        some = np.random.default_rng(seed).choice(len(X), ROWS_A_POINT * count, replace=False)
        X, weights = X[some], weights[some]
    scales = next((np.asarray(part.length_scale) for part in kernel.parts if isinstance(part, Stationary)), 1.0)
    means: Any = KMeans(count, max_iter=ROUNDS, random_state=seed)  # begun once, with k-means++
    return means.fit(X / scales, sample_weight=weights).cluster_centers_ * scales


def in_words(machine: Any) -> str:
    """What carries a machine's process."""
    if not isinstance(machine, SparseGP):
        return "exact"
    kind = "inducing inputs" if isinstance(machine.basis, InducingInputs) else "random features"
    return f"{machine.basis.width} {kind}"
