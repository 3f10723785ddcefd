"""Sparse Gaussian processes fitted to a stream: a basis turns every row into features, the rest is a linear model."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from cavity._core.precision import float64
from cavity._core.system import one_blas_thread
from cavity.factors.base import Factor
from cavity.factors.wrappers import GaussianConvolved
from cavity.inference.methods import Method
from cavity.kernels import Basis, Kernel
from cavity.kernels.basis import Spanned
from cavity.models.latent_gaussian.fit_result import FitResult
from cavity.models.latent_gaussian.hyperparameters import as_numbers
from cavity.models.latent_gaussian.rows import bucket, padded
from cavity.models.latent_gaussian.sparse_gp import SparseGP
from cavity.models.streaming.chunks import ChunkReader
from cavity.models.streaming.linear import checkpoint_options, linear_model, run_stream
from cavity.models.streaming.run import StreamProgress
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
    method: Method | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 60.0,
    resume: str | os.PathLike[str] | None = None,
    callback: Callable[[StreamProgress], Any] | None = None,
) -> tuple[list[SparseGP], ChunkReader]:
    """A Gaussian process that a basis carries, on rows that need not fit into memory.

    The answer is that of `fit_sparse_gp` on all rows with these hyperparameters, which a search on a part of the
    rows may have found. Leave-one-out predictions are not kept.

    Args:
        batches, factor, observed, row_weights, method, checkpoint, every, resume, callback: as for
            `stream_linear_models`.
        kernel: the covariance function.
        basis: inducing inputs or random features, which stay as they are.

    Returns:
        The models, and the reader, which knows the columns.

    Raises:
        TypeError: `basis` is no basis of `cavity.kernels`.
        ValueError: as for `stream_linear_models`.
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
    reader = ChunkReader(source_of(batches), features, observed, likelihood.check, row_weights)
    options = checkpoint_options(checkpoint, every, resume, reader.source.again)
    run = run_stream(reader, as_numbers(GaussianConvolved(likelihood)), 1.0, method, options, callback)
    models = []
    for state in run.cursor.states:
        linear = linear_model(run, state, np.ones(1))
        kept: dict[str, Any] = {field.name: getattr(linear, field.name) for field in dataclasses.fields(FitResult)}
        kept |= {"factor": likelihood, "weight_mean": linear.mean, "weight_covariance": linear.covariance}
        models.append(SparseGP(kernel=kernel, basis=basis, residual=np.zeros(0), **kept))
    return models, reader
