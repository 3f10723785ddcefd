"""Linear classifiers on rows that come in parts: `fit_stream`, and what `partial_fit` and `refine` remember."""

import os
from typing import Any, NamedTuple, Self

import numpy as np

from cavity.estimators._base import class_weights, progress_lines
from cavity.estimators._types import MethodChoice, Vector, Verbose
from cavity.estimators.one_versus_rest import OneVersusRest, class_codes, model_names
from cavity.factors import Factor
from cavity.models._latent_gaussian.rows import UniqueRows, split_weights
from cavity.models.streaming import stream_linear_models

#: share by which the weight of a row may differ from what was seen: rounding of sums.
WEIGHT_ROUNDING = 1e-9


class StreamingClassifier(OneVersusRest):
    """A subclass says by `_parts` what its models are made of: likelihood, what is learned, prior variance."""

    method: MethodChoice
    verbose: Verbose

    def _parts(self) -> tuple[Factor, tuple[str, ...], float]:
        raise NotImplementedError

    def _refuse_balanced(self, what: str) -> None:
        """Weights that are counted on all rows have no meaning in a part of them."""
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} is counted on all rows, which {what} does not see at once; "
                "give a dictionary of weights."
            )

    def fit_stream(
        self,
        batches: Any,
        classes: Vector,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        every: float = 60.0,
        resume: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Fit to rows that are read in batches, once a pass, as often as EP needs to reach the fixed point of `fit`.

        The first pass is assumed-density filtering, later ones refine it. Every row is a site of its own, of which
        three numbers per model are kept. `loo_log_predictive_` is not made. An interruption (Ctrl-C) ends the fit with
        what is known by then, status `interrupted`.

        Args:
            batches: (X, y) as arrays or memory maps; something that can be iterated again and gives batches (X, y) or
                (X, y, sample_weight), the same rows in the same order every time; a function that returns such an
                iterator; `cavity.models.streaming.parquet(...)`. A mere iterator can be read once: its fit is
                that first pass, status `single_pass`.
            classes: all labels that will come.
            checkpoint: a file that is written every so many seconds and after every pass, from which `resume` can go
                on; the sites are then in two files beside it, else in memory.
            every: seconds between two checkpoints.
            resume: the checkpoint to go on from. Rows and parameters must be those it was made with, but for tolerance
                and number of sweeps of the method.

        Returns:
            The estimator itself, fitted. A model that did not converge gives a `ConvergenceWarning`.

        Raises:
            ValueError: an argument or a batch cannot be used, or a parameter is to be learned, which a stream cannot.
            StorageError: `resume` is no checkpoint, or one of other rows or parameters.
        """
        known = stream_classes(classes, None)
        factor, free, variance = self._parts()
        if free:
            raise ValueError(f"fit_stream cannot learn {free[0]} from a stream; give it as a number.")
        self._refuse_balanced("fit_stream")

        def observed(y: np.ndarray) -> np.ndarray:
            codes = class_codes(known, y)
            positive = np.array([1] if len(known) == 2 else range(len(known)))
            return np.where(codes < 0, np.nan, np.where(codes == positive[:, None], 1.0, -1.0))

        def row_weights(y: np.ndarray) -> np.ndarray:
            return class_weights(self.class_weight, y, np.ones(len(y)), known)

        with progress_lines(self.verbose, type(self).__name__) as lines:
            models, reader = stream_linear_models(
                batches,
                factor=factor,
                prior_variance=variance,
                features=self._features,
                observed=observed,
                row_weights=None if self.class_weight is None else row_weights,
                method=self.method,
                checkpoint=checkpoint,
                every=every,
                resume=resume,
                callback=None if lines is None else lines.stream,
            )
        self._warn(models, model_names(known))
        self.classes_, self.n_features_in_ = known, reader.columns
        for name in ("loo_log_predictive_", "loo_probabilities_", "feature_names_in_", "_seen"):
            self.__dict__.pop(name, None)
        if reader.names is not None:
            self.feature_names_in_ = np.array(reader.names, dtype=object)
        self._summarise(models)
        return self


class SeenRows(NamedTuple):
    """What a stream remembers of its rows: not the rows, but their sites, found again by a key.

    One entry for each different (row, label). keys: sorted. naturals: (ν, τ) of all its copies together.
    sample_weight: how often it counted.
    """

    keys: np.ndarray
    naturals: np.ndarray
    sample_weight: np.ndarray

    @classmethod
    def none(cls) -> "SeenRows":
        """Nothing yet."""
        return cls(row_keys(np.zeros((0, 0))), np.zeros((0, 2)), np.zeros(0))

    def with_sites(self, unique: UniqueRows, sites: np.ndarray) -> "SeenRows":
        """With further rows; the sites of equal rows add up."""
        keys = np.concatenate([self.keys, keys_of(unique)])
        found, place = np.unique(keys, return_inverse=True)
        naturals, weights = np.zeros((len(found), 2)), np.zeros(len(found))
        np.add.at(naturals, place, np.concatenate([self.naturals, multiplicity_of(unique) * sites]))
        np.add.at(weights, place, np.concatenate([self.sample_weight, unique.sample_weight]))
        return SeenRows(found, naturals, weights)

    def sites_of(self, unique: UniqueRows) -> np.ndarray:
        """(ν, τ) of one copy of every site, if these are exactly the rows seen."""
        keys = keys_of(unique)
        place = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        known = self.keys[place] == keys
        if not known.all() or len(keys) != len(self.keys):
            raise ValueError(
                f"X and y must be all rows seen so far, {len(self.keys)} different ones; found {int(known.sum())} of "
                f"them and {int((~known).sum())} others."
            )
        if not np.allclose(self.sample_weight[place], unique.sample_weight, rtol=WEIGHT_ROUNDING, atol=0):
            raise ValueError("sample_weight must count every row as often as it was seen.")
        return self.naturals[place] / multiplicity_of(unique)


def stream_classes(given: Vector | None, known: np.ndarray | None) -> np.ndarray:
    """The classes of a stream, sorted: named in its first call, where none are known, and the same later."""
    if given is None and known is not None:
        return known
    found = np.unique(np.asarray(given))
    if len(found) < 2:
        raise ValueError(f"classes must hold at least two labels; found {found.tolist()}.")
    if known is not None and not np.array_equal(found, known):
        raise ValueError(f"classes must stay as in the first call, {known.tolist()}; found {found.tolist()}.")
    return found


def multiplicity_of(unique: UniqueRows) -> np.ndarray:
    """How many equal factors each site stands for, as a column."""
    return split_weights(unique.sample_weight)[0][:, None]


def keys_of(unique: UniqueRows) -> np.ndarray:
    """A key for every site."""
    return row_keys(np.column_stack([unique.X, unique.y]))


def row_keys(rows: np.ndarray) -> np.ndarray:
    """128 bits for each row: two sums of its mixed bits with fixed odd multipliers, so that equal rows agree."""
    multipliers = np.random.default_rng(0).integers(2**63, size=(2, rows.shape[1]), dtype=np.uint64) * np.uint64(2)
    bits = np.ascontiguousarray(rows, np.float64).view(np.uint64).reshape(rows.shape)
    mixed = (bits ^ (bits >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    sums = ((mixed[:, None, :] * (multipliers + np.uint64(1))).sum(axis=2)).reshape(-1, 2)
    return (sums ^ (sums >> np.uint64(32))).view(np.dtype([("high", np.uint64), ("low", np.uint64)])).reshape(-1)
