"""What a fit on shards hands back; kept in a file and taken up again."""

import dataclasses
import os
from typing import Any

import numpy as np

from cavity import storage
from cavity.distributed.combined import Combined
from cavity.distributed.naturals import unpack
from cavity.factors.base import Factor
from cavity.inference.status import Status
from cavity.models.latent_gaussian.fit_result import FitResult, factor_from_spec, factor_spec
from cavity.models.latent_gaussian.linear_model import LinearModel

#: what a file of a fit is called inside
KIND = "ClusterFit"
#: fields that are arrays, and numbers that may not be finite, which are kept as text
ARRAYS = ("prior", "contributions", "prior_variance", "rows", "residuals")
TEXTS = ("mismatch", "balance")


@dataclasses.dataclass(frozen=True)
class Fit(Combined):
    """q(w) = N(mean, covariance) from shards, with the account of the run.

    Attributes:
        prior, contributions: packed natural parameters, one row of contributions a shard; q is their sum.
        log_evidence: estimate of log p(D) (3.40); None before it was measured.
        mismatch: the largest moment mismatch of all rows, measured at this very state where the run has ended.
        residuals: the largest mismatch met in every round.
        rows: of every shard. shortened: rounds whose step was halved to keep q or a cavity proper.
        balance: how far contributions worked out anew from the sites on the workers, plus the prior, are from q's
            natural parameters, relative to the largest of them; as last measured, nan before.
    """

    prior: np.ndarray
    contributions: np.ndarray
    factor: Factor
    prior_variance: np.ndarray
    rows: np.ndarray
    status: Status
    log_evidence: float | None
    mismatch: float
    residuals: np.ndarray
    shortened: int
    balance: float
    seconds: float

    def machine(self) -> LinearModel:
        """The fitted machine: it predicts, is stored and goes on with new rows like one fitted in one place.

        What it would know of single rows stays on the workers, so its account has none.
        """
        q, (shift, precision) = self.q, unpack(self.naturals, self.d)
        nothing = np.zeros(0)
        account = FitResult(
            status=self.status,
            method=f"EP on {len(self.rows)} shards",
            log_evidence=np.nan if self.log_evidence is None else self.log_evidence,
            mismatch=self.mismatch,
            sweeps=self.rounds,
            residuals=self.residuals,
            sites=np.zeros((0, 2)),
            loo_log_predictive=nothing,
            mean=nothing,
            variance=nothing,
            history=[],
            seconds=self.seconds,
        )
        return LinearModel(q.mean, q.covariance, shift, precision, self.factor, self.prior_variance, account)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Into a file of arrays and a header, from which `load` and `fit(..., resume=)` go on."""
        header = {
            "factor": factor_spec(self.factor),
            "status": str(self.status),
            "log_evidence": self.log_evidence,
            "shortened": int(self.shortened),
            "seconds": float(self.seconds),
            **{name: repr(float(getattr(self, name))) for name in TEXTS},
        }
        storage.save(path, KIND, header, {name: np.asarray(getattr(self, name)) for name in ARRAYS})

    def __str__(self) -> str:
        known = "" if self.log_evidence is None else f", log evidence {self.log_evidence:.6g}"
        return (
            f"{self.status} after {self.rounds} rounds over {len(self.rows)} shards, "
            f"mismatch {self.mismatch:.1e}{known}. {self.status.sentence}"
        )


def load(path: str | os.PathLike[str]) -> Fit:
    """The fit that was saved."""
    kind, header, arrays = storage.load(path)
    if kind != KIND:
        raise storage.StorageError(f"{path} holds {kind}, not a fit on shards.")
    try:
        fields: dict[str, Any] = {name: float(header[name]) for name in TEXTS}
        fields |= {name: arrays[name] for name in ARRAYS}
        return Fit(
            factor=factor_from_spec(header["factor"]),
            status=Status(header["status"]),
            log_evidence=header["log_evidence"],
            shortened=header["shortened"],
            seconds=header["seconds"],
            **fields,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise storage.StorageError(f"{path} is not a complete fit on shards: {error}.") from None
