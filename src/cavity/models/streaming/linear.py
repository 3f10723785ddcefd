"""Linear machines fitted to a stream of rows: the first sweep is ADF, later ones refine it to EP's fixed point."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64
from cavity._core.threads import one_blas_thread
from cavity.factors.base import Factor
from cavity.inference.methods import ADF, Ladder, Method, Rule
from cavity.inference.status import Status
from cavity.models.latent_gaussian.build import weight_precision
from cavity.models.latent_gaussian.evidence_search import rule_of
from cavity.models.latent_gaussian.fit_result import FitResult
from cavity.models.latent_gaussian.linear_model import LinearModel
from cavity.models.latent_gaussian.padding import feature_bucket
from cavity.models.latent_gaussian.parameters import as_numbers
from cavity.models.streaming.chunks import Reader
from cavity.models.streaming.pass_state import Course
from cavity.models.streaming.run import Files, Run, Told
from cavity.models.streaming.sources import source_of
from cavity.models.streaming.visits import Sums


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
    method: Rule | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 60.0,
    resume: str | os.PathLike[str] | None = None,
    watch: Callable[[Told], Any] | None = None,
) -> tuple[list[LinearModel], Reader]:
    """Fit by EP to rows that need not fit into memory; one machine, or one for each of several observations of a row.

    The rows are read once a pass. An interrupted run hands back the machines as they are, status `interrupted`.

    Args:
        batches: (X, y) or (X, y, weights) as arrays or memory maps, an iterable of such batches, or a function that
            returns an iterator of them. An iterator can be read once: its machines are those of one sweep, ADF.
        factor: the likelihood of an observation.
        prior_variance: of the weights of the features, as for `fit_linear_model`.
        features: from a table of inputs to one of features, row by row; None for the inputs themselves.
        observed: from y to what the machines observe, (machines, rows), not a number for a label that is not known;
            None for one machine that observes y.
        row_weights: from y to factors on the weights of the rows; None for none.
        method: EP, Power EP, restricted EP or ADF; None is EP.
        checkpoint: the file that the run writes every so many seconds and after every pass; the sites are then in two
            files beside it. Without it they are in memory.
        every: seconds between two checkpoints.
        resume: the checkpoint to go on from, and to keep up to date.
        watch: called with a `Told` when a pass is over and every few seconds.

    Returns:
        The machines, and the reader, which knows the columns.
    """
    factor = as_numbers(factor)
    reader = Reader(source_of(batches), features, observed, factor.check, row_weights)
    files = files_of(checkpoint, every, resume, reader.source.again)
    run, interrupted = run_over(reader, factor, prior_variance, method, files, watch)
    variance = np.atleast_1d(np.asarray(prior_variance, float))
    return [machine_of(run, course, variance, interrupted) for course in run.at.courses], reader


def run_over(
    reader: Reader,
    factor: Factor,
    prior_variance: Any,
    method: Rule | None,
    files: Files | None,
    watch: Callable[[Told], Any] | None,
) -> tuple[Run, bool]:
    """A run over all rows of a reader, and whether it was interrupted."""
    rule = streamed(method)
    if not reader.source.again:
        rule = ADF(schedule=rule.schedule, projection=rule.projection)
    first = reader.first()
    d = first.X.shape[1]
    precision = np.eye(feature_bucket(d))
    precision[:d, :d] = weight_precision(prior_variance, d)
    prior = Sums(jnp.zeros(len(precision)), jnp.asarray(precision), jnp.zeros(()))
    run = Run(reader, first, factor, prior, rule)
    if files is not None:
        run.keep(files)
    try:
        run.go(watch)
    except KeyboardInterrupt:
        if not run.at.position and not run.at.sweep:
            raise  # nothing has been learned that could be handed back
        return run, True
    return run, False


def streamed(method: Rule | None) -> Method:
    """The method as a stream runs it; of the default its first rung, EP."""
    rule = rule_of(method)
    rule = rule.first if isinstance(rule, Ladder) else rule
    if not isinstance(rule, Method) or rule.projection.memory:
        raise ValueError(f"method must be EP(), PowerEP(...), RestrictedEP() or ADF() for a stream; found {rule}.")
    return rule


def files_of(checkpoint: Any, every: Any, resume: Any, again: bool) -> Files | None:
    """Where checkpoints go, or None."""
    seconds = checks.positive("every", every)
    if resume is None:
        return None if checkpoint is None else Files(Path(checkpoint), seconds, resumes=False)
    if not again:
        raise ValueError("resume needs batches that can be read again; found an iterator.")
    if checkpoint is not None and Path(checkpoint) != Path(resume):
        raise ValueError(
            f"checkpoint must be the file given as resume, which is kept up to date; found {checkpoint} and {resume}."
        )
    return Files(Path(resume), seconds, resumes=True)


def machine_of(run: Run, course: Course, variance: np.ndarray, interrupted: bool) -> LinearModel:
    """The machine a course has led to."""
    d, total = run.d, course.tally.total
    q, prior = total.q(), run.prior.q()
    ended = course.stage == "done"
    met = course.residuals[-1] if course.residuals else float(course.tally.met.largest)
    kept = FitResult(
        status=Status.INTERRUPTED if interrupted and not ended else course.status,
        method=str(run.method),
        log_evidence=float(q.log_partition - prior.log_partition + total.log_scale) + course.constant,
        mismatch=course.mismatch if ended else met,
        sweeps=course.sweeps,
        residuals=np.array(course.residuals),
        sites=np.zeros((0, 2)),
        loo_log_predictive=np.zeros(0),
        mean=np.zeros(0),
        variance=np.zeros(0),
        history=list(course.history),
        seconds=run.at.seconds,
    )
    return LinearModel(
        mean=np.array(q.mean[:d]),
        covariance=np.array(q.covariance[:d, :d]),
        shift=np.array(total.shift[:d]),
        precision=np.array(total.precision[:d, :d]),
        factor=run.factor,
        prior_variance=variance,
        account=kept,
    )
