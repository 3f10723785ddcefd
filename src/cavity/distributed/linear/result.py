"""The result of a fit on shards; kept in a file and taken up again."""

import dataclasses
import os
from typing import Any

import numpy as np

from cavity import storage
from cavity.distributed.naturals import unpack_naturals
from cavity.distributed.results import GaussianResult
from cavity.factors.base import Factor
from cavity.inference.status import Status
from cavity.models.latent_gaussian.fit_result import factor_from_spec, factor_spec
from cavity.models.latent_gaussian.linear_model import LinearModel

#: what a file of a fit is called inside
KIND = "ClusterFit"
#: fields that are arrays, and numbers that may not be finite, which are kept as text
ARRAYS = ("prior", "contributions", "prior_variance", "rows", "residuals")
TEXTS = ("mismatch", "balance")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit(GaussianResult):
    """q(w) = N(mean, covariance) from shards, with the account of the run; what is not listed here is as in its bases.

    Attributes:
        factor, prior_variance: as fitted.
        rows: of every shard.
        balance: how far contributions worked out anew from the sites on the workers, plus the prior, are from q's
            natural parameters, relative to the largest of them; as last measured, nan before.
    """

    factor: Factor
    prior_variance: np.ndarray
    rows: np.ndarray
    balance: float

    def model(self) -> LinearModel:
        """The fitted model: it predicts, is stored and goes on with new rows like one fitted in one place.

        What it would know of single rows stays on the workers, so the model has none.
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


def load_fit(path: str | os.PathLike[str]) -> Fit:
    """The fit that `Fit.save` wrote.

    Raises:
        StorageError: the file holds something else, or not all of a fit.
    """
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
