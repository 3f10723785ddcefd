"""EP for the linear model with its rows on many workers; its result, kept in a file and taken up again."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from distributed import Client

from cavity import _storage
from cavity._core import checks
from cavity._core.precision import float64
from cavity.distributed._rounds import Accepted, Response, RoundOptions, Rounds
from cavity.distributed._worker_pool import WorkerPool
from cavity.distributed.clients import client_or_local
from cavity.distributed.gaussian import (
    Contributions,
    GaussianResult,
    divergence,
    is_proper,
    pack_naturals,
    packed_dimension,
    packed_size,
    unpack_naturals,
)
from cavity.distributed.linear_shards import measure_rows, shape_of, shard_loaders, visit_rows
from cavity.factors import Probit
from cavity.factors.base import Factor
from cavity.inference.status import Status
from cavity.models._latent_gaussian.fit_result import factor_from_spec, factor_spec
from cavity.models._latent_gaussian.linear_model import LinearModel, weight_precision
from cavity.models._latent_gaussian.validation import check_numbers

#: by how much prior and contributions may differ from q's natural parameters, relative to the largest of them
BALANCE = 1e-10
#: what a file of a fit is called inside
KIND = "ClusterFit"
#: fields that are arrays, and numbers that may not be finite, which are kept as text
ARRAYS = ("prior", "contributions", "prior_variance", "rows", "residuals")
TEXTS = ("mismatch", "balance")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit(GaussianResult):
    """q(w) = N(mean, covariance) from shards, with the account of the run. Made by `fit`.

    Attributes:
        status: why it ended.
        log_evidence: estimate of log p(D) (3.40); None where some sites were lost at the end.
        mismatch: the largest moment mismatch of all shards, measured at the state returned.
        residuals: the largest mismatch met in every round.
        seconds: the run took.
        prior: packed natural parameters of the prior.
        contributions: of every shard, packed, one row each.
        shortened: rounds whose step was halved to keep q or a cavity proper.
        factor: the likelihood.
        prior_variance: as given.
        rows: of every shard.
        balance: how far contributions worked out anew from the sites on the workers, plus the prior, are from q's
            natural parameters, relative to the largest of them; as last measured, nan before.

    Examples:
        >>> import numpy as np
        >>> from distributed import Client
        >>> from cavity import distributed
        >>> X, y = np.array([[1.0], [-2.0], [0.5], [1.5]]), np.array([1.0, -1.0, 1.0, -1.0])
        >>> with Client(processes=False, dashboard_address=":0") as client:
        ...     found = distributed.fit([(X[:2], y[:2]), (X[2:], y[2:])], client=client)
        >>> print(found.status, np.round(found.mean, 3), np.round(found.covariance, 3))
        converged [0.32] [[0.198]]
        >>> found.rows
        array([2, 2])
    """

    factor: Factor
    prior_variance: np.ndarray
    rows: np.ndarray
    balance: float

    def model(self) -> LinearModel:
        """The fitted model: it predicts, is stored and goes on with new rows like one fitted in one place.

        The sites of single rows stay on the workers, so the model has none.

        Returns:
            A `LinearModel`.

        Examples:
            >>> import numpy as np
            >>> from distributed import Client
            >>> from cavity import distributed
            >>> X, y = np.array([[1.0], [-2.0], [0.5], [1.5]]), np.array([1.0, -1.0, 1.0, -1.0])
            >>> with Client(processes=False, dashboard_address=":0") as client:
            ...     found = distributed.fit([(X[:2], y[:2]), (X[2:], y[2:])], client=client)
            >>> np.round(found.model().predict([[2.0]])["probability"], 2)
            array([0.68])
        """
        q, (shift, precision) = self.q, unpack_naturals(self.naturals)
        return LinearModel(
            mean=q.mean,
            covariance=q.covariance,
            shift=shift,
            precision=precision,
            factor=self.factor,
            prior_variance=self.prior_variance,
            status=self.status,
            method=f"EP on {len(self.rows)} shards",
            log_evidence=np.nan if self.log_evidence is None else self.log_evidence,
            mismatch=self.mismatch,
            sweeps=self.rounds,
            residuals=self.residuals,
            seconds=self.seconds,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fit to a file, from which `load` and `fit(..., resume=)` go on.

        Args:
            path: of the file, replaced where it exists.
        """
        header = {
            "factor": factor_spec(self.factor),
            "status": str(self.status),
            "log_evidence": self.log_evidence,
            "shortened": int(self.shortened),
            "seconds": float(self.seconds),
            **{name: repr(float(getattr(self, name))) for name in TEXTS},
        }
        _storage.save(path, KIND, header, {name: np.asarray(getattr(self, name)) for name in ARRAYS})


def load_fit(path: str | os.PathLike[str], max_bytes: int | None = None) -> Fit:
    """The fit that `Fit.save` wrote.

    Args:
        path: of the file.
        max_bytes: refuse a file that unpacks to more than this; None: to more than 256 MiB and 64 times its size.

    Returns:
        A `Fit`, from which `fit(..., resume=)` goes on.

    Raises:
        StorageError: the file holds something else, not all of a fit, or numbers that no fit has.

    Examples:
        >>> import os, tempfile
        >>> import numpy as np
        >>> from distributed import Client
        >>> from cavity import distributed
        >>> X, y = np.array([[1.0], [-2.0], [0.5], [1.5]]), np.array([1.0, -1.0, 1.0, -1.0])
        >>> with Client(processes=False, dashboard_address=":0") as client:
        ...     found = distributed.fit([(X[:2], y[:2]), (X[2:], y[2:])], client=client)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found.save(os.path.join(folder, "fit.cavity"))
        ...     again = distributed.load(os.path.join(folder, "fit.cavity"))
        >>> bool(np.all(again.mean == found.mean))
        True
    """
    kind, header, arrays = _storage.load(path, max_bytes)
    if kind != KIND:
        raise _storage.StorageError(f"{path} holds {kind}, not a fit on shards.")
    try:
        fields: dict[str, Any] = {name: float(header[name]) for name in TEXTS}
        fields |= {name: arrays[name] for name in ARRAYS}
        found = Fit(
            factor=factor_from_spec(header["factor"]),
            status=Status(header["status"]),
            log_evidence=header["log_evidence"],
            shortened=header["shortened"],
            seconds=header["seconds"],
            **fields,
        )
        check_fit(found)
    except (KeyError, TypeError, ValueError) as error:
        raise _storage.StorageError(f"{path} is not a complete fit on shards: {str(error).rstrip('.')}.") from None
    return found


def check_fit(fit: Fit) -> None:
    """Refuse what no run can have left: numbers of other shapes, a prior that is another than said, an improper q."""
    if fit.prior.ndim != 1 or not fit.prior.size:
        raise ValueError(f"prior must be a vector; found shape {fit.prior.shape}")
    d, (shards,) = packed_dimension(fit.prior), fit.rows.shape
    if fit.rows.dtype.kind not in "iu" or not shards or (fit.rows < 1).any():
        raise ValueError("rows must be whole numbers from 1")
    check_numbers("contributions", fit.contributions, shards, packed_size(d))
    if not np.array_equal(fit.prior, pack_naturals(np.zeros(d), np.asarray(weight_precision(fit.prior_variance, d)))):
        raise ValueError("prior must be that of prior_variance")
    if not is_proper(fit.naturals):
        raise ValueError("prior and contributions must make a Gaussian that can be normalised")
    check_numbers("residuals", np.nan_to_num(fit.residuals), fit.residuals.size, least=0.0, finite=False)
    if not isinstance(fit.shortened, int) or fit.shortened < 0 or not (fit.mismatch >= 0 or np.isnan(fit.mismatch)):
        raise ValueError("shortened and mismatch must not be negative")
    for name in ("seconds", "log_evidence"):
        if name == "seconds" or fit.log_evidence is not None:
            checks.number(name, getattr(fit, name))
    fit.factor.validate(np.ones(1))


@float64
def fit(
    X: Any,
    y: Any = None,
    *,
    factor: Factor = Probit(),
    prior_variance: Any = 1.0,
    client: Client | None = None,
    asynchronous: bool = False,
    damping: float = 1.0,
    tol: float = 1e-8,
    max_rounds: int = 200,
    max_seconds: float | None = None,
    callback: Callable[[Fit], Any] | None = None,
    resume: Fit | None = None,
) -> Fit:
    """EP for w ~ N(0, prior_variance) observed through `factor` along rows that stay on the workers of a client.

    In a round every shard makes sweeps against all others and returns its natural parameters, which replace those it
    contributed before. The fixed points are those of the linear model fitted to all rows in one place. An interruption
    from the keyboard returns the state reached, from which `resume` goes on.

    Args:
        X: a Dask array or dataframe; or a list of shards, each a pair (rows, observations), a function without
            arguments that returns one, a `dask.delayed` object or a future of one. Functions and delayed objects can be
            loaded again when a worker dies.
        y: observations as a Dask array, or the name of their column; None where the shards hold them.
        factor: the likelihood of an observation given wᵀx, one that has a closed form.
        prior_variance: a number, one per feature, or a covariance matrix.
        client: of a Dask cluster; without one, processes on this machine do the work and end with it.
        asynchronous: take in answers as they come instead of waiting for all.
        damping: the share of a step taken, 1 for all of it.
        tol: bound on the moment mismatch of every row at the state returned.
        max_rounds: rounds at most.
        max_seconds: stop after the round that passes this time, or half a minute later without its answers.
        callback: called with the `Fit` so far after every round.
        resume: a fit of the same shards to go on from.

    Returns:
        A `Fit`: q, log evidence, status and the account of the run.

    Raises:
        ValueError: options that cannot be run, and bad shards: one sentence names all of them with shard and row.
        ClusterError: a shard could not be loaded or lost its worker again and again, or the scheduler or all workers
            are gone; the error's `reached` is the result so far.

    Examples:
        >>> import numpy as np
        >>> from distributed import Client
        >>> from cavity import distributed
        >>> X, y = np.array([[1.0], [-2.0], [0.5], [1.5]]), np.array([1.0, -1.0, 1.0, -1.0])
        >>> with Client(processes=False, dashboard_address=":0") as client:
        ...     found = distributed.fit([(X[:2], y[:2]), (X[2:], y[2:])], client=client)
        >>> str(found.status), found.log_evidence < 0
        ('converged', True)
    """
    options = RoundOptions(asynchronous, damping, tol, max_rounds, max_seconds)
    with client_or_local(client) as own, WorkerPool(own, shard_loaders(X, y, factor, own), options.deadline) as pool:
        pool.load()
        rows, d = count_rows(pool)
        prior = pack_naturals(np.zeros(d), np.asarray(weight_precision(prior_variance, d)))
        variance = np.atleast_1d(np.asarray(prior_variance, float))
        rounds = RowRounds(pool, Contributions.flat(prior, len(rows)), options, callback, rows, factor, variance)
        if resume is not None:
            rounds.resume(resume)
        return rounds.run()


@dataclasses.dataclass
class RowRounds(Rounds):
    """Rounds over shards of rows."""

    state: Contributions
    rows: np.ndarray
    factor: Factor
    prior_variance: np.ndarray
    log_evidence: float | None = None
    balance: float = float("nan")

    visit = staticmethod(visit_rows)
    measure = staticmethod(measure_rows)

    def resume(self, fit: Fit) -> None:
        """Contributions of an earlier fit. Their sites are gone: every shard finds its own again."""
        state = self.state
        if not np.array_equal(fit.rows, self.rows) or not np.array_equal(fit.prior, state.prior):
            raise ValueError(
                f"resume must be a fit of the same shards and prior; it has {fit.rows.tolist()} rows, "
                f"these shards {self.rows.tolist()}."
            )
        state.values = fit.contributions.copy()
        state.negative += 1  # until the client knows, properness is checked
        self.accepted = [Accepted("gone") for _ in self.rows]
        self.earlier = tuple(fit.residuals)

    def take(self, responses: dict[int, Response]) -> None:
        super().take(responses)
        self.log_evidence = None  # that of another state

    def is_settled(self) -> bool:
        return self.measured_status() is None and self.agrees

    def finish(self, status: Status) -> Status:
        return status if status is Status.CONVERGED else self.measured_status() or status

    def measured_status(self) -> Status | None:
        """Measure all shards at the state as it is; what keeps it from being a fixed point, if sites had no update.

        The log evidence (3.40) is Σ E[log t̃ᵢ] − KL(q ‖ prior), and the terms of a shard's rows follow from q and its
        own sites alone.
        """
        found, state = list(self.measure_all().values()), self.state
        if not np.isfinite(self.mismatch):
            self.log_evidence = None  # some sites were lost on the way
            return None
        again = state.prior + sum(own.contribution for own in found)
        self.balance = float(np.abs(again - state.total).max() / np.abs(state.total).max())
        if self.balance > BALANCE:
            raise AssertionError(f"contributions and sites differ by {self.balance:.1e} of the natural parameters.")
        self.log_evidence = sum(own.log_evidence for own in found) - divergence(state.total, state.prior)
        if any(own.nonfinite for own in found):
            return Status.NONFINITE_FACTOR
        return Status.SITES_SKIPPED if any(own.improper for own in found) else None

    def result(self, status: Status) -> Fit:
        return Fit(
            factor=self.factor,
            prior_variance=self.prior_variance,
            rows=self.rows,
            log_evidence=self.log_evidence,
            balance=self.balance,
            **self.state.fields(),
            **self.account(status),
        )


def count_rows(pool: WorkerPool) -> tuple[np.ndarray, int]:
    """Rows of every shard, and the columns, which all must share."""
    for number in range(len(pool.loaders)):
        pool.ask(number, shape_of)
    found = [shape for _, shape in sorted(pool.answers())]
    d = found[0][1]
    for number, (_, columns) in enumerate(found):
        if columns != d:
            raise ValueError(f"Shard {number} has {columns} columns, shard 0 has {d}.")
    return np.array([rows for rows, _ in found]), d
