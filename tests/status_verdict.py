"""What a referee says of a run's status: whether a claim of convergence is false, a failure untrue, a number NaN."""

from typing import Any, NamedTuple

import jax
import numpy as np
from hard_likelihoods import Case

import cavity as cv

#: a state is a fixed point when its recomputed mismatch is at most this, and none when it is more than that
FIXED_POINT, NONE = 1e-6, 1e-9
#: recomputed evidence agrees to this, absolute and relative
EVIDENCE = 1e-6

METHODS: dict[str, Any] = {
    "Auto": cv.Auto(),
    "EP": cv.EP(max_sweeps=200),
    "PowerEP": cv.PowerEP(0.5, max_sweeps=300),
    "RestrictedEP": cv.RestrictedEP(max_sweeps=300),
    "RelaxedEP": cv.RelaxedEP(0.1, max_sweeps=300),
    "ConvergentEP": cv.ConvergentEP(),
    "ADF": cv.ADF(),
}


class Said(NamedTuple):
    """What was found of one run; `faults` are words for what must not be."""

    faults: tuple[str, ...]
    mismatch: float
    evidence: float


def nan_places(solution: cv.Solution) -> list[str]:
    """Where a solution holds NaN: its fields, its views, and what it says of left-out data."""
    fields = ["q", "sites", "log_scales", "log_evidence", "residuals", "mismatch", "site_mismatch", "info", "memory"]
    held: dict[str, Any] = {name: getattr(solution, name) for name in fields}
    held["loo_log_predictive"] = solution.loo_log_predictive
    prior, q = solution.problem.prior, solution.q
    held |= {name: solution.view(name) for name in solution.problem.posterior.views(prior, q)}
    return [
        name
        for name, value in held.items()
        if any(np.isnan(leaf).any() for leaf in jax.tree.leaves(value) if np.asarray(leaf).dtype.kind == "f")
    ]


def verdict_on(case: Case, solution: cv.Solution) -> Said:
    """The status and the numbers of a solution, recomputed."""
    status, faults = solution.status, []
    strengths = solution.strengths[0] if status == "converged_relaxed" else None
    found = case.judge(
        tuple(np.asarray(own) for own in solution.sites),
        power=solution.power,
        restricted=status == "converged_restricted",
        strengths=strengths,
    )
    if solution.converged:
        if not found.mismatch <= FIXED_POINT:
            faults.append(f"false {status}, mismatch {found.mismatch:.1e}")
        faults += [f"NaN in {name}" for name in nan_places(solution)]
    gap = abs(float(solution.log_evidence) - found.log_evidence)
    if status == "converged" and gap > EVIDENCE * max(1.0, abs(found.log_evidence)):
        faults.append(f"evidence {float(solution.log_evidence):.9g}, recomputed {found.log_evidence:.9g}")
    true = {
        "max_sweeps": found.proper and not found.mismatch <= NONE,
        "stalled": found.proper and not found.mismatch <= NONE,
        "sites_skipped": found.proper and not found.cavities_proper,
        "improper_posterior": not found.proper,
        "single_pass": isinstance(solution.method, type(METHODS["ADF"])) and solution.method == METHODS["ADF"],
        "time_budget": True,
    }
    if not solution.converged and not true.get(str(status), False):
        faults.append(f"untrue {status}, mismatch {found.mismatch:.1e}, proper {found.proper}")
    return Said(tuple(faults), found.mismatch, found.log_evidence)
