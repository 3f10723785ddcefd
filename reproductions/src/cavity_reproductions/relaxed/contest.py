"""EP, damped EP, Power EP and relaxed EP side by side: grids of equal size, the same inner folds, one final run.

The model is Gaussian process classification by the step likelihood (8) with the kernel exp(−‖x − x'‖²/(2 w² d)). The
likelihood does not see the scale of f, so the kernel has no amplitude.
"""

import math
import time
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

import cavity
from cavity.reports import Table
from cavity_reproductions.base import Config, Outcome, array, check_table, grade, median, share
from cavity_reproductions.workbench import infer

NAMES = ("EP", "damped EP", "PEP", "REP")

#: final runs and tuning runs end here. In tuning only the class of held-out rows matters, so few digits are enough.
SWEEPS, TUNING_SWEEPS = 100, 20
TOLERANCE, TUNING_TOLERANCE = 1e-6, 1e-3

#: kernel widths w, wide to narrow: of equally good candidates the first, the smoothest, is taken
WIDTHS, FEWER_WIDTHS = (2.8, 1.4, 0.7, 0.35), (2.0, 0.7)
POWERS = (0.8, 0.5)
#: c of REP, as shares of the c above which it is EP
SHARES = (0.5, 0.25)
FOLDS = 3


class Candidate(NamedTuple):
    """What is tuned: kernel width, and power (PEP) or share of the largest c (REP)."""

    width: float
    setting: float | None


class Data(NamedTuple):
    """A training and a test part, standardised by the training part; y as observed there."""

    X: np.ndarray
    y: np.ndarray
    test_X: np.ndarray
    test_y: np.ndarray


def standardised(X: np.ndarray, y: np.ndarray, test_X: np.ndarray, test_y: np.ndarray) -> Data:
    """Features with mean 0 and deviation 1 over the training part; a constant one becomes 0."""
    mean, sd = X.mean(axis=0), X.std(axis=0)
    sd = np.where(sd > 0, sd, 1.0)
    return Data((X - mean) / sd, np.asarray(y, float), (test_X - mean) / sd, np.asarray(test_y, float))


def grid(name: str, config: Config) -> list[Candidate]:
    """Four candidates for every method: four widths, or two with two powers or two c."""
    if config.size == "tiny":
        return [Candidate(1.0, {"PEP": POWERS, "REP": SHARES}[name][0] if name in ("PEP", "REP") else None)]
    if name in ("EP", "damped EP"):
        return [Candidate(width, None) for width in WIDTHS]
    settings = POWERS if name == "PEP" else SHARES
    return [Candidate(width, setting) for width in FEWER_WIDTHS for setting in settings]


def grids_in_words() -> str:
    """The grids, for the note below a table."""
    return (
        f"Grids of four: EP and damped EP (0.5) w in {WIDTHS}; PEP w in {FEWER_WIDTHS} × power in {POWERS}; REP w in "
        f"{FEWER_WIDTHS} × c in {SHARES} of the c above which it is EP. "
        f"Chosen: fewest errors on {FOLDS} inner folds, the same for all methods; "
        f"runs of at most {TUNING_SWEEPS} sweeps there, {SWEEPS} in the end."
    )


@cache
def largest_weight(epsilon: float) -> float:
    """The c above which REP is EP: the steepest descent of the KL along the old message, at a fixed point of EP.

    With the cavity N(z, 1), a label of +1 and the matched site (ν, τ), dz/dη = ν − ½ z τ, and the KL depends on z only.
    """
    z = np.linspace(-8, 8, 16_001)
    total = epsilon + (1 - 2 * epsilon) * ndtr(z)
    r = (1 - 2 * epsilon) * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) / total
    right = (1 - epsilon) * ndtr(z) / total
    ratio = 1 - r * (r + z)
    expected = right * np.log1p(-epsilon) + (1 - right) * np.log(epsilon)
    divergence = expected - np.log(total) + 0.5 * r * z + 0.5 * np.log(ratio)
    tau = r * (r + z) / ratio
    return float(np.max(-np.gradient(divergence, z) * (r + tau * (z + r) - 0.5 * z * tau)))


def method(name: str, setting: float | None, epsilon: float, max_sweeps: int, tol: float) -> cavity.Method:
    """A contestant."""
    if name == "EP":
        return cavity.EP(max_sweeps=max_sweeps, tol=tol)
    if name == "damped EP":
        return cavity.EP(damping=0.5, max_sweeps=max_sweeps, tol=tol)
    assert setting is not None
    if name == "PEP":
        return cavity.PowerEP(setting, max_sweeps=max_sweeps, tol=tol)
    # The appendix's reading, (18) and (20): of all variants the one that settled most often on pilot data.
    c = setting * largest_weight(epsilon)
    return cavity.RelaxedEP(c, penalty="strength", form="message", max_sweeps=max_sweeps, tol=tol)


def distances(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """‖a − b‖²/d."""
    squares = np.sum(A**2, axis=1)[:, None] + np.sum(B**2, axis=1) - 2 * A @ B.T
    return np.maximum(squares, 0.0) / A.shape[1]


def kernel(squares: np.ndarray, width: float) -> np.ndarray:
    """The kernel from distances."""
    return np.exp(-0.5 * squares / width**2)


def fit(squares: np.ndarray, y: np.ndarray, epsilon: float, width: float, how: cavity.Method, **options: Any) -> Any:
    """One run on training rows with these distances."""
    likelihood = cavity.factors.Step(label_noise=epsilon)
    return infer(cavity.models.latent_gaussian(y, likelihood, kernel_matrix=kernel(squares, width)), how, **options)


def wrong(found: Any, cross: np.ndarray, width: float, y: np.ndarray) -> np.ndarray:
    """Which rows the last state gets wrong; a state without numbers gets all wrong."""
    return ~(y * (kernel(cross, width) @ found.q.weights) > 0)


def tune(name: str, squares: np.ndarray, y: np.ndarray, epsilon: float, config: Config) -> Candidate:
    """The candidate with the fewest errors on the inner folds; the first of equals.

    Fold k holds out rows k·s … (k + 1)·s − 1 with s = n // 3, so all folds have one shape; the rows come shuffled.
    """
    candidates = grid(name, config)
    if len(candidates) == 1:
        return candidates[0]
    size = len(y) // FOLDS
    errors = np.zeros(len(candidates))
    for fold in range(FOLDS):
        out = np.arange(fold * size, (fold + 1) * size)
        kept = np.setdiff1d(np.arange(len(y)), out)
        inner, cross = squares[np.ix_(kept, kept)], squares[np.ix_(out, kept)]
        for place, candidate in enumerate(candidates):
            how = method(name, candidate.setting, epsilon, TUNING_SWEEPS, TUNING_TOLERANCE)
            found = fit(inner, y[kept], epsilon, candidate.width, how)
            errors[place] += np.sum(wrong(found, cross, candidate.width, y[out]))
    return candidates[int(np.argmin(errors))]


def contest(data: Data, epsilon: float, config: Config) -> dict[str, dict]:
    """All contestants on one split: test error, whether the run ended at a fixed point, sweeps, choices, seconds."""
    squares, cross = distances(data.X, data.X), distances(data.test_X, data.X)
    results = {}
    for name in NAMES:
        began = time.perf_counter()
        chosen = tune(name, squares, data.y, epsilon, config)
        found = fit(squares, data.y, epsilon, chosen.width, method(name, chosen.setting, epsilon, SWEEPS, TOLERANCE))
        results[name] = {
            "error": float(np.mean(wrong(found, cross, chosen.width, data.test_y))),
            "converged": bool(found.converged),
            "sweeps": int(found.sweeps),
            "width": chosen.width,
            "setting": chosen.setting,
            "seconds": time.perf_counter() - began,
        }
    return results


def standard_error(values: np.ndarray) -> float:
    """Of the mean; nan for a single value."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else math.nan


def beats(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether the mean paired difference is negative by more than two standard errors."""
    difference = one - other
    return bool(np.mean(difference) < -2 * standard_error(difference))


def column(results: list[Any], name: str, key: str) -> np.ndarray:
    """One number of a contestant over all splits; nan where there is none."""
    return array([result[name][key] for result in results])


def contest_table(title: str, results: list[Any], note: str = "") -> Table:
    """Mean test errors with standard errors, shares of fixed points, and the difference to REP on the same splits."""
    rows = []
    rep = column(results, "REP", "error")
    for name in NAMES:
        error = column(results, name, "error")
        gap = error - rep
        rows.append(
            (
                name,
                100 * float(np.mean(error)),
                100 * standard_error(error),
                None if name == "REP" else 100 * float(np.mean(gap)),
                None if name == "REP" else 100 * standard_error(gap),
                share(column(results, name, "converged") > 0),
                median(column(results, name, "sweeps")),
                median(column(results, name, "width")),
                median(column(results, name, "setting")),
            )
        )
    heads = ("error %", "s.e.", "minus REP's", "s.e. of that", "settled", "median sweeps", "median w", "median setting")
    return Table(title, ("method", *heads), rows, note)


def contest_outcome(groups: dict[str, list[Any]], titles: list[str], note: str) -> Outcome:
    """A table for every group of splits, and whether REP beats EP and PEP on each."""
    tables = [contest_table(title, runs) for title, runs in zip(titles, groups.values(), strict=True)]
    tables[-1] = tables[-1]._replace(note=f"{note} {grids_in_words()}")
    errors = {group: {name: column(runs, name, "error") for name in NAMES} for group, runs in groups.items()}
    checks = {
        f"{group}: REP's error is below {other}'s by two standard errors": beats(of["REP"], of[other])
        for group, of in errors.items()
        for other in ("EP", "PEP")
    }
    numbers = {group: {name: 100 * float(np.mean(e)) for name, e in of.items()} for group, of in errors.items()}
    told = "; ".join(f"{group}: {', '.join(f'{m} {v:.1f}' for m, v in row.items())}" for group, row in numbers.items())
    return Outcome((*tables, check_table(checks)), numbers, grade(checks), f"Test errors in %: {told}.")
