"""`fit_stream`: a linear classifier on rows that need not fit into memory."""

import os
from typing import Any

import numpy as np

from cavity.estimators.one_versus_rest import OneVersusRest, class_codes, machine_names
from cavity.estimators.progress import lines
from cavity.estimators.sample_weight import class_weights
from cavity.estimators.seen_rows import stream_classes
from cavity.models.streaming import stream_linear_models


class FitsStreams(OneVersusRest):
    """A subclass says by `_parts` what its machines are made of: likelihood, what is learned, prior variance."""

    method: Any
    verbose: Any

    def _parts(self) -> tuple[Any, tuple[str, ...], float]:
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
        classes: Any,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        every: float = 60.0,
        resume: str | os.PathLike[str] | None = None,
    ) -> Any:
        """Fit to rows that are read in batches, once a pass, as often as EP needs to reach the fixed point of `fit`.

        The first pass is assumed-density filtering, later ones refine it. Every row is a site of its own, of which
        three numbers a machine are kept. `loo_log_predictive_` is not made. An interruption (Ctrl-C) ends the fit with
        what is known by then, status `interrupted`.

        Args:
            batches: (X, y) as arrays or memory maps; something that can be iterated anew and gives batches (X, y) or
                (X, y, sample_weight), the same rows in the same order every time; a function that returns such an
                iterator; `cavity.models.streaming.parquet(...)`. A mere iterator can be read once: its fit is
                that first pass, status `single_pass`.
            classes: all labels that will come.
            checkpoint: a file that is written every so many seconds and after every pass, from which `resume` can go
                on; the sites are then in two files beside it, else in memory.
            every: seconds between two checkpoints.
            resume: the checkpoint to go on from. Rows and parameters must be those it was made with, but for tolerance
                and number of sweeps of the method.
        """
        known = stream_classes(classes, None)
        factor, free, variance = self._parts()
        if free:
            raise ValueError(f"fit_stream cannot learn {free[0]} from a stream; give it as a number.")
        self._refuse_balanced("fit_stream")
        told = lines(self.verbose, type(self).__name__)

        def observed(y: np.ndarray) -> np.ndarray:
            if y.dtype == object:  # text of a data frame, or numbers among which some are missing
                y = y.astype(str if known.dtype.kind == "U" else known.dtype)
            codes = class_codes(known, y)
            positive = np.array([1] if len(known) == 2 else range(len(known)))
            return np.where(codes < 0, np.nan, np.where(codes == positive[:, None], 1.0, -1.0))

        def row_weights(y: np.ndarray) -> np.ndarray:
            return class_weights(self.class_weight, y, np.ones(len(y)), known)

        machines, reader = stream_linear_models(
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
            callback=None if told is None else told.stream,
        )
        self._warn(machines, machine_names(known))
        self.classes_, self.n_features_in_ = known, reader.columns
        for name in ("loo_log_predictive_", "loo_probabilities_", "feature_names_in_", "_seen"):
            self.__dict__.pop(name, None)
        if reader.names is not None:
            self.feature_names_in_ = np.array(reader.names, dtype=object)
        self._summarise(machines)
        return self
