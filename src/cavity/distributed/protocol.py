"""What travels between a client and a worker, the same for rows, parts of a graph and partitions.

The client sends a `Request`; a visit answers with a `Response`, a measurement with a `Measurement`. Contributions and
cavities are vectors of natural parameters.
"""

from typing import NamedTuple

import numpy as np


class Request(NamedTuple):
    """What a shard is to be visited or measured against.

    cavity: everything but the shard, prior and all other contributions. token, step: the response the client has taken
    and the share of it; no token where it has taken none, and the shard's sites are flat. contribution: the shard's
    own, for workers that keep no sites between two requests.
    """

    cavity: np.ndarray
    token: str | None = None
    step: float = 1.0
    tol: float = 1e-8
    contribution: np.ndarray | None = None


class Response(NamedTuple):
    """What a visit found.

    contribution: the proposed one. token: its name, by which later requests refer to the sites behind it.
    linked: whether the visit started from the sites behind the client's contribution. If they were lost it did not, and
    the proposal is taken whole: a part of a step from sites nobody has is no set of sites.
    mismatch: the largest met in the first sweep, between q as requested and the shard's tilted distributions.
    negative: proposed sites of negative precision. noise: standard error of the mismatch, where moments come from
    draws.
    """

    contribution: np.ndarray
    token: str = ""
    linked: bool = True
    mismatch: float = float("inf")
    negative: int = 0
    noise: float = 0.0


class Measurement(NamedTuple):
    """A shard at the state the client has; nothing is changed.

    mismatch: the largest; infinite where the sites were lost. log_evidence: the shard's share of it: Σ log sᵢ, and of a
    graph Σ log Z of the part's own variables. contribution: worked out again from the sites. improper, nonfinite: sites
    without an update. marginals: of the variables of a part of a graph.
    """

    mismatch: float
    log_evidence: float
    contribution: np.ndarray
    improper: int = 0
    nonfinite: int = 0
    marginals: tuple[np.ndarray, ...] = ()
