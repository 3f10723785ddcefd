"""Low-rank machines fitted to a stream: a basis turns every row into features, and the rest is a linear machine."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from cavity._core.precision import float64
from cavity._core.threads import one_blas_thread
from cavity.factors.base import Factor
from cavity.factors.convolved import GaussianConvolved
from cavity.inference.methods import Rule
from cavity.kernels import Basis, Kernel
from cavity.kernels.basis import Spanned
from cavity.models.latent_gaussian.padding import bucket, padded
from cavity.models.latent_gaussian.parameters import as_numbers
from cavity.models.latent_gaussian.sparse_gp import SparseGP
from cavity.models.streaming.chunks import Reader
from cavity.models.streaming.linear import files_of, machine_of, run_over
from cavity.models.streaming.run import Told
from cavity.models.streaming.sources import source_of


@float64
@one_blas_thread()
def stream_sparse_gps(
    batches: Any,
    *,
    kernel: Kernel,
    basis: Basis,
    factor: Factor,
    observed: Callable[[np.ndarray], np.ndarray] | None = None,
    row_weights: Callable[[np.ndarray], np.ndarray] | None = None,
    method: Rule | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 60.0,
    resume: str | os.PathLike[str] | None = None,
    watch: Callable[[Told], Any] | None = None,
) -> tuple[list[SparseGP], Reader]:
    """A Gaussian process that a basis carries, on rows that need not fit into memory.

    The answer is that of `fit_sparse_gp` on all rows with these hyperparameters, which a search on a part of the
    rows may have found. Leave-one-out predictions are not kept.

    Args:
        batches, factor, observed, row_weights, method, checkpoint, every, resume, watch: as for
            `stream_linear_models`.
        kernel: the covariance function.
        basis: inducing inputs or random features, which stay as they are.

    Returns:
        The machines, and the reader, which knows the columns.
    """
    if not isinstance(basis, Basis):
        raise TypeError(
            f"basis must be one of cavity.kernels, such as InducingInputs(Z); found {type(basis).__name__}."
        )

    def features(X: np.ndarray) -> Spanned:
        # Pieces of one bucket share a program.
        basis.check(kernel, X.shape[1])
        found = basis(kernel, padded(X, bucket(len(X))))
        return Spanned(found.rows[: len(X)], found.residual[: len(X)])

    likelihood = as_numbers(factor)
    reader = Reader(source_of(batches), features, observed, likelihood.check, row_weights)
    files = files_of(checkpoint, every, resume, reader.source.again)
    run, interrupted = run_over(reader, as_numbers(GaussianConvolved(likelihood)), 1.0, method, files, watch)
    machines = []
    for course in run.at.courses:
        linear = machine_of(run, course, np.ones(1), interrupted)
        carried = (linear.mean, linear.covariance, np.zeros(0), linear.account)
        machines.append(SparseGP(kernel, basis, likelihood, *carried))
    return machines, reader
