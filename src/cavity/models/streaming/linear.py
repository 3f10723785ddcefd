"""Linear models and sparse Gaussian processes fitted to a stream of rows: ADF first, then sweeps to EP's fixed point.

For a process a basis turns every row into features; the rest is a linear model.
"""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cavity._core import checks
from cavity._core.precision import float64
from cavity._core.system import one_blas_thread
from cavity.factors.base import Factor
from cavity.factors.wrappers import GaussianConvolved
from cavity.inference.methods import ADF, Method, Sweeps
from cavity.inference.status import Status
from cavity.kernels import Basis, Kernel
from cavity.kernels.basis import Spanned
from cavity.models._latent_gaussian.evidence_search import as_numbers, rule_of
from cavity.models._latent_gaussian.fit_result import FitResult
from cavity.models._latent_gaussian.linear_model import LinearModel, weight_precision
from cavity.models._latent_gaussian.rows import bucket, padded
from cavity.models._latent_gaussian.sparse_gp import SparseGP
from cavity.models.streaming._chunks import ChunkReader, source_of
from cavity.models.streaming._shard import NaturalSums, PassState
from cavity.models.streaming.run import CheckpointOptions, StreamProgress, StreamRun


@float64
@one_blas_thread()
def stream_linear_models(
    batches: Any,
    *,
    factor: Factor,
    prior_variance: Any = 1.0,
    features: Callable[[np.ndarray], np.ndarray] | None = None,
    observed: Callable[[np.ndarray], np.ndarray] | None = None,
    row_weights: Callable[[np.ndarray], np.ndarray] | None = None,
    method: Method | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 60.0,
    resume: str | os.PathLike[str] | None = None,
    callback: Callable[[StreamProgress], Any] | None = None,
) -> tuple[list[LinearModel], ChunkReader]:
    """Fit by EP to rows that need not fit into memory; one model, or one for each of several observations of a row.

    The rows are read once per pass. An interrupted run returns the models as they are, status `interrupted`.

    Args:
        batches: (X, y) or (X, y, weights) as arrays or memory maps, an iterable of such batches, or a function that
            returns an iterator of them. An iterator can be read once: its models are those of one sweep, ADF.
        factor: the likelihood of an observation.
        prior_variance: of the weights of the features, as for `fit_linear_model`.
        features: from a table of inputs to one of features, row by row; None for the inputs themselves.
        observed: from y to what the models observe, (models, rows), not a number for a label that is not known;
            None for one model that observes y.
        row_weights: from y to factors on the weights of the rows; None for none.
        method: EP, Power EP, restricted EP or ADF; None is EP.
        checkpoint: the file that the run writes every so many seconds and after every pass; the sites are then in two
            files beside it. Without it they are in memory.
        every: seconds between two checkpoints.
        resume: the checkpoint to go on from, and to keep up to date.
        callback: called with a `StreamProgress` when a pass is over and every few seconds.

    Returns:
        The models, and the reader, which knows the columns.

    Raises:
        ValueError: a batch is bad, named by its number and row; rows change from pass to pass; the checkpoint belongs
            to another run.

    Examples:
        >>> import numpy as np
        >>> from cavity.factors import Probit
        >>> from cavity.models.streaming import stream_linear_models
        >>> X = np.random.default_rng(0).normal(size=(300, 2))
        >>> batches = [(X[:200], np.sign(X[:200, 0])), (X[200:], np.sign(X[200:, 0]))]
        >>> (model,), reader = stream_linear_models(batches, factor=Probit())
        >>> str(model.status), model.mean.shape, reader.columns
        ('converged', (2,), 2)
    """
    factor = as_numbers(factor)
    reader = ChunkReader(source_of(batches), features, observed, factor.validate, row_weights)
    options = checkpoint_options(checkpoint, every, resume, reader.source.again)
    run = run_stream(reader, factor, prior_variance, method, options, callback)
    variance = np.atleast_1d(np.asarray(prior_variance, float))
    return [linear_model(run, state, variance) for state in run.cursor.states], reader


def run_stream(
    reader: ChunkReader,
    factor: Factor,
    prior_variance: Any,
    method: Method | None,
    options: CheckpointOptions | None,
    callback: Callable[[StreamProgress], Any] | None,
) -> StreamRun:
    """A run over all rows of a reader, perhaps an interrupted one."""
    rule = stream_method(method)
    if not reader.source.again:
        rule = ADF(schedule=rule.schedule, projection=rule.projection)
    first = reader.first()
    d = first.X.shape[1]
    prior = NaturalSums.padded(np.zeros(d), np.asarray(weight_precision(prior_variance, d)))
    run = StreamRun(reader, first, factor, prior, rule, callback)
    if options is not None:
        run.use_checkpoint(options)
    run.run()
    return run


def stream_method(method: Method | None) -> Sweeps:
    """The method as a stream runs it; of the default its first method, EP."""
    rule = rule_of(method)
    if rule.sweeps is None or rule.sweeps.projection.memory:
        raise ValueError(f"method must be EP(), PowerEP(...), RestrictedEP() or ADF() for a stream; found {rule}.")
    return rule.sweeps


def checkpoint_options(checkpoint: Any, every: Any, resume: Any, again: bool) -> CheckpointOptions | None:
    """Where checkpoints go, or None."""
    seconds = checks.positive("every", every)
    if resume is None:
        return None if checkpoint is None else CheckpointOptions(Path(checkpoint), seconds, resumes=False)
    if not again:
        raise ValueError("resume needs batches that can be read again; found an iterator.")
    if checkpoint is not None and Path(checkpoint) != Path(resume):
        raise ValueError(
            f"checkpoint must be the file given as resume, which is kept up to date; found {checkpoint} and {resume}."
        )
    return CheckpointOptions(Path(resume), seconds, resumes=True)


def linear_model(run: StreamRun, state: PassState, variance: np.ndarray) -> LinearModel:
    """The model that a run has led to."""
    d, total = run.d, state.totals.total
    q = total.q()
    ended = state.stage == "done"
    largest = state.residuals[-1] if state.residuals else float(state.totals.counts.largest)
    return LinearModel(
        status=Status.INTERRUPTED if run.interrupted and not ended else state.status,
        method=str(run.method),
        log_evidence=state.log_evidence(run.compiled, run.prior),
        mismatch=state.mismatch if ended else largest,
        sweeps=state.sweeps,
        residuals=np.array(state.residuals),
        history=list(state.history),
        seconds=run.cursor.seconds,
        mean=np.array(q.mean[:d]),
        covariance=np.array(q.covariance[:d, :d]),
        shift=np.array(total.shift[:d]),
        precision=np.array(total.precision[:d, :d]),
        factor=run.factor,
        prior_variance=variance,
    )


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
        batches: as for `stream_linear_models`.
        kernel: the covariance function.
        basis: inducing inputs or random features, which stay as they are.
        factor: the likelihood of an observation.
        observed: from y to what the models observe, (models, rows); None for one model that observes y.
        row_weights: from y to factors on the weights of the rows; None for none.
        method: EP, Power EP, restricted EP or ADF; None is EP.
        checkpoint: the file that the run writes; without it the sites are in memory.
        every: seconds between two checkpoints.
        resume: the checkpoint to go on from, and to keep up to date.
        callback: called with a `StreamProgress` when a pass is over and every few seconds.

    Returns:
        The models, and the reader, which knows the columns.

    Raises:
        TypeError: `basis` is no basis of `cavity.kernels`.
        ValueError: as for `stream_linear_models`.

    Examples:
        >>> import cavity as cv
        >>> import numpy as np
        >>> from cavity.models.streaming import stream_sparse_gps
        >>> X = np.linspace(-2.0, 2.0, 9)[:, None]
        >>> batches = [(X[:5], np.sign(X[:5, 0] + 0.1)), (X[5:], np.sign(X[5:, 0]))]
        >>> process = {"kernel": cv.kernels.RBF(1.0), "basis": cv.kernels.InducingInputs([[-1.0], [0.0], [1.0]])}
        >>> (model,), _ = stream_sparse_gps(batches, factor=cv.factors.Probit(), **process)
        >>> str(model.status), model.predict([[-1.5], [1.5]])["probability"].round(2).tolist()
        ('converged', [0.22, 0.8])
    """
    if not isinstance(basis, Basis):
        raise TypeError(
            f"basis must be one of cavity.kernels, such as InducingInputs(Z); found {type(basis).__name__}."
        )

    def features(X: np.ndarray) -> Spanned:
        # Pieces of one bucket share a program.
        basis.validate(kernel, X.shape[1])
        found = basis(kernel, padded(X, bucket(len(X))))
        return Spanned(found.rows[: len(X)], found.residual[: len(X)])

    likelihood = as_numbers(factor)
    reader = ChunkReader(source_of(batches), features, observed, likelihood.validate, row_weights)
    options = checkpoint_options(checkpoint, every, resume, reader.source.again)
    run = run_stream(reader, as_numbers(GaussianConvolved(likelihood)), 1.0, method, options, callback)
    models = []
    for state in run.cursor.states:
        linear = linear_model(run, state, np.ones(1))
        kept: dict[str, Any] = {field.name: getattr(linear, field.name) for field in dataclasses.fields(FitResult)}
        kept |= {"factor": likelihood, "weight_mean": linear.mean, "weight_covariance": linear.covariance}
        models.append(SparseGP(kernel=kernel, basis=basis, residual=np.zeros(0), **kept))
    return models, reader
