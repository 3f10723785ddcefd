"""How a run ended: statuses with their sentences, the fields that every result has, and what a ladder tried."""

from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from cavity._core.precision import host_state, is_traced


class Status(StrEnum):
    """How a run ended, a string. Only those that begin with `converged` are claims of a fixed point.

    Examples:
        >>> import cavity as cv
        >>> status = cv.infer(cv.models.truncation(0.0, 1.0, lower=0.0)).status
        >>> status is cv.Status.CONVERGED, status == "converged"
        (True, True)
        >>> status.sentence
        'The moments of q and of every tilted distribution agree within the tolerance.'
    """

    CONVERGED = "converged"
    CONVERGED_RELAXED = "converged_relaxed"
    CONVERGED_RESTRICTED = "converged_restricted"
    SINGLE_PASS = "single_pass"
    MAX_SWEEPS = "max_sweeps"
    STALLED = "stalled"
    SITES_SKIPPED = "sites_skipped"
    NONFINITE_FACTOR = "nonfinite_factor"
    UNSURE_FACTOR = "unsure_factor"
    IMPROPER_POSTERIOR = "improper_posterior"
    TIME_BUDGET = "time_budget"
    INTERRUPTED = "interrupted"
    RUNNING = "running"

    @property
    def sentence(self) -> str:
        """The status in words."""
        return SENTENCES[self]


SENTENCES = {
    Status.CONVERGED: "The moments of q and of every tilted distribution agree within the tolerance.",
    Status.CONVERGED_RELAXED: (
        "A fixed point of relaxed EP: some sites match moments only together with their relaxation factor, "
        "so this is not a fixed point of EP."
    ),
    Status.CONVERGED_RESTRICTED: (
        "A fixed point of the restricted projection: some sites gave up their variance constraint to stay proper, "
        "so this is not a fixed point of EP."
    ),
    Status.SINGLE_PASS: "Every site was visited once (assumed-density filtering); no fixed point was sought.",
    Status.MAX_SWEEPS: "The sweeps were used up before the moments agreed; the result is not a fixed point.",
    Status.STALLED: "The sweeps stopped coming nearer to agreement; the result is not a fixed point.",
    Status.SITES_SKIPPED: (
        "Some sites cannot be updated because removing them leaves an improper cavity; they keep their last values, "
        "and the result is not a fixed point."
    ),
    Status.NONFINITE_FACTOR: (
        "Some factors gave no finite moments; their sites were left as they were, and where that is flat the posterior "
        "and the evidence are those without these factors."
    ),
    Status.UNSURE_FACTOR: (
        "The messages of some learned or sampled factors were not known well enough to be used when the run ended; "
        "their sites were left as they were, and where that is flat the posterior and the evidence are those without "
        "these factors. With more sweeps a learned factor can ask and learn."
    ),
    Status.IMPROPER_POSTERIOR: "The approximation cannot be normalised; its numbers mean nothing.",
    Status.TIME_BUDGET: "The time budget was used up before the moments agreed; the result is not a fixed point.",
    Status.INTERRUPTED: "The run was interrupted; this is the last complete state.",
    Status.RUNNING: "The run goes on; this is the state after the sweep just done.",
}
CODES = tuple(Status)

#: fixed points of some method; `CODES` begins with them
FIXED_POINTS = (Status.CONVERGED, Status.CONVERGED_RELAXED, Status.CONVERGED_RESTRICTED)


class Result:
    """What every result tells about its run: that of `infer`, of a fitted model, of a stream or of a shard.

    Attributes:
        status: a `Status`; of a stack of results an array of their names, and inside `jit` the number of the status.
        log_evidence: estimate of log p(D) (3.40).
        mismatch: the largest moment mismatch of all sites, measured at the state returned.
        residuals: the largest mismatch met in every sweep, or round.
        seconds: wall time of the run.
    """

    status: Any
    log_evidence: Any
    mismatch: Any
    residuals: Any
    seconds: Any

    __getstate__ = host_state

    @property
    def converged(self) -> Any:
        """Whether a fixed point of the method was reached; `status` says of which kind."""
        if isinstance(self.status, Status):
            return self.status in FIXED_POINTS
        if is_traced(self.status):
            return self.status < len(FIXED_POINTS)
        return np.isin(self.status, FIXED_POINTS)


class Attempt(NamedTuple):
    """One method an `Auto` run tried, of `Solution.attempts`.

    Attributes:
        method: in words.
        status: how it ended.
        sweeps: sweeps made.
        mismatch: the largest moment mismatch it was left with.
        seconds: wall time.
        reason: why it was left for the next, empty for the one that answered.

    Examples:
        >>> import cavity as cv
        >>> solution = cv.infer(cv.models.truncation(0.0, 1.0, lower=0.0), cv.Auto())
        >>> [(attempt.method, attempt.status, attempt.reason) for attempt in solution.attempts]
        [('EP', 'converged', '')]
    """

    method: str
    status: str
    sweeps: int
    mismatch: float
    seconds: float
    reason: str
